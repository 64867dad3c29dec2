"""One file per block format: its drawing, its numpy twin, its kernels. Not here: the file that holds the blocks."""
