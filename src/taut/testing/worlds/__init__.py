"""Worlds of many workers in one thread."""
