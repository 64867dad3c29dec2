"""HTTP in OpenAI's shape. Not here: scheduling, the engine."""
