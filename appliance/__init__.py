"""Everything around the engine: settings, worker process, queue, API, command line. Not here: arithmetic."""
