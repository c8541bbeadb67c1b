"""The public data sets that ``taut data get`` fetches: where their files are, how large they are, and their checksums.

Checksums are those that torchvision, torchaudio and TensorFlow Datasets publish. CIFAR-10 is the binary version: the
Python version is a pickle, and unpickling runs whatever the file says.
"""

from __future__ import annotations

from dataclasses import dataclass

from taut.errors import Misuse
from taut.specs import did_you_mean


@dataclass(frozen=True)
class DataFile:
    """One file of a data set. ``checksum``: ``md5:...`` or ``sha256:...``, of the file as it is served. ``sources``:
    addresses that serve it, tried in turn."""

    name: str
    nbytes: int
    checksum: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class DataSet:
    """A data set. ``archive``: its one file is a tar archive of recordings, which is unpacked beside it."""

    name: str
    what: str
    files: tuple[DataFile, ...]
    archive: bool = False

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self.files)


IDX = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def _idx(name: str, what: str, bases: tuple[str, ...], files: tuple[tuple[int, str], ...]) -> DataSet:
    """Return a data set in the form of MNIST: four files that are served under each of ``bases``."""
    each = zip(IDX, files, strict=True)
    made = [DataFile(file, size, f"md5:{md5}", tuple(base + file for base in bases)) for file, (size, md5) in each]
    return DataSet(name, what, tuple(made))


MNIST = _idx(
    "mnist",
    "handwritten digits, 60,000 and 10,000 images of 28x28",
    ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    (
        (9912422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        (28881, "d53e105ee54ea40749a09fcbcd1e9432"),
        (1648877, "9fb629c4189551a2d022fa330f9573f3"),
        (4542, "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
)
FASHION = _idx(
    "fashion-mnist",
    "articles of clothing, in the form of MNIST",
    (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ),
    (
        (26421880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        (29515, "25c81989df183df01b3e8a0aad5dffbe"),
        (4422102, "bef4ecab320f06d8554ea6380940ec79"),
        (5148, "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
)
KUZUSHIJI = _idx(
    "kmnist",
    "Japanese characters in cursive, in the form of MNIST",
    ("http://codh.rois.ac.jp/kmnist/dataset/kmnist/",),
    (
        (18165135, "bdb82020997e1d708af4cf47b453dcf7"),
        (29497, "e144d726b3acfaa3e44228e80efcd344"),
        (3041136, "5c965bf0a639b31b8f53240b1b52f4d7"),
        (5120, "7320c461ea6c1c855c0b718fb2a4b134"),
    ),
)
CIFAR_FILE = "cifar-10-binary.tar.gz"
CIFAR = DataSet(
    "cifar10",
    "color images of ten classes, 50,000 and 10,000 of 32x32",
    (
        DataFile(
            CIFAR_FILE,
            170052171,
            "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            (
                f"https://www.cs.toronto.edu/~kriz/{CIFAR_FILE}",
                f"https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/{CIFAR_FILE}",
            ),
        ),
    ),
)
SHAKESPEARE = DataSet(
    "tinyshakespeare",
    "1.1 MB of Shakespeare, for models of characters",
    (
        DataFile(
            "input.txt",
            1115394,
            "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            ("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",),
        ),
    ),
)
SPEECH = DataSet(
    "speech-commands",
    "105,829 spoken words of one second, version 0.02",
    (
        DataFile(
            "speech_commands_v0.02.tar.gz",
            2428923189,
            "sha256:af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
            ("https://storage.googleapis.com/download.tensorflow.org/data/speech_commands_v0.02.tar.gz",),
        ),
    ),
    archive=True,
)
CATALOGUE = {each.name: each for each in (MNIST, FASHION, KUZUSHIJI, CIFAR, SHAKESPEARE, SPEECH)}


def find(name: str) -> DataSet:
    """Return the data set of this name.

    >>> find("mnist").nbytes
    11594722
    """
    found = CATALOGUE.get(name)
    if found is None:
        raise Misuse(f"the data set {name!r}", "one of " + ", ".join(CATALOGUE), did_you_mean(name, CATALOGUE))
    return found
