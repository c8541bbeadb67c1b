"""A supervisor announces itself by a file in a folder that its workers see, too: on one host, or on a shared file system.

The file ``RUN.taut`` holds the supervisor's address and the run's token. Only its user can read it (mode 0600). A file
that another user owns, or may read or write, is not believed.
"""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

from taut.core.files import write_atomically
from taut.core.printable import printable
from taut.engines.launchers.rendezvous import MESSAGE_NBYTES, MalformedOffer, Offer, decode, own
from taut.errors import Misuse, StorageFailed

SUFFIX = ".taut"


class SharedFile:
    """A supervisor's announcement. ``announce`` writes the file, ``withdraw`` removes it."""

    def __init__(self, folder: str, offer: Offer) -> None:
        self.path, self._data = checked_folder(folder, "--announce") / f"{offer.run}{SUFFIX}", offer.encode()

    def announce(self) -> None:
        """Write the file, whole or not at all. Raise ``StorageFailed`` where that is not possible."""
        try:
            write_atomically(self.path, self._data, mode=0o600)
        except OSError as error:
            raise StorageFailed(f"the announcement {self.path} could not be written: {error.strerror}") from error

    def withdraw(self) -> None:
        """Remove the file, unless another supervisor has taken over the run, and replaced it."""
        with contextlib.suppress(OSError):
            if self.path.read_bytes() == self._data:
                self.path.unlink()


@dataclass
class Looked:
    """The content of the folder: the announcements, and in words each file that is none."""

    offers: list[Offer] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def look(folder: Path) -> Looked:
    """Return what supervisors have announced in ``folder``, in the order of their names."""
    looked = Looked()
    for path in sorted(folder.glob(f"[!.]*{SUFFIX}")):
        try:
            looked.offers.append(_read(path))
        except (MalformedOffer, OSError) as error:
            why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            if not isinstance(error, FileNotFoundError):  # it was withdrawn in this moment
                looked.refused.append(printable(f"{path} is not believed: {why}"))
    return looked


def _read(path: Path) -> Offer:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise MalformedOffer("it is a link") from None
        raise
    with open(descriptor, "rb") as file:
        if not own(os.fstat(file.fileno())):
            raise MalformedOffer("it has to be a file of this user's, with mode 0600")
        offer = decode(file.read(MESSAGE_NBYTES + 1))
    if f"{offer.run}{SUFFIX}" != path.name or not offer.address or not offer.token:
        raise MalformedOffer("it has no address and token of a run of that name")
    return offer


def checked_folder(folder: str, flag: str) -> Path:
    """Return the folder, or raise ``Misuse`` where there is none."""
    path = Path(folder).absolute()
    if not path.is_dir():
        raise Misuse(f"{flag} {folder}", "a folder that exists", "make it, on a file system that all machines share")
    return path
