"""The model of a worker: its flat parameters, its replica, its optimizers, its snapshots."""
