"""Asynchronous training over a spanning tree: every update crosses every edge once, merged on its way."""
