"""When checkpoints are made, and where they are."""
