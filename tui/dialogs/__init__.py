"""Questions that cover a screen until they are answered, one file each. Not here: what follows from an answer."""
