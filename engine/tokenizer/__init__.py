"""Text to ids and back. Not here: chat templates, sampling."""
