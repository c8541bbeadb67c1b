"""Measure step times and links: the method that ``taut probe`` runs."""
