"""The costs that clients may cause. The process also holds the supervisor: its memory and its file descriptors
must not be for strangers to use up."""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True):
    """Limits of requests and connections: the rest is refused or cut off, and the run does not notice."""

    connections: int = 64  # open at once; further ones are closed before a byte is read
    streams: int = 16  # of those
    head_nbytes: int = 16 * 1024  # of a request's line and headers
    body_nbytes: int = 4 * 1024
    request_s: float = 10.0  # for a request to arrive whole
    stuck_s: float = 10.0  # for a client that reads to take what waits for it
    send_nbytes: int = 256 * 1024  # in the kernel, per connection
    attempts: int = 10  # wrong secrets from one address, at once
    attempt_every_s: float = 6.0  # and after that
    addresses: int = 1024  # that are remembered for it
    orders: int = 2  # under way at once
    idle_s: float = 15.0  # a stream without news says that it is there
