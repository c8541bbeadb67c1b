"""The framework-free worker, and its runner in one process."""
