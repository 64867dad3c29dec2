"""A copy of a model file whose experts lie as they are read: order, copy, way back, forecast. Not here: the command."""
