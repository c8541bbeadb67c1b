"""PyTorch's DistributedDataParallel with gloo: as it is, or with a communication hook of PyTorch's own.

``post_local``: all-reduce for a while, then averages of the parameters every so many steps.
"""

import os

import torch.distributed as dist
from task import Participant, parser
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

WARM_UP, PERIOD, RANK = 20, 16, 2

arguments = parser(__doc__)
arguments.add_argument("--hook", choices=("none", "fp16", "powersgd", "post_local"), default="none")
arguments.add_argument("--scale", type=float, default=1.0, help="of the learning rate")
args = arguments.parse_args()
me = Participant(args)
os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
dist.init_process_group("gloo", init_method=f"tcp://{args.head}:29500", rank=args.rank, world_size=args.world)
options = {"bucket_cap_mb": 500} if args.hook == "powersgd" else {}  # with several buckets it can deadlock on gloo
model = DistributedDataParallel(me.model, **options)
optimizer = me.optimizer(args.scale)
if args.hook == "fp16":
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
elif args.hook == "powersgd":
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=RANK, start_powerSGD_iter=10)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
elif args.hook == "post_local":
    state = post_localSGD_hook.PostLocalSGDState(
        None, None, start_localSGD_iter=WARM_UP, post_local_gradient_allreduce=False
    )
    model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    optimizer = PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(period=PERIOD, warmup_steps=WARM_UP))
for batch in me.batches():
    me.loss(batch, model).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    me.stepped()
