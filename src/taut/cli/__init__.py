"""The ``taut`` command, one file per subcommand. ``main`` turns errors into messages and exit codes."""
