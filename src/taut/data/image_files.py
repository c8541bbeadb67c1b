"""Images and labels as NumPy arrays, from the files that ``taut data get`` leaves: IDX (MNIST and its like), and the
binary version of CIFAR-10. Neither can run code, and lengths are checked before anything is read."""

from __future__ import annotations

import gzip
import math
import tarfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from taut.data.catalogue import CIFAR_FILE, IDX
from taut.errors import Misuse

Array = npt.NDArray[np.uint8]
LIMIT_NBYTES = 1 << 32  # of one array
CIFAR_SHAPE = (3, 32, 32)
CIFAR_RECORD = 1 + math.prod(CIFAR_SHAPE)  # a label, then the image
CIFAR_RECORDS = 10_000  # of one file


def load(folder: str | Path) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return the images and labels to train on, and those to test with, of a data set in ``folder``.

    Images are bytes, of the shape (samples, 28, 28) for MNIST and its like, and (samples, 3, 32, 32) for CIFAR-10.

        (x, y), (x_test, y_test) = taut.data.load("data/mnist")
    """
    where = Path(folder)
    if (where / CIFAR_FILE).is_file():
        return _cifar(where / CIFAR_FILE)
    files = [
        next((where / each for each in (name, name.removesuffix(".gz")) if (where / each).is_file()), None)
        for name in IDX
    ]
    if None in files:
        expected = f"the files of MNIST ({', '.join(IDX[:2])} ...) or of CIFAR-10 ({CIFAR_FILE})"
        raise Misuse(f"the data folder {str(where)!r}", expected, f"try: taut data get mnist --to {where}")
    x, y, x_test, y_test = (read_idx(file) for file in files if file is not None)
    for images, labels in ((x, y), (x_test, y_test)):
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise Misuse(f"{where}: images {images.shape}, labels {labels.shape}", "as many labels as images")
    return (x, y), (x_test, y_test)


def read_idx(path: str | Path) -> Array:
    """Read an array of bytes in IDX form, compressed (``.gz``) or not.

    The form: two zeros, the type (8: bytes), the number of dimensions, each of them in four bytes, then the bytes.
    """
    opened: Any = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "rb") as file:
        try:
            return _idx(file, str(path))
        except (EOFError, OSError, zlib.error) as error:
            raise Misuse(str(path), "a whole IDX file", f"fetch it again ({error})") from None


def _idx(file: IO[bytes], name: str) -> Array:
    start = file.read(4)
    if len(start) < 4 or start[:3] != b"\0\0\x08" or not 1 <= start[3] <= 4:
        raise Misuse(f"{name}, which begins with {start!r}", "bytes in IDX form: 00 00 08 and the number of dimensions")
    shape = np.frombuffer(_exactly(file, 4 * start[3], name), ">u4").astype(np.int64).tolist()
    nbytes = math.prod(shape)
    if nbytes > LIMIT_NBYTES:
        raise Misuse(f"{name} of the shape {shape}", f"at most {LIMIT_NBYTES:,} bytes")
    data = _exactly(file, nbytes, name)
    if file.read(1):
        raise Misuse(f"{name}", f"the {nbytes:,} bytes of its shape {shape}, and no more")
    return np.frombuffer(data, np.uint8).reshape(shape).copy()


def _exactly(file: IO[bytes], nbytes: int, name: str) -> bytes:
    data = file.read(nbytes)
    if len(data) < nbytes:
        raise Misuse(f"{name}, which is cut off", f"{nbytes:,} bytes more, not {len(data):,}", "fetch it again")
    return data


def _cifar(path: Path) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Read the archive's six files without unpacking it."""
    wanted = {*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"}
    try:
        with tarfile.open(path, "r:gz") as archive:
            names = ((Path(member.name).name, member) for member in archive if member.isreg())
            found = {name: _records(archive, member) for name, member in names if name in wanted}
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise Misuse(str(path), "a whole tar archive", f"fetch it again ({error})") from None
    if missing := wanted - set(found):
        raise Misuse(f"{path} without {', '.join(sorted(missing))}", "the binary version of CIFAR-10")
    test = found.pop("test_batch.bin")
    train = np.concatenate([found[name] for name in sorted(found)])
    return _split_cifar(train), _split_cifar(test)


def _records(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Array:
    most = CIFAR_RECORD * CIFAR_RECORDS
    if member.size > most or member.size % CIFAR_RECORD:
        raise Misuse(f"{member.name} of {member.size:,} bytes", f"whole records, at most {most:,} bytes")
    content = archive.extractfile(member)
    assert content is not None
    return np.frombuffer(content.read(), np.uint8).reshape(-1, CIFAR_RECORD)


def _split_cifar(records: Array) -> tuple[Array, Array]:
    return records[:, 1:].reshape(-1, *CIFAR_SHAPE).copy(), records[:, 0].copy()
