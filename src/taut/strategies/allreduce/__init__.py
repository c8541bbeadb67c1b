"""Synchronous training: groups of workers that average vectors in rounds."""
