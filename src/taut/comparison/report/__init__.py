"""The report on a comparison."""
