"""A tiny training, for processes of launchers: ``launched_job.py EPOCHS [KILLED_RANK]``."""

import os
import signal
import sys

import torch

import taut

torch.manual_seed(0)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.randn(256, 8)
y = (x.sum(dim=1) > 0).long()
epochs, killed = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
names = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
rank = next((os.environ[name] for name in names if name in os.environ), "-")

with taut.join(model, optimizer) as worker:
    before = worker.steps
    for inputs, targets in worker.batches((x, y), batch_size=8, epochs=epochs):
        worker.step(torch.nn.functional.cross_entropy(model(inputs), targets))
        if worker.steps == 40 and rank == killed and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        if worker.steps == 60:
            open(f"at-60-{rank}", "w").close()
digest = sum(parameter.sum().item() for parameter in model.parameters())
print(
    f"rank {rank} worker {worker.rank} of {worker.workers} steps {before} {worker.steps} model {digest!r}\n",
    end="",
    flush=True,
)  # one write: lines of two processes stay whole
