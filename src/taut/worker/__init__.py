"""Owns the model: the arena, the local step, what is sent and included, and the worker's side of the run.

iteration.py, participant.py, local.py   the framework-free level: one iteration, and how an update is included
node.py, courier.py, facts.py            the communication thread, and what it learnt
supervisor_link.py, stages.py            its talk with the supervisor, and the strategies' protocols
handover.py, transfer.py, state.py       states from donors
arena.py, replica.py, torch_worker.py    the torch model, its codec, and the worker that taut.join returns
join.py, admission.py, seat.py           a place in a run, from admission to the end
batches.py, supervisor_leases.py         its share of the data
accounting.py                            where every second goes
"""
