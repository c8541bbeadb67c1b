"""The model of a worker: its flat parameter vector, its replica, its snapshots."""
