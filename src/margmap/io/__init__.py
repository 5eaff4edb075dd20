"""Files: one module a format, one table of them in :mod:`margmap.io.formats`, and rows of evidence."""
