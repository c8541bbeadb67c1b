"""A worker's part of a checkpoint as one file: tensors in the format of safetensors, all else as JSON in its header.

A file gets its name only when it is complete and on disk. It is checked by its hash, which is in the manifest. Nothing is
ever unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load

from taut.core.checkpoint_names import DIGEST_NBYTES
from taut.errors import StorageFailed
from taut.worker.checkpoints.state_tree import unfold
from taut.worker.checkpoints.writer_process import WriterProcess, WriterProcessLost
from taut.worker.checkpoints.writer_program import HashedFile
from taut.worker.model.tensor_file import Tensors, file_views
from taut.worker.optimizer.joined import Optimizer

VERSION = 1
CHUNK_NBYTES = 1 << 22


def write_views(
    path: Path, views: list[memoryview], by: WriterProcess | None = None, within_s: float | None = None
) -> tuple[int, str]:
    """Write ``path`` whole or not at all; return its size and its hash. Raises ``StorageFailed`` if the disk fails.
    ``by``: a process that writes it and gives way to others, the less the more of ``within_s`` has passed; without one,
    this thread writes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "worker-0.safetensors"
    ...     nbytes, _ = write_views(path, part_views({"steps": 3}, {"w": torch.ones(2)}))
    ...     part = read_part(path)
    >>> part.document["steps"], part.tensor("w").tolist()
    (3, [1.0, 1.0])
    """
    nbytes = sum(map(len, views))
    if by is not None:
        with contextlib.suppress(WriterProcessLost):
            return nbytes, by.write(path, views, DIGEST_NBYTES, within_s)
    try:
        file = HashedFile(os.path.abspath(path), DIGEST_NBYTES)
        try:
            for piece in _pieces(views):
                file.add(piece)
            return nbytes, file.finish()
        except OSError:
            file.abandon()
            raise
    except OSError as error:
        raise StorageFailed(f"{path} could not be written: {error.strerror or error}") from error


def unpacked(data: bytes | memoryview) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return the document and the tensors in joined ``part_views``. Raises one of several errors for other ``data``."""
    whole = bytes(data)
    return _checked(whole, None), load(whole)


def part_views(document: Mapping[str, Any], tensors: Tensors) -> list[memoryview]:
    """Return the contents of the file, in order; the tensors must be in host memory. Their bytes are not read yet."""
    return file_views(tensors, {"taut": json.dumps({"version": VERSION, **document})})


def _pieces(views: list[memoryview]) -> Iterator[memoryview]:
    """Yield pieces of the views: writing and hashing let other threads run meanwhile, and none takes long."""
    for view in views:
        for lo in range(0, len(view), CHUNK_NBYTES):
            with view[lo : lo + CHUNK_NBYTES] as piece:
                yield piece


class Part:
    """A worker's part of a checkpoint, checked. Tensors are read on demand."""

    def __init__(self, path: Path, document: dict[str, Any], file: Any) -> None:
        self.path, self.document, self._file = path, document, file
        self.names = frozenset(file.keys())

    def tensor(self, name: str) -> torch.Tensor:
        if name not in self.names:
            raise StorageFailed(f"{self.path} holds no tensor {name!r}")
        found: torch.Tensor = self._file.get_tensor(name)
        return found

    def tree(self, name: str, otherwise: Any = None) -> Any:
        """Return the tree that was put into the document under this name (``state_tree.py``), with its tensors."""
        found = self.document.get(name)
        return otherwise if found is None else unfold(found, self.tensor)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the ``state_dict`` for an optimizer like the one that was saved."""
        found: dict[str, Any] = self.tree("optimizer")
        return found


def read_part(path: Path, digest: str | None = None) -> Part:
    """Return the part in ``path``. Raises ``StorageFailed`` if it cannot be read or has another ``digest``."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            document = _checked(data, digest)
        return Part(path, document, safe_open(path, framework="pt"))
    except OSError as error:
        raise StorageFailed(f"{path} could not be read: {error.strerror or error}") from error
    except (SafetensorError, struct.error, KeyError, TypeError, ValueError) as error:
        raise StorageFailed(f"{path} is damaged ({str(error) or type(error).__name__})") from None


def _checked(data: mmap.mmap | bytes, digest: str | None) -> dict[str, Any]:
    """Return the document in the file, whose checksum is right; raise one of several errors if it is not."""
    if digest is not None:
        hashed = hashlib.blake2b(digest_size=DIGEST_NBYTES)
        with memoryview(data) as whole:
            for piece in _pieces([whole]):
                hashed.update(piece)
        if hashed.hexdigest() != digest:
            raise ValueError("its checksum differs")
    (size,) = struct.unpack_from("<Q", data)
    document: dict[str, Any] = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["taut"])
    if document.get("version") != VERSION:
        raise ValueError(f"it has format {document.get('version')}, and this version of taut reads {VERSION}")
    return document
