"""How close do the GPU encoders come to the memory's bandwidth?

256M float32, about 0.1% of them sent, in turn with ``r.add_(g)`` on vectors of the same size; CUDA events, medians
of 20 (torch operations: of 3). Bars are on the device's part; topk's is on everything, its wait and the trip included.
A ratio is an encoder's bandwidth, at the bytes that it must move, over that of ``r.add_(g)`` (12 bytes an element).
"device" is everything up to the payload in device memory, "with the trip" ends when the payload is on the host. The
device is kept busy for a moment before the clock starts, as it is in training, so that launching costs no time;
"host" rows show what launching costs. Correctness comes first: every encoder against its torch operations (for int8,
1-bit and top-k, what error feedback does without these kernels), bit for bit.

    PYTHONPATH=src python3 bench/codec_gpu.py [--quick] [--tune] [--only tether]

Needs torch, triton and numpy only. With TRITON_INTERPRET=1 and no GPU it is a rehearsal on a few elements: no bars.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from report import Row, arguments, report, row
from taut.codecs.algorithms.int8 import Int8
from taut.codecs.algorithms.onebit import OneBit
from taut.codecs.algorithms.topk import TopK
from taut.codecs.compressor import Compressor, CompressorState
from taut.codecs.kernels import torch_ops
from taut.codecs.kernels.triton import blocks as block_kernels
from taut.codecs.kernels.triton import kernels
from taut.codecs.kernels.triton import launch as sparse_kernels
from taut.codecs.kernels.triton.blocks import launch_levels8, launch_onebit
from taut.codecs.kernels.triton.buffers import scratch
from taut.codecs.kernels.triton.launch import Tile, launch_words, room_for
from taut.codecs.kernels.triton.topk import launch_topk
from taut.codecs.wire.sign_list import room_for_words

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda", 0) if GPU else torch.device("cpu")
DENSITY, SHARE, TAIL = 0.001, 0.25, 3.2905  # a normal variable is beyond TAIL deviations with probability DENSITY
LIMIT, COLUMN = 2.0**-7, 2048
BUSY_CYCLES = 2_000_000  # about a millisecond
SPARSE_TILES = [(1024, 1), (1024, 2), (2048, 2), (2048, 4), (4096, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16)]
LEVEL_TILES = [(512, 1), (1024, 1), (1024, 2), (2048, 1), (2048, 2), (2048, 4), (4096, 4), (4096, 8), (8192, 8)]


class Vectors:
    """w, b and r, and where they were before an update. ``strays``: the deviation of w - b."""

    def __init__(self, size: int, strays: float) -> None:
        made = torch.Generator(DEVICE).manual_seed(0)
        self.base = torch.randn(size, generator=made, device=DEVICE)
        self.moved = torch.randn(size, generator=made, device=DEVICE).mul_(strays).add_(self.base)
        self.w, self.b, self.r = self.moved.clone(), self.base.clone(), torch.zeros_like(self.base)
        self.out = room_for_words(size)

    def reset(self) -> None:
        self.w.copy_(self.moved)
        self.b.copy_(self.base)
        self.r.zero_()

    @property
    def all(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.w, self.b, self.r

    @property
    def size(self) -> int:
        return len(self.w)


@dataclass(frozen=True)
class Subject:
    """An encoder: on the device alone, with the trip to the host, and as torch operations."""

    name: str
    nbytes: float  # that must be moved for an element
    bar: float
    device: Callable[[Vectors], object]
    whole: Callable[[Vectors], Any]
    plain: Callable[[Vectors], Any]
    tiles: dict[str, Tile]
    tile: str
    grid: list[tuple[int, int]]


def signs_of(module: Any, name: str) -> Callable[[Vectors], Any]:
    """tether or threshold of ``module`` with this benchmark's settings."""

    def run(v: Vectors) -> Any:
        if name == "tether":
            return module.tether(v.w, v.b, 0, v.size, LIMIT, LIMIT / 4, v.out)
        return module.threshold(*v.all, 0, v.size, LIMIT * SHARE, SHARE, v.out)

    return run


def fused(compressor: Compressor) -> Callable[[Vectors], Any]:
    """What error feedback does on a GPU: the body of the payload."""

    def run(v: Vectors) -> Any:
        piece = compressor.fused(*v.all, SHARE, 0, CompressorState(v.size))
        return in_operations(compressor)(v) if piece is None else piece.body

    return run


def in_operations(compressor: Compressor) -> Callable[[Vectors], Any]:
    """What error feedback does elsewhere, in torch operations."""

    def run(v: Vectors) -> Any:
        torch_ops.grow(v.r, v.w, v.b, SHARE)
        piece = compressor.compress(v.r, 0, CompressorState(v.size))
        assert piece is not None
        torch_ops.take(*v.all, piece.q, piece.indices)
        return piece.body

    return run


def device_signs(name: str) -> Callable[[Vectors], object]:
    def run(v: Vectors) -> object:
        if name == "tether":
            job = kernels.tether_scan(v.w, v.b, 0, v.size, LIMIT, LIMIT / 4)
        else:
            job = kernels.threshold_scan(*v.all, 0, v.size, LIMIT * SHARE, SHARE)
        kept = scratch(DEVICE)
        return launch_words(job, kept, room_for(kept, v.size, v.size // 16))

    return run


def device_topk(v: Vectors) -> object:
    return launch_topk(*v.all, SHARE, math.ceil(DENSITY * v.size), scratch(DEVICE))


def device_levels8(v: Vectors) -> object:
    return launch_levels8(*v.all, SHARE, 256, scratch(DEVICE))


def device_onebit(v: Vectors) -> object:
    return launch_onebit(*v.all, SHARE, COLUMN, scratch(DEVICE))


def subjects() -> list[Subject]:
    sparse, blocks = sparse_kernels.TILES, block_kernels.TILES
    onebit_tiles = [(COLUMN, warps) for warps in (1, 2, 4, 8)]

    def signs(name: str, nbytes: float, tile: str) -> Subject:
        both = (signs_of(module, name) for module in (kernels, torch_ops))
        return Subject(name, nbytes, 0.9, device_signs(name), *both, sparse, tile, SPARSE_TILES)

    def subject(compressor: Compressor, nbytes: float, bar: float, device: Any, *tuning: Any) -> Subject:
        both = fused(compressor), in_operations(compressor)
        return Subject(compressor.name, nbytes, bar, device, *both, *tuning)

    return [
        signs("tether", 8, "tether"),
        signs("threshold", 20, "residual"),
        subject(TopK(DENSITY), 20, 0.4, device_topk, sparse, "residual", []),
        subject(Int8(), 25 + 4 / 256, 0.8, device_levels8, blocks, "levels8", LEVEL_TILES),
        subject(OneBit(COLUMN), 24 + 1 / 8 + 8 / COLUMN, 0.8, device_onebit, blocks, "onebit", onebit_tiles),
    ]


def attempt(name: str, function: Callable[[], Any]) -> Any:
    """What ``function`` gives; a failure is printed, and the benchmark goes on."""
    try:
        return function()
    except Exception:
        print(f"FAILED: {name}\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        return None


def milliseconds(function: Callable[[], object], prepare: Callable[[], object]) -> float:
    prepare()
    if not GPU:
        start_s = time.perf_counter()
        function()
        return 1e3 * (time.perf_counter() - start_s)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(BUSY_CYCLES)
    start.record()
    function()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def host_ms(function: Callable[[], object], prepare: Callable[[], object]) -> float:
    """How long the host takes; the device has nothing else to do."""
    prepare()
    if GPU:
        torch.cuda.synchronize()
    start_s = time.perf_counter()
    function()
    return 1e3 * (time.perf_counter() - start_s)


def flat(result: Any) -> list[bytes]:
    """Everything in an encoder's result, as bytes."""
    parts = result if isinstance(result, tuple) else (result.words, result.bits, np.array(result.count))
    return [b"" if part is None else np.ascontiguousarray(part).tobytes() for part in parts]


def same_bits(ours: Vectors, theirs: Any) -> bool:
    """Zeros of either sign are not the same here."""
    pairs = zip(ours.all, theirs, strict=True)
    return all(torch.equal(x.view(torch.int32).to(y.device), y.view(torch.int32)) for x, y in pairs)


def agrees(subject: Subject, v: Vectors, repetitions: int) -> bool:
    """The same payload and the same vectors as torch operations, every time: a race would show as a difference."""
    v.reset()
    expected = flat(subject.plain(v))
    after = [x.clone() for x in v.all]
    for _ in range(repetitions):
        v.reset()
        found = flat(subject.whole(v))
        if found != expected or not same_bits(v, after):
            return False
    return True


def agreements(subject: Subject, sizes: list[int]) -> Row:
    """Over sizes and densities, the last of each with almost everything sent; and against torch on the CPU."""
    good = total = 0
    for size in sizes:
        for strays in (LIMIT / TAIL, LIMIT / 1.7, 4 * LIMIT, LIMIT / TAIL):
            total += 1
            right = bool(attempt(f"{subject.name} of {size}", lambda s=size, d=strays: agrees(subject, Vectors(s, d), 2)))
            good += right
            if not right:
                print(f"DIFFERS: {subject.name}, {size} elements, strays of {strays:g}", file=sys.stderr, flush=True)
    on_cpu = bool(attempt(f"{subject.name} against the CPU", lambda: agrees_with_cpu(subject)))
    return row(f"{subject.name}: same bits as torch operations", (good + on_cpu) / (total + 1), "of cases", at_least=1.0)


def agrees_with_cpu(subject: Subject) -> bool:
    """Torch on the CPU knows nothing of fused multiply-add or approximate division."""
    v = Vectors(1_000_003 if GPU else 3003, LIMIT / TAIL)
    found = flat(subject.whole(v))
    there = object.__new__(Vectors)
    there.w, there.b, there.r = v.moved.cpu(), v.base.cpu(), torch.zeros(v.size)
    there.out = room_for_words(v.size)
    expected = flat(subject.plain(there))
    return found == expected and same_bits(v, there.all)


def waits_for_nothing(subject: Subject, v: Vectors) -> bool:
    """Torch raises where an operation waits for the device before the payload is there."""
    v.reset()
    torch.cuda.set_sync_debug_mode("error")
    try:
        subject.device(v)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return True


def tune(subject: Subject, v: Vectors) -> None:
    """Try the grid of tiles, and keep the best for the figures below."""
    found: dict[Tile, float] = {}
    for elements, warps in subject.grid:
        tile = subject.tiles[subject.tile] = Tile(elements, warps)
        run = lambda: statistics.median(milliseconds(lambda: subject.device(v), v.reset) for _ in range(7))  # noqa: E731
        took = attempt(f"{subject.name} with {tile}", lambda run=run: (subject.device(v), run())[1])
        if took is not None:
            found[tile] = took
            print(f"tune {subject.name:10} {tile.elements:6} elements {tile.warps:2} warps {took:8.4f} ms", flush=True)
    if found:
        best = min(found, key=found.__getitem__)
        subject.tiles[subject.tile] = best
        print(f"best {subject.name:10} {best.elements:6} elements {best.warps:2} warps {found[best]:8.4f} ms", flush=True)


def measure(chosen: list[Subject], v: Vectors, repetitions: int) -> dict[str, list[float]]:
    """Milliseconds, all in turn."""
    r, g = torch.zeros_like(v.w), torch.full_like(v.w, 1e-3)
    times: dict[str, list[float]] = {}
    for turn in range(repetitions + 2):
        runs: list[tuple[str, Callable[[], object]]] = [("add", lambda: r.add_(g))]
        for one in chosen:
            runs += [(f"{one.name} device", lambda one=one: one.device(v))]
            runs += [(f"{one.name} whole", lambda one=one: one.whole(v))]
            if turn < 5:
                runs += [(f"{one.name} plain", lambda one=one: one.plain(v))]
        for name, run in runs:
            took = attempt(name, lambda run=run: milliseconds(run, v.reset))
            if took is not None and turn >= 2:  # the first two compile and make the buffers
                times.setdefault(name, []).append(took)
        for one in chosen:
            took = attempt(f"{one.name} host", lambda one=one: host_ms(lambda: one.device(v), v.reset))
            if took is not None and turn >= 2:
                times.setdefault(f"{one.name} host", []).append(took)
    return times


def figures(chosen: list[Subject], size: int, times: dict[str, list[float]]) -> list[Row]:
    middle = {name: statistics.median(each) for name, each in times.items()}
    gpu = torch.cuda.get_device_name() if GPU else "interpreter"
    add = 12 * size / middle["add"] / 1e9  # TB/s: bytes a millisecond / 10^9
    rows = [row(f"r.add_(g), {size} float32, {gpu}", add, "TB/s")]
    for one in chosen:
        for kind, label in (("device", "device"), ("whole", "with the trip"), ("plain", "torch operations")):
            took = middle.get(f"{one.name} {kind}")
            if took is None:
                rows.append(Row(f"{one.name}, {label}: no figure, see above", 0.0, "", "to run", False))
                continue
            ratio = one.nbytes * size / took / 1e9 / add
            barred = GPU and kind == ("whole" if one.name == "topk" else "device")
            name = f"{one.name}, {label}: {took:.4g} ms, of r.add_(g)'s bandwidth"
            rows.append(row(name, ratio, "x", at_least=one.bar if barred else None))
        if f"{one.name} host" in middle:
            rows.append(row(f"{one.name}, host time to launch an update", middle[f"{one.name} host"], "ms"))
    return rows


def main(args: argparse.Namespace) -> None:
    if not GPU and os.environ.get("TRITON_INTERPRET") != "1":
        sys.exit("no GPU here; for a rehearsal without figures, set TRITON_INTERPRET=1")
    args.quick = args.quick or not GPU or bool(args.only)
    size = (1 << 24 if args.quick else 1 << 28) if GPU else 1 << 14
    chosen = [one for one in subjects() if args.only in (None, one.name)]
    sizes = [1, 3, 4097, 1_000_003, 20_000_000] if GPU else [1, 5000]
    rows = [agreements(one, sizes) for one in chosen]
    for each in rows:
        print(f"{each.name}: {each.value:g}", flush=True)
    v = Vectors(size, LIMIT / TAIL)
    for one in chosen if args.tune else []:
        attempt(f"tuning {one.name}", lambda one=one: tune(one, v))
    for one in chosen:
        right = bool(attempt(f"{one.name} of {size}", lambda one=one: agrees(one, v, 1)))
        rows.append(row(f"{one.name}: same bits at full size", float(right), "", at_least=1.0))
        if GPU:
            free = bool(attempt(f"{one.name} without a wait", lambda one=one: waits_for_nothing(one, v)))
            rows.append(row(f"{one.name}: nothing waits before the payload", float(free), "", at_least=1.0))
    rows += attempt("figures", lambda: figures(chosen, size, measure(chosen, v, 20 if GPU else 1))) or []
    if GPU:
        rows.append(row("memory kept by the encoders", scratch(DEVICE).nbytes / 4 / size, "copies of the vector"))
    report("codec_gpu", rows, args)


if __name__ == "__main__":
    parser = arguments(__doc__ or "")
    parser.add_argument("--tune", action="store_true", help="try other tiles first, print them, use the best")
    parser.add_argument("--only", help="one encoder; nothing is written to results/")
    main(parser.parse_args())
