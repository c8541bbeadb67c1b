"""Conformance checks for codecs, strategies and transports."""
