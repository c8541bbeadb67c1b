"""Rounds of clients, which may outnumber the workers: ``worker.rounds``."""
