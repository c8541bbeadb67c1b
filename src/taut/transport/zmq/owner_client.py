"""The owner's end of the link to a supervisor: one order, one answer. Whoever can read the run's keys is the owner."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import zmq

from taut.errors import SupervisorLost
from taut.transport.frame_packing import bundle, opened
from taut.transport.keys import RunKeys
from taut.transport.transport import ANSWER_S, ORDER_NBYTES
from taut.transport.zmq import options


def ask(address: str, keys: RunKeys, frames: Sequence[bytes], patience_s: float = ANSWER_S) -> list[bytes]:
    """Say one thing to the supervisor at ``address``, and return what it answers. ``SupervisorLost`` if nothing comes."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
    dealer = context.socket(zmq.DEALER)
    try:
        options.apply(dealer, hwm=4, limit_nbytes=ORDER_NBYTES)
        dealer.routing_id = b"\x02" + secrets.token_bytes(16)
        owner = keys.admin
        options.connect(dealer, address, owner.server_public, owner.client_public, owner.client_secret)
        dealer.send_multipart(bundle(frames, ORDER_NBYTES))
        if not dealer.poll(options.milliseconds(patience_s)):
            raise SupervisorLost(f"the supervisor at {address} did not answer in {patience_s:.0f} s")
        return opened(dealer.recv_multipart(zmq.NOBLOCK))
    finally:
        dealer.close(linger=0)
        context.term()
