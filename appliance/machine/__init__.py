"""The machine: read, judged and, where asked, tuned with undo. Not here: what is decided from it."""
