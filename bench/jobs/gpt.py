"""A GPT of plain torch on a GPU (AdamW, bf16 autocast, synthetic tokens), alone or as a worker, and how fast it trains.

Each process writes ``OUT/RANK.json``: steps a second after a warm-up that all processes end together, its device memory,
and, with ``--timed``, how many milliseconds a step encoding, decoding and copying take. The device is idle when such a
part begins, and has done all of it when it ends, so those runs are slower than others.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import taut

PATIENCE_S = 120.0


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(seen)
        return x + self.narrow(F.gelu(self.wide(self.second(x))))


class GPT(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, length: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


SIZES = {
    "163M": {"layers": 12, "width": 768, "heads": 12, "length": 512, "vocabulary": 50257},
    "10M": {"layers": 5, "width": 384, "heads": 6, "length": 128, "vocabulary": 2048},
    "tiny": {"layers": 2, "width": 64, "heads": 2, "length": 32, "vocabulary": 256},
}


class Parts:
    """The time that encoding, decoding and copies take in each step."""

    def __init__(self) -> None:
        self.step, self.spent = 0, dict[str, dict[int, float]]()
        self._inside = threading.local()

    def time(self, part: str, owner: Any, *names: str) -> None:
        for name in names:
            setattr(owner, name, self._timed(part, getattr(owner, name)))

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        spent, inside = self.spent.setdefault(part, {}), self._inside

        def timed(*args: Any, **kwargs: Any) -> Any:
            if getattr(inside, "now", False):  # the outer one counts
                return function(*args, **kwargs)
            synchronize()
            inside.now, began_s = True, time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                synchronize()
                inside.now = False
                spent[self.step] = spent.get(self.step, 0.0) + time.perf_counter() - began_s

        return timed

    def milliseconds(self, first: int, last: int) -> dict[str, float]:
        """The median of the steps from ``first`` to ``last`` - 1, by part."""
        steps = range(first, last)
        return {
            part: 1e3 * statistics.median(spent.get(step, 0.0) for step in steps) for part, spent in self.spent.items()
        }


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def watch_parts() -> Parts:
    from taut.codecs.vector_codec import VectorCodec
    from taut.strategies.allreduce.round_agreement import RoundMachine
    from taut.worker.exchange.stream import ReplicaStream
    from taut.worker.model.replica import Replica
    from taut.worker.model.vector_views import FlatParamsCodec, Gradients, Weights

    parts = Parts()
    parts.time("encode", FlatParamsCodec, "prepare", "difference")
    parts.time("encode", Replica, "emit")
    parts.time("decode", VectorCodec, "check", "total", "add")
    parts.time("decode", ReplicaStream, "include")
    parts.time("copies", Gradients, "fetch", "put_back")
    parts.time("copies", Weights, "fetch", "put_back")
    parts.time("copies", RoundMachine, "mean")
    return parts


def together(out: Path, rank: int, peers: int, where: str) -> None:
    """Wait until all processes are here."""
    (out / f"{where}-{rank}").touch()
    until_s = time.monotonic() + PATIENCE_S
    while len(list(out.glob(f"{where}-*"))) < peers:
        if time.monotonic() > until_s:
            raise SystemExit(f"not all of {peers} processes came within {PATIENCE_S:.0f} s")
        time.sleep(0.002)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--size", choices=SIZES, default="163M")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100, help="after the warm-up")
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument("--peers", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="without taut")
    parser.add_argument("--rank", type=int, default=0, help="of a plain process")
    parser.add_argument("--timed", action="store_true")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    parts = watch_parts() if args.timed else Parts()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu") if args.plain else taut.device()
    torch.manual_seed(0)
    shape = SIZES[args.size]
    with torch.device(device):
        model = GPT(**shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    data = torch.randint(shape["vocabulary"], (64 * args.batch, shape["length"] + 1))

    def loss_of(tokens: torch.Tensor) -> torch.Tensor:
        tokens = tokens.to(device, non_blocking=True)
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    def plain() -> Iterator[int]:
        step = 0
        while True:
            for rows in data.split(args.batch):
                loss = loss_of(rows)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                step += 1
                yield step

    def joined() -> Iterator[int]:
        with taut.join(model, optimizer) as worker:
            args.rank = worker.rank
            for step, rows in enumerate(worker.batches(data, batch_size=args.batch, epochs=1_000_000), 1):
                worker.step(loss_of(rows))
                parts.step = step
                if step == args.warm_up + args.steps:
                    args.statistics = {name: getattr(worker.statistics(), name) for name in STATISTICS}
                yield step

    begun_s, allocated, loop = 0.0, 0, plain() if args.plain else joined()
    for step in loop:
        if step == args.warm_up and args.out is not None:
            synchronize()
            together(args.out, args.rank, args.peers, "ready")
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            begun_s = time.perf_counter()
        if step == args.warm_up + args.steps and args.out is not None:
            break
    synchronize()
    ended_s = time.perf_counter()
    if device.type == "cuda":
        allocated = torch.cuda.max_memory_allocated()
    if args.out is not None:
        record = {
            "steps_per_s": args.steps / (ended_s - begun_s),
            "parameters": sum(p.numel() for p in model.parameters()),
            "allocated": allocated,
            "parts": parts.milliseconds(args.warm_up, args.warm_up + args.steps),
            "statistics": vars(args).get("statistics"),
        }
        (args.out / f"{args.rank}.json").write_text(json.dumps(record))
        together(args.out, args.rank, args.peers, "done")
        os._exit(0)  # the final model is of no interest, and gathering it would take longer than all the rest


STATISTICS = ("compute_s", "encode_s", "send_s", "merge_s", "wait_s", "wall_s", "bytes_sent", "steps")

if __name__ == "__main__":
    main()
