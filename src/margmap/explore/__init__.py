"""A local page to ask a model questions on: ``margmap explore MODEL``, with the extra ``explore``."""
