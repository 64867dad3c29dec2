"""Loops over addresses and integers, compiled on the user's CPU. Not here: models, files, block formats."""
