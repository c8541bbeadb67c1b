"""Payloads: how they are written, validated, merged and applied. layouts/ has the bodies that compressors write."""
