"""Rows answered in bulk: read, ordered, answered, written so that no crash loses or doubles one. Not here: HTTP."""
