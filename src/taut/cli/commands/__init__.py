"""The subcommands of ``taut``, one file each."""
