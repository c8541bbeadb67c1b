"""The named shapes, one family per file."""
