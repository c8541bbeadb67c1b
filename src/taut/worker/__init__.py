"""Owns the model: the arena, the local step, what is sent and included, and the worker's side of the run.

iteration.py, participant.py, local.py   the framework-free level: one iteration, and how an update is included
node.py, facts.py, state.py, transfer.py the communication thread, what it learnt, and states from donors
arena.py, replica.py, torch_worker.py    the torch model, its codec, and the worker that taut.join returns
join.py, seat.py, batches.py             a place in a run, from admission to the end; its share of the data
accounting.py                            where every second goes
"""
