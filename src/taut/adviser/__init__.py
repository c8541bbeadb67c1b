"""Recommend a strategy for these machines: measure (``taut probe``), predict by simulation, rank by a rule, say why.

measured.py and record.py make and keep the probe; machines.py turns it into links, speeds and costs; candidates.py lists
the combinations, prediction.py simulates them, ranking.py picks one and reasons.py explains it.
"""
