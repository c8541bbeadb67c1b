"""Payloads: how they are written, validated, merged and applied."""
