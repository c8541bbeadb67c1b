"""Sizes and durations alone: for thousands of workers, and for questions that are about time.

simulation.py                              one scenario, from the words to the figures
world.py, worker.py                        many workers, event by event, and the turns that they are in
faults.py, election.py                     what goes wrong, and going on while the supervisor is away
streams.py, methods.py                     the I/O of those turns, with durations
grouped_allreduce.py, allreduce_kernel.py  all-reduces, for all workers at once
coder.py, stand_ins.py, noise.py           stand-ins for payloads, vectors and training
accounts.py, history.py                    where the time went, and how far the run was
"""
