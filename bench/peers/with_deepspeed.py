"""DeepSpeed on CPUs, with ZeRO's first stage or without, over gloo."""

import os

from task import Participant, parser

arguments = parser(__doc__)
arguments.add_argument("--stage", type=int, choices=(0, 1), default=0)
args = arguments.parse_args()
os.environ |= {
    "DS_ACCELERATOR": "cpu",
    "GLOO_SOCKET_IFNAME": "eth0",
    "RANK": str(args.rank),
    "LOCAL_RANK": "0",
    "WORLD_SIZE": str(args.world),
    "MASTER_ADDR": args.head,
    "MASTER_PORT": "29500",
}
import deepspeed  # noqa: E402  (it reads the environment)

me = Participant(args)
deepspeed.ops.__compatible_ops__.clear()  # shared memory, for processes of one machine: it would be compiled first
deepspeed.init_distributed(dist_backend="gloo")
engine, *_ = deepspeed.initialize(
    model=me.model,
    optimizer=me.optimizer(),
    config={
        "train_micro_batch_size_per_gpu": me.task.batch,
        "zero_optimization": {"stage": args.stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    },
)
for batch in me.batches():
    engine.backward(me.loss(batch, engine))
    engine.step()
    me.stepped()
