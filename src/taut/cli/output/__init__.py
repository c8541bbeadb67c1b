"""The output of commands: consoles, tables, progress, figures."""
