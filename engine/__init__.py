"""The inference engine: a library from GGUF file to token ids. Not here: HTTP, containers, YAML, text on screens."""
