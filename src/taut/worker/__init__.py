"""The worker: it owns the model, makes steps, exchanges updates, and follows the run from joining to its end.

join.py, torch_worker.py           what a script sees
session_worker.py                 what every worker has, whatever computes its gradients
session.py, phases.py, finish.py   the worker's part in a run, and its end
joining/       into a run, and into it again
model/         flat parameters, the replica, snapshots
optimizer/     the optimizers of the script: steps, moments, rates, loss scaling
data/          leases become batches
exchange/      the training thread's side of a strategy
comm/          the communication thread
checkpoints/   copies taken beside training, files, and resuming from them
codec_costs/   measure each codec on this machine and this model
vector/        the worker of an array, whatever framework computes
standalone/    workers with channels between them, which are filled in by the script
"""
