"""Parts that every screen is made of: status line, tab line, key line, panel, banner. Not here: screens."""
