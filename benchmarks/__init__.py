"""Measures Colibri against itself and its peers: speed, accuracy, memory, start. Not here: tests, which never time."""
