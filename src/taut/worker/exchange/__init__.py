"""How a worker exchanges with the others, in the training thread.

talk.py                                  what every way has in common
streaming.py, fragments.py               streams of updates
rounds.py, local_vector.py, moments.py   a method's rounds, over weights
gradient_rounds.py, gradient_buckets.py  the same over gradients; torch_group.py: by torch.distributed
handing.py                               a newcomer is given the state between two rounds
distillation.py                          predictions instead of weights
waits.py                                 how long it takes, as a rule
"""
