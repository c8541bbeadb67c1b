"""What the supervisor keeps on disk."""
