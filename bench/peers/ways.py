"""The peers of the race: of each, its script, the environment that it runs in, and what it is called in the tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Way:
    """``lockstep``: whether every process waits for all others at each step. ``taut`` is started by its own commands."""

    label: str
    script: str
    args: tuple[str, ...] = ()
    environment: str = "taut"
    lockstep: bool = False
    options: tuple[str, ...] = ()  # of the supervisor
    package: str = "torch"

    @property
    def path(self) -> Path:
        return HERE / self.script

    @property
    def is_taut(self) -> bool:
        return self.script == "with_taut.py"


BOUND, DDP, ASYNC, SYNC = "bound", "ddp", "taut-async", "taut-sync"
WAYS = {
    BOUND: Way("four processes without communication (the bound)", "plain.py"),
    ASYNC: Way("taut (default: async)", "with_taut.py", package="taut"),
    SYNC: Way("taut, sync", "with_taut.py", lockstep=True, options=("--strategy", "sync"), package="taut"),
    DDP: Way("DDP gloo", "with_ddp.py", lockstep=True),
    "ddp-lr4": Way("DDP gloo, 4 times the learning rate", "with_ddp.py", ("--scale", "4"), lockstep=True),
    "ddp-fp16": Way("DDP, fp16 hook", "with_ddp.py", ("--hook", "fp16"), lockstep=True),
    "ddp-powersgd": Way("DDP, PowerSGD hook, rank 2", "with_ddp.py", ("--hook", "powersgd"), lockstep=True),
    "post-local": Way("DDP, post-local SGD, every 16 steps", "with_ddp.py", ("--hook", "post_local")),
    "horovod": Way("Horovod", "with_horovod.py", environment="horovod", lockstep=True, package="horovod"),
    "deepspeed": Way("DeepSpeed", "with_deepspeed.py", environment="deepspeed", lockstep=True, package="deepspeed"),
    "torchft-local": Way(
        "torchft, LocalSGD, every 32 steps", "with_torchft.py", environment="torchft", package="torchft"
    ),
    "torchft-diloco": Way(
        "torchft, DiLoCo, every 32 steps", "with_torchft.py", ("--method", "diloco"), "torchft", package="torchft"
    ),
    "hivemind": Way("hivemind, local updates", "with_hivemind.py", environment="hivemind", package="hivemind"),
    "hivemind-batch": Way(
        "hivemind, batches of 2048",
        "with_hivemind.py",
        ("--updates", "batch", "--target-batch", "2048"),
        "hivemind",
        lockstep=True,
        package="hivemind",
    ),
    "flower": Way("Flower, FedAvg, 100 batches a round", "with_flower.py", environment="flower", package="flwr"),
}
