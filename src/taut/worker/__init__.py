"""The worker: it owns the model, makes steps, exchanges updates, and follows the run from joining to its end.

join.py, torch_worker.py                 what a script sees
connection.py, admission.py, rejoin.py   into a run, and into it again
session.py, phases.py, finish.py         the worker's part in a run, and its end
model/         flat parameters, the replica, snapshots, the optimizers
data/          leases become batches
exchange/      the training thread's side of a strategy
comm/          the communication thread
checkpoints/   copies taken beside training, files, and resuming from them
codec_costs/   measure each codec on this machine and this model
standalone/    the framework-free worker
"""
