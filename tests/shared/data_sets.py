"""Small data sets in the forms of the public ones, written into a folder."""

from __future__ import annotations

import gzip
import io
import tarfile
import wave
from pathlib import Path

import numpy as np

from taut.data.catalogue import CIFAR_FILE, IDX


def idx(array: np.ndarray) -> bytes:
    """An array of bytes in IDX form."""
    return b"\0\0\x08" + bytes([array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def write_mnist(folder: Path, train: int, test: int) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, size, shape) for n in (train, test) for size, shape in ((256, (n, 28, 28)), (10, n))]
    for name, array in zip(IDX, arrays, strict=True):
        (folder / name).write_bytes(gzip.compress(idx(array), mtime=0))


def write_cifar(folder: Path, each: int, **replaced: bytes) -> None:
    """Six files of ``each`` records; ``replaced``: the content of one, by its name without `.bin`."""
    rng = np.random.default_rng(0)
    with tarfile.open(folder / CIFAR_FILE, "w:gz") as archive:
        for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
            labels, images = rng.integers(0, 10, (each, 1)), rng.integers(0, 256, (each, 3072))
            data = replaced.get(name, np.concatenate([labels, images], axis=1).astype(np.uint8).tobytes())
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def write_recordings(folder: Path, each: int) -> None:
    """Recordings as in the Free Spoken Digit Dataset, of two digits."""
    rng = np.random.default_rng(0)
    for number in range(2 * each):
        with wave.open(str(folder / f"{number % 2}_anna_{number}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(rng.integers(-3000, 3000, 3000).astype("<i2").tobytes())
