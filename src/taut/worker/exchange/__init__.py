"""How a worker exchanges with the others, in the training thread.

turns.py                                 turns without I/O, which the runtime and the timing simulator interpret
stream_driver.py, round_driver.py        the turns around a stream, around a method and around gradients
base.py                                  the interface; CommThread.run_turn carries turns out
stream.py                                streams of updates
rounds.py, adaptive_timeout.py           a method's rounds, and how long they take as a rule
weights.py                               rounds over weights
gradients.py, buckets.py                 rounds over gradients; torch_distributed.py: by torch.distributed
newcomer_state.py, residual_handoff.py   the state for a newcomer, and the residual of a worker that leaves
distillation.py                          predictions instead of weights
"""
