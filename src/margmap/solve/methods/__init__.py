"""The methods that solve a query exactly: one file or folder each."""
