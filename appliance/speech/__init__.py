"""What a model writes besides plain text: thoughts and calls of tools, read from its answer. Not here: the API."""
