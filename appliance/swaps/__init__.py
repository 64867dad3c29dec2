"""Changing the profile that serves: plans, stages, rescue, and what is remembered. Not here: HTTP, the worker."""
