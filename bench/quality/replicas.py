"""Train a task synchronously, or by replicas that exchange a codec's updates, all in one process.

The replicas take turns, as workers of equal speed: a step, then all updates that have arrived, then the own update.
So with a lateness of 0 half of the others' updates are in after the same step, and half one step later, as between
workers that run freely on a fast network; each step of lateness more holds every update back for that many turns. The
codec is the library's own, on its grid, and the bytes are those of its payloads.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

import torch
from task import Batch, Task

from taut.codecs import Codec, snap
from taut.worker.model.flat_params import FlatParams

RETUNE = 64  # turns, as the runtime


@dataclass
class Result:
    """What came out. ``sent``: bytes of a worker's updates per step and receiver; ``dense``: those of float32 updates;
    ``identical``: whether all replicas had the same shared weights, to the last bit."""

    loss: float
    sent: float
    dense: float
    seconds: float
    identical: bool = True
    trace: list[str] = field(default_factory=list)


def batches(task: Task, seed: int, rank: int) -> torch.Generator:
    return torch.Generator().manual_seed(1000 * seed + rank)


def score(task: Task, model: torch.nn.Module) -> float:
    model.eval()
    with torch.no_grad():
        return task.score(model)


def advance(task: Task, optimizer: torch.optim.Optimizer, peak: float, step: int) -> None:
    for group in optimizer.param_groups:
        group["lr"] = peak * task.rate(step, task.steps)
        if task.clip < float("inf"):
            torch.nn.utils.clip_grad_norm_(group["params"], task.clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def synchronous(task: Task, workers: int, seed: int, share: float = 1.0) -> Result:
    """One model that steps along the mean of all workers' gradients. ``share``: of the task's rate."""
    begun = time.process_time()
    model = task.model(seed)
    optimizer = task.optimizer([p for p in model.parameters() if p.requires_grad])
    peak = share * optimizer.param_groups[0]["lr"]
    draws = [batches(task, seed, rank) for rank in range(workers)]
    for step in range(task.steps):
        drawn = [task.batch(draw) for draw in draws]
        if task.local:
            for one in drawn:
                (task.loss(model, one) / workers).backward()
        else:
            together: Batch = tuple(torch.cat(parts) for parts in zip(*drawn, strict=True))
            task.loss(model, together).backward()
        advance(task, optimizer, peak, step)
    size = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return Result(score(task, model), 4.0 * size, 4.0 * size, time.process_time() - begun)


def exchanging(task: Task, codec: Codec, workers: int, late: int, seed: int) -> Result:
    begun = time.process_time()
    models = [task.model(seed) for _ in range(workers)]
    params = [FlatParams(model) for model in models]
    grids = [snap(one.vector, one.sizes, one.names) for one in params]
    states = [codec.start(one.vector, workers, grid, shapes=one.shapes, seed=rank)
              for rank, (one, grid) in enumerate(zip(params, grids, strict=True))]  # fmt: skip
    optimizers = [task.optimizer(one.parameters) for one in params]
    peak = optimizers[0].param_groups[0]["lr"]
    draws = [batches(task, seed, rank) for rank in range(workers)]
    waiting: list[deque[tuple[int, bytes]]] = [deque() for _ in range(workers)]  # per receiver: (turn when due, payload)
    sent, trace, turn = 0, [], 0
    for step in range(task.steps):
        for rank, model in enumerate(models):
            task.loss(model, task.batch(draws[rank])).backward()
            advance(task, optimizers[rank], peak, step)
            turn += 1
            while waiting[rank] and waiting[rank][0][0] <= turn:
                codec.absorb(states[rank], waiting[rank].popleft()[1])
            payload = codec.emit(states[rank], 0, params[rank].size)
            if payload is not None:
                sent += len(payload)
                for other in range(workers):
                    if other != rank:
                        waiting[other].append((turn + workers * late, payload))
            if step % RETUNE == RETUNE - 1:
                codec.retune(states[rank], workers, late + 1.0)
        if step in (0, 5, 15, 30, 60, 100, 150) or step == task.steps - 1:
            one = states[0]
            gain = one.quantum / max(one.limit, 1e-30) * workers
            trace.append(f"{step}:{one.limit:.2g},{100 * one.density:.2g}%,{gain:.2g}")
    last = [codec.flush(state) for state in states]
    for rank, state in enumerate(states):
        for _, payload in waiting[rank]:
            codec.absorb(state, payload)
        for payload in (payload for other, payloads in enumerate(last) if other != rank for payload in payloads):
            codec.absorb(state, payload)
    sent += sum(len(payload) for payloads in last for payload in payloads)
    shared = [codec.shared(state).tobytes() for state in states]
    params[0].vector[:] = codec.shared(states[0])
    return Result(
        score(task, models[0]),
        sent / (workers * task.steps),
        4.0 * params[0].size,
        time.process_time() - begun,
        all(one == shared[0] for one in shared),
        trace,
    )
