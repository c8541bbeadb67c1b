"""A rendezvous by MPI itself, through mpi4py: rank 0 broadcasts its offer. All processes take part, or none goes on."""

from __future__ import annotations

from typing import Any, ClassVar

from taut.engines.launchers.rendezvous import Offer, Rendezvous, decode


class BroadcastRendezvous(Rendezvous):
    """Broadcasts of bytes over MPI's world: nothing is unpickled. The token travels with the offer, over MPI's own
    connections, which are as safe as MPI's are."""

    carries_token: ClassVar[bool] = True

    def __init__(self) -> None:
        from mpi4py import MPI  # type: ignore[import-not-found, unused-ignore]

        self._world: Any = MPI.COMM_WORLD

    @property
    def place(self) -> str:
        return "a broadcast of mpi4py"

    def leave(self, offer: Offer) -> None:
        self._broadcast(bytearray(offer.encode()))

    def look(self) -> Offer | None:
        return decode(bytes(self._broadcast(bytearray())))

    def _broadcast(self, data: bytearray) -> bytearray:
        from array import array

        length = array("q", [len(data)])
        self._world.Bcast(length, root=0)
        data = data or bytearray(length[0])
        self._world.Bcast(data, root=0)
        return data
