"""A connection that is lost while the receiver's queue is full must not take the process with it."""

from __future__ import annotations

import subprocess
import sys
import textwrap

# In a process of its own: where the law is broken, libzmq aborts it.
LOST = """
    import zmq
    from taut.transport.zmq import options as zmq_options

    ours, theirs = zmq.Context(), zmq.Context()
    receiver, sender = ours.socket(zmq.ROUTER), theirs.socket(zmq.DEALER)
    for socket in (receiver, sender):
        zmq_options.apply(socket, hwm=4, limit_nbytes=2**20)
    if receiver.heartbeat_ivl > 0:
        receiver.heartbeat_ivl = 10  # the same, sooner
    sender.connect(f"tcp://127.0.0.1:{receiver.bind_to_random_port('tcp://127.0.0.1')}")
    sender.send(bytes(2**19))
    assert receiver.poll(10_000)
    while sender.poll(100, zmq.POLLOUT):  # until nothing fits any more, here, there and in the kernel
        sender.send(bytes(2**19))
    sender.close(linger=0)
    theirs.term()
    assert not receiver.get_monitor_socket().poll(200)  # it is lost, and zmq knows, but what came is still to be read
    received = 0
    while receiver.poll(200):
        received += len(receiver.recv_multipart()) == 2
    print(received > 4)
"""


def test_a_peer_that_dies_while_our_queue_is_full_costs_us_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LOST)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
