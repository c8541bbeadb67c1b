"""hivemind: its Optimizer, with averages of parameters in the background (``local``), or large batches (``batch``)."""

import time

import hivemind
from hivemind.compression import Float16Compression
from task import Participant, optimizer_of, parser

arguments = parser(__doc__)
arguments.add_argument("--updates", choices=("local", "batch"), default="local")
arguments.add_argument("--target-batch", type=int, default=8192, help="samples of all processes between two averages")
args = arguments.parse_args()
me = Participant(args)
found = args.out / "swarm"
while args.rank and not found.exists():
    time.sleep(0.05)
dht = hivemind.DHT(
    initial_peers=found.read_text().split() if args.rank else None,
    host_maddrs=[f"/ip4/{args.address}/tcp/0"],
    use_ipfs=False,
    use_relay=False,
    use_auto_relay=False,
    start=True,
)
if args.rank == 0:
    part = args.out / "swarm.part"
    part.write_text("\n".join(map(str, dht.get_visible_maddrs())))
    part.rename(found)
local = args.updates == "local"
optimizer = hivemind.Optimizer(
    dht=dht,
    run_id="race",
    batch_size_per_step=me.task.batch,
    target_batch_size=args.target_batch,
    params=list(me.model.parameters()),
    optimizer=lambda parameters: optimizer_of(args.model, parameters),
    use_local_updates=local,
    matchmaking_time=1.0,
    averaging_timeout=30.0,
    grad_compression=Float16Compression(),
    state_averaging_compression=Float16Compression(),
)
for batch in me.batches():
    me.loss(batch).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    me.stepped()
