"""The soak: random faults over every strategy, and the laws after each."""
