"""Faults for tests: words, plans and runs."""
