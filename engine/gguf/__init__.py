"""The GGUF file format, read and written. Not here: what the tensors mean."""
