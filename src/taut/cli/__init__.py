"""The ``taut`` command. main.py registers the subcommands and turns errors into messages and exit codes.

commands/ has one file for each subcommand, jobs/ the scripts that come with taut; the other files are shared by commands.
"""
