"""Public: what a user or a contributor needs to test codecs, transports, strategies and their own training."""
