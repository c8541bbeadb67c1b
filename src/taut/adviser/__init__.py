"""Which strategy for these machines? Measure (``taut probe``), predict by simulation, rank by a stated rule, say why.

record.py       what was measured, and its file
measured.py     from what the workers counted to that record
machines.py     from that record to the simulator's links, speeds and costs
candidates.py   the combinations of strategy, topology and codec that make sense, and how complete each is
prediction.py   what the simulator says of each
ranking.py      the rule by which one is recommended
reasons.py      why, in words with numbers
verification.py a prediction held against a short real run
report.py       all of it as one record
"""
