"""The training thread's side of a strategy: base.py is the contract, turns.py and the drivers have the order of calls.

stream.py exchanges a stream's updates, rounds.py a method's vectors, gradients.py gradients during backward, and
torch_distributed.py leaves the sum to gloo or nccl. newcomer_state.py gives a newcomer the state between two rounds.
"""
