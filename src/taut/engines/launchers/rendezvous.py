"""The place where rank 0 of a launch tells the other processes where the run is: a file, a store, or several of them.

The message is an ``Offer``: the supervisor's address and the path of the token's file, which a process on the same host
or file system reads. A process that cannot read that file asks for the token itself, where the place can carry it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from taut.core.files import write_atomically
from taut.errors import NetworkError, TautError

MESSAGE_NBYTES = 16_384


class Offer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What rank 0 tells the others; ``error``: why there is no run. ``token`` only where a process asked for it."""

    address: str = ""
    run: str = ""
    token_file: str = ""
    token: str = ""
    error: str = ""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


def decode(data: bytes) -> Offer:
    """Return the offer in ``data``; ``MalformedOffer`` where there is none."""
    if len(data) > MESSAGE_NBYTES:
        raise MalformedOffer(f"{len(data)} bytes, more than {MESSAGE_NBYTES}")
    try:
        return msgspec.json.decode(data, type=Offer)
    except msgspec.DecodeError as error:
        raise MalformedOffer(str(error)) from None


class MalformedOffer(NetworkError):
    """What was found is no offer of rank 0's."""


class Rendezvous(ABC):
    """A place where rank 0 leaves an offer. ``close`` may be called twice. ``carries_token``: the offer has the token."""

    carries_token: ClassVar[bool] = False

    @property
    @abstractmethod
    def place(self) -> str:
        """Return where it is, in words for an error."""

    @abstractmethod
    def leave(self, offer: Offer) -> None:
        """Leave rank 0's offer here."""

    @abstractmethod
    def look(self) -> Offer | None:
        """Return the offer, or None while there is none."""

    def ask(self, rank: int) -> None:  # noqa: B027
        """Ask for the token itself: this process cannot read its file."""

    def serve(self, token: str) -> None:  # noqa: B027
        """Answer those that ask for the token. Called now and then by rank 0, until the run has started."""

    def close(self) -> None:  # noqa: B027
        """Remove what was left here."""


class FileRendezvous(Rendezvous):
    """A file of mode 0600 in the folder of the runs, on one host or on a file system that all of them see."""

    def __init__(self, folder: str, key: str) -> None:
        safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in key)[:100]
        self.path = Path(folder).absolute() / f".launch-{safe}"
        self._left = False

    @property
    def place(self) -> str:
        return f"the file {self.path}"

    def leave(self, offer: Offer) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, offer.encode(), mode=0o600)
        self._left = True

    def look(self) -> Offer | None:
        """Return the offer; a file of another user, or one that others may write, is none."""
        with contextlib.suppress(OSError), open(os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            if own(os.fstat(file.fileno())):
                return decode(file.read(MESSAGE_NBYTES + 1))
        return None

    def close(self) -> None:
        if self._left:
            self._left = False
            self.path.unlink(missing_ok=True)


class Several(Rendezvous):
    """Several places: rank 0 leaves its offer in each, the others look into one after the other."""

    def __init__(self, places: Sequence[Rendezvous]) -> None:
        self._places = list(places)

    @property
    def place(self) -> str:
        return ", ".join(each.place for each in self._places)

    def leave(self, offer: Offer) -> None:
        """Leave the offer wherever that works. Raise the last error where it works nowhere."""
        failures: list[Exception] = []
        for each in self._places:
            try:
                each.leave(offer)
            except (TautError, OSError) as error:
                failures.append(error)
        if len(failures) == len(self._places):
            raise failures[-1]

    def look(self) -> Offer | None:
        return next((offer for each in self._places if (offer := each.look()) is not None), None)

    def ask(self, rank: int) -> None:
        for each in self._places:
            each.ask(rank)

    def serve(self, token: str) -> None:
        for each in self._places:
            each.serve(token)

    def close(self) -> None:
        for each in self._places:
            each.close()


def token_file_seen(offer: Offer, folder: str) -> Path | None:
    """Return the token's file as this host sees it: at the path of the offer, or in the same folder of runs. A file that
    another user can have written is none."""
    for path in (Path(offer.token_file), Path(folder) / offer.run / Path(offer.token_file).name):
        with contextlib.suppress(OSError, ValueError):
            if offer.token_file and own(os.lstat(path)):
                return path
    return None


def own(about: os.stat_result) -> bool:
    """Return whether this is a file of this user's that no other user may read or write."""
    return stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077
