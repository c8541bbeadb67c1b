"""Simulate a script: every worker really trains, in virtual time."""
