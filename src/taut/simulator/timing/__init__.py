"""Sizes and durations alone: for thousands of workers, and for questions that are about time.

simulation.py                                one scenario, from the words to the figures
world.py, worker.py, faults.py               many workers, event by event
streams.py, methods.py                       what a worker does around a strategy, with durations
collective.py, rounds.py                     all-reduces, for all places at once
coder.py, sizes.py, noise.py                 stand-ins for payloads, vectors and training
accounts.py, history.py                      where the time went, and how far the run was
"""
