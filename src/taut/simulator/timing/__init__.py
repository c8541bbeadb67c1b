"""Sizes and durations alone: for thousands of workers, and for questions about time.

simulation.py runs one scenario; world.py and worker.py advance many workers event by event, on stand-ins for payloads,
vectors and training; allreduce_kernel.py executes an all-reduce for all positions at once.
"""
