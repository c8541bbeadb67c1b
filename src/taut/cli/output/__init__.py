"""Output of the commands: tables, progress, figures, and the console that shows them."""
