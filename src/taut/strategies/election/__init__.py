"""Elect a membership while no supervisor can be reached."""
