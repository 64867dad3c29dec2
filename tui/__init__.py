"""The terminal program: it looks at a running service over HTTP and sends requests. Not here: anything that decides."""
