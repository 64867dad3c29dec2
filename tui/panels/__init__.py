"""What a panel says, as lines of text: facts in, lines out. Not here: widgets, screens, requests."""
