"""Streams that send every update to every worker directly: async, ssp, independent."""
