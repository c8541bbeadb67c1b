"""What another package may bring along for taut: one module for each kind."""
