"""Pages of keys and values. Not here: the attention that reads them."""
