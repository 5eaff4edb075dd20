"""Models of other libraries, one file a library; recognised by :func:`margmap.as_model`."""
