"""The settings that all of taut's zmq sockets share, and how long each one waits for what."""

from __future__ import annotations

import math

import zmq

DEAD_MS = 20_000
CURVE_OVERHEAD_NBYTES = 64  # nonce, tag and flags around each encrypted frame; the limit is on what is inside


def apply(socket: zmq.Socket[bytes], *, hwm: int, limit_nbytes: int) -> None:
    """Set bounded queues, bounded frames, and reconnecting within about a second of the network's return.

    ``hwm`` counts messages. Connections whose other end vanished without a word are given up by the kernel, after
    ``DEAD_MS`` without an answer to data or probes: left alone, TCP would take a quarter of an hour, and its retries are
    up to two minutes apart when the network comes back. zmq's own heartbeats are not used: libzmq (4.3.5) aborts the
    process when one is due on a connection that was lost while its queue was full (libzmq issues 3937 and 4364).
    """
    socket.linger = 0
    socket.sndhwm = hwm
    socket.rcvhwm = hwm
    socket.maxmsgsize = limit_nbytes + CURVE_OVERHEAD_NBYTES
    socket.reconnect_ivl = 50
    socket.reconnect_ivl_max = 1_000
    socket.connect_timeout = 5_000
    socket.handshake_ivl = 10_000
    socket.tcp_maxrt = DEAD_MS
    socket.tcp_keepalive = 1
    socket.tcp_keepalive_idle = socket.tcp_keepalive_intvl = 5
    socket.tcp_keepalive_cnt = 3


def milliseconds(timeout_s: float | None) -> int:
    """Return a timeout as zmq counts it, rounded up so that a short one is not a busy loop.

    >>> milliseconds(None), milliseconds(0.0), milliseconds(0.0002)
    (-1, 0, 1)
    """
    if timeout_s is None:
        return -1
    return min(max(0, math.ceil(timeout_s * 1000)), 2**31 - 1)


def connect(socket: zmq.Socket[bytes], address: str, server_public: bytes, public_key: bytes, secret_key: bytes) -> None:
    """Connect as a CURVE client that expects the server to hold ``server_public``. Returns before it is up."""
    socket.curve_serverkey = server_public
    socket.curve_publickey = public_key
    socket.curve_secretkey = secret_key
    if "[" in address:
        socket.setsockopt(zmq.IPV6, 1)
    socket.connect(address)
