"""The command `colibri`, one file per subcommand. Not here: the work itself."""
