"""One family per file. Not here: the loops, the file format."""
