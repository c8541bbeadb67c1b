"""The schedule of checkpoints, and their folder."""
