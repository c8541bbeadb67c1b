"""Eviction, expulsion, elections and reconciliation. Pure."""
