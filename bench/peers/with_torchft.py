"""torchft: LocalSGD or DiLoCo, each process a replica group of its own; its lighthouse runs on host 1."""

import os
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
from task import Participant, parser
from torch.distributed import TCPStore
from torchft import Manager, ProcessGroupGloo
from torchft.local_sgd import DiLoCo, LocalSGD

PERIOD, STORE, LIGHTHOUSE = 32, 29501, 29510

arguments = parser(__doc__)
arguments.add_argument("--method", choices=("local_sgd", "diloco"), default="local_sgd")
args = arguments.parse_args()
me = Participant(args)
os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
socket.gethostname = lambda: args.address  # where a state is fetched from; the hosts of the lab share the machine's name
if args.rank == 0:
    program = Path(sys.executable).parent / "torchft_lighthouse"
    words = ["--min_replicas", "2", "--join_timeout_ms", "10000", "--bind", f"0.0.0.0:{LIGHTHOUSE}"]
    lighthouse = subprocess.Popen([str(program), *words])
    (args.out / "lighthouse").touch()
(args.out / f"{args.rank}.ready").touch()  # without those that come later a quorum begins, and they must be healed
while not (args.out / "lighthouse").exists() or len(list(args.out.glob("*.ready"))) < args.world:
    time.sleep(0.05)
optimizer = me.optimizer()
store = TCPStore(args.address, STORE, is_master=True, wait_for_workers=False)
timeout = timedelta(seconds=20)
manager = Manager(
    pg=ProcessGroupGloo(timeout=timeout),
    min_replica_size=2,
    load_state_dict=lambda state: (
        me.model.load_state_dict(state["model"]),
        optimizer.load_state_dict(state["optimizer"]),
    ),
    state_dict=lambda: {"model": me.model.state_dict(), "optimizer": optimizer.state_dict()},
    use_async_quorum=False,
    init_sync=False,  # all begin with the same weights
    timeout=timeout,
    rank=0,
    world_size=1,
    store_addr=args.address,
    store_port=STORE,
    lighthouse_addr=f"http://{args.head}:{LIGHTHOUSE}",
    hostname=args.address,
    replica_id=f"replica-{args.rank}-",
)
if args.method == "diloco":
    outer = torch.optim.SGD(me.model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    method = DiLoCo(manager, [me.model], optimizer, outer, sync_every=PERIOD)
else:
    method = LocalSGD(manager, me.model, optimizer, sync_every=PERIOD)
with method:
    for batch in me.batches():
        optimizer.zero_grad(set_to_none=True)
        me.loss(batch).backward()
        optimizer.step()
        me.stepped()
