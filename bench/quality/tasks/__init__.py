"""The tasks of ``quality.py``, one kind per file. Each file says how its rates were chosen."""
