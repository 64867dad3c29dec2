"""Where each matrix lives in memory. Not here: how it is multiplied."""
