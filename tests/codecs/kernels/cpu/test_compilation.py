"""Kernels are compiled once per machine, and before they are needed: each codec names those that it uses."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest

from taut.codecs import merge, parse, snap
from taut.codecs.kernels.cpu import compilation
from taut.codecs.kernels.cpu.compilation import Kernel, find
from taut.codecs.registry import REGISTRY
from taut.codecs.vector_codec import VectorCodec
from taut.codecs.wire.residual import read_residual, residual_parts
from taut.errors import Misuse

SHAPES = [(3 * 4096,), (70, 50), (5,)]
SIZE = sum(int(np.prod(shape)) for shape in SHAPES)
SMALL = ("kernels.add_to_sketch", "kernels._add_values")  # the quickest to compile
COUNTING = f"""
from numba.core import event
from taut.codecs.kernels.cpu.compilation import compile_missing, missing
class Count(event.Listener):
    compiled = []
    def on_start(self, event):
        self.compiled.append(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event): pass
event.register("numba:compile", Count())
print(len(missing({SMALL})), "missing")
compile_missing({SMALL}, print)
print(sorted(Count.compiled))
"""


def rehearse(spec):
    """Do all that a worker does with a codec: encode, absorb, merge, flush, hand on, and the sums of `sync`."""
    codec, rng = parse(spec), np.random.default_rng(0)
    first = rng.standard_normal(SIZE).astype(np.float32)
    grid = snap(first, [int(np.prod(shape)) for shape in SHAPES])
    weights = [first.copy(), first.copy(), first.copy()]
    states = [codec.start(w, 2, grid, shapes=SHAPES, seed=rank) for rank, w in enumerate(weights)]
    for share, turns in ((0.001, 4), (0.1, 4), (1.0, 24), (0.01, 4)):
        for turn in range(turns):
            hi = SIZE if codec.whole or turn % 2 else SIZE // 2 // 64 * 64
            sent = []
            for rank in (0, 1):
                weights[rank][rng.random(SIZE) < share] += np.float32(0.5 + rank / 16)
                sent.append(codec.emit(states[rank], 0, hi))
                codec.retune(states[rank], 2, 3.0)
            for rank, payload in enumerate(sent):
                if payload:
                    codec.absorb(states[1 - rank], payload)
            if all(sent):
                codec.absorb(states[2], merge(sent, size=SIZE))
    for payload in codec.flush(states[0]):
        codec.absorb(states[1], payload)
    for payload in residual_parts(codec, states[0]):
        codec.inherit(states[1], *read_residual(payload, SIZE))
    codec.emit(states[1], 0, SIZE)
    coder, out = VectorCodec(codec, SIZE, SHAPES, 0, 2), np.zeros(SIZE, np.float32)
    coder.total([coder.encode(first), coder.encode(-first)], [1.0, 1.0], out)
    try:
        coder.difference(first)
    except Misuse:
        assert codec.exact or codec.name == "dense"


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_a_codec_names_the_kernels_that_it_uses(name, monkeypatch):
    called = set()
    call = Kernel.__call__
    monkeypatch.setattr(Kernel, "__call__", lambda self, *given: called.add(self) or call(self, *given))
    rehearse(name)
    assert called == set(find(parse(name).kernels))


def compiled_in(folder, code=COUNTING):
    environment = {"PATH": "", "HOME": str(folder), "TMPDIR": str(folder), "NUMBA_CACHE_DIR": str(folder / "cache")}
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)


def said(process):
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return text.splitlines()


def test_processes_that_start_at_once_compile_a_kernel_once_together(tmp_path):
    """And one that starts later compiles nothing, and has nothing to say."""
    both = [compiled_in(tmp_path), compiled_in(tmp_path)]
    lines = [said(each) for each in both]
    assert sorted(eval(lines[0][-1]) + eval(lines[1][-1])) == ["_add_values", "add_to_sketch"]
    assert "compiling kernels, once per machine: 2 of 2" in lines[0] + lines[1]
    assert said(compiled_in(tmp_path)) == ["0 missing", "[]"]


def test_forks_compile_and_the_parent_loads(tmp_path):
    code = f"""
from numba.core import event
from taut.engines.kernels import prepare_kernels
import taut.config, taut.engines.kernels
taut.engines.kernels.cores = lambda: 2
class Refuse(event.Listener):
    def on_start(self, event): print("compiles in the parent", flush=True)
    def on_end(self, event): pass
def tell(done, wanted):
    print(done, wanted, flush=True)
    if done == wanted: event.register("numba:compile", Refuse())
prepare_kernels({SMALL}, tell)
prepare_kernels({SMALL}, tell)
"""
    assert said(compiled_in(tmp_path, code)) == ["0 2", "1 2", "2 2", "2 2"]


def test_without_a_folder_that_can_be_written_kernels_are_compiled_and_not_kept(monkeypatch):
    """Numba refuses to cache where no folder can be written: a private one is taken, or none at all."""
    real = compilation.numba.njit

    def refuses(cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return real(cache=False, **options)

    monkeypatch.setattr(compilation.numba, "njit", refuses)
    monkeypatch.setattr(compilation, "private_folder", lambda: None)
    twice = compilation.kernel("int64(int64)")(lambda number: 2 * number)
    assert not twice.load()
    assert not twice.kept
    assert twice(21) == 42


def test_private_folder_is_ours_alone(monkeypatch, tmp_path):
    monkeypatch.setattr(compilation.tempfile, "gettempdir", lambda: str(tmp_path))
    path = compilation.private_folder()
    assert path is not None
    (tmp_path / path.rsplit("/", 1)[1]).chmod(0o777)
    assert compilation.private_folder() is None


def test_it_can_be_imported_where_posix_is_not(monkeypatch, tmp_path):
    """Windows has no fcntl, no fork and no numbers of users."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setattr(compilation.tempfile, "gettempdir", lambda: str(tmp_path))
    for name in ("register_at_fork", "getuid"):
        monkeypatch.delattr(os, name)
    spec = importlib.util.spec_from_file_location("compilation_without_posix", compilation.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    locked = []
    monkeypatch.setattr(module, "lock_file", lambda file, wait: locked.append(wait))
    with module._locked("a kernel"):
        assert locked == [True]
    assert module.private_folder() == str(tmp_path / "taut-kernels")
