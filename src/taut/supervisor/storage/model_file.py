"""The final model on disk: ``model.safetensors``, and ``model.pt`` for ``torch.load``, both or neither. An ensemble
has ``model-0.safetensors`` and so on, and ``ensemble.json``, which lists them."""

from __future__ import annotations

import contextlib
import json
import mmap
import tempfile
from collections.abc import Mapping
from pathlib import Path

from taut.core.files import AtomicFile, write_atomically
from taut.core.handover import flaw
from taut.errors import MalformedMessage, StorageFailed
from taut.supervisor.storage.store_writer import plain

INDEX = "ensemble.json"


def write_index(run_dir: Path, index: Mapping[str, object]) -> Path:
    """Write the list of an ensemble's models, and return its path. Raise StorageFailed like `write_model`."""
    final = run_dir / INDEX
    text = json.dumps(plain(index), indent=2) + "\n"
    try:
        write_atomically(final, text.encode())
    except OSError as error:
        raise StorageFailed(f"the index could not be written to {run_dir}: {error}") from error
    return final


def prepare_to_write() -> None:
    """Import torch, which takes long, ahead of the model. Should that fail, it is tried again then, and told."""
    with contextlib.suppress(Exception):
        import safetensors.torch  # noqa: F401


def write_model(run_dir: Path, data: bytes, name: str = "model") -> Path:
    """Write ``data`` (a safetensors file) and the same tensors as a plain ``state_dict``; return the path of the first.

    Each goes to a temporary file first, is synced, and is renamed when both are complete. Raises MalformedMessage when
    ``data`` is no safetensors file, StorageFailed when the disk is full or not writable: then the safetensors file is in
    a new temporary folder, if that has room, and the error says where.
    """
    return _save(run_dir, name, data, None)


def take_model(run_dir: Path, written: Path, nbytes: int, checksum: int, name: str = "model") -> Path:
    """Do what ``write_model`` does, with the file that a worker of this machine has ``written``: it takes the name. Raise
    MalformedMessage also if it is not of this size and checksum."""
    why = flaw(written, nbytes, checksum)
    if why:
        raise MalformedMessage(why)
    with written.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _save(run_dir, name, data, written)


def _save(run_dir: Path, name: str, data: bytes | mmap.mmap, written: Path | None) -> Path:
    """Save ``data``, which is in the file ``written`` already if there is one."""
    model, state_dict = run_dir / f"{name}.safetensors", run_dir / f"{name}.pt"
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load, load_file  # imports torch, so only when a run has its model
    except (ImportError, OSError) as error:  # without descriptors nothing can be imported
        rescued = _rescued(run_dir, model.name, data)
        raise StorageFailed(f"the model could not be written to {run_dir}: {error}{rescued}") from error
    try:
        tensors = load_file(written) if written is not None else load(bytes(data))
    except (SafetensorError, ValueError, KeyError) as error:
        raise MalformedMessage(f"the uploaded model is no safetensors file: {error}") from error

    try:
        with AtomicFile(model, written=written) as safe, AtomicFile(state_dict) as pickled:
            import torch

            if written is None:
                safe.write(data)
            torch.save(tensors, pickled.file)
            safe.sync()  # the other file takes its name first, but not before this one is complete
    except (OSError, RuntimeError) as error:  # torch turns some failures to write into RuntimeError
        rescued = _rescued(run_dir, model.name, data)
        raise StorageFailed(f"the model could not be written to {run_dir}: {error}{rescued}") from error
    return model


def _rescued(run_dir: Path, file_name: str, data: bytes | mmap.mmap) -> str:
    """Write the model to a temporary folder, and say where: one full disk must not lose days of training."""
    folder = None
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"taut-{run_dir.name}-"))  # for this user alone
        final = folder / file_name
        write_atomically(final, data)
    except OSError as error:
        if folder is not None:
            folder.rmdir()
        return f"; nor to {tempfile.gettempdir()}: {error.strerror or error}"
    return f"; it is in {final} instead"
