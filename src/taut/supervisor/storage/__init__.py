"""The supervisor's files: the store, its readers, snapshots, the run's lock, the model."""
