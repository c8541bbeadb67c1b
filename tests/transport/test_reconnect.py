"""The supervisor's link; connections break, hosts restart, and later messages arrive all the same."""

import socket

from taut.core.messages import SUPERVISOR, Member
from taut.transport.keys import RunKeys, Token, WorkerKeys
from taut.transport.zmq.server import SupervisorSocket
from taut.transport.zmq.transport import ZmqTransport


def port_of(zmq_socket) -> int:
    return int(zmq_socket.last_endpoint.decode().rpartition(":")[2])


def test_messages_arrive_after_a_broken_connection(party, proxy, until) -> None:
    receiver, sender = party.worker(1, advertise=proxy.endpoint), party.worker(0)
    proxy.upstream = f"tcp://127.0.0.1:{port_of(receiver._pull)}"
    sender.admit(party.members[1])
    receiver.admit(party.members[0])
    count = 0
    for broken in range(3):
        assert sender.send(1, [b"before %d" % broken])
        until(lambda broken=broken: any(e[1] == [b"before %d" % broken] for e in receiver.receive(0.1)))
        assert proxy.connections == broken + 1
        proxy.cut()
        arrived = []

        def later(arrived=arrived) -> bool:
            nonlocal count
            count += 1
            sender.send(1, [b"after %d" % count])
            arrived += receiver.receive(0.02)
            return bool(arrived) and proxy.connections == broken + 2  # noqa: B023

        until(later)
        numbers = [int(e[1][0].split()[1]) for e in arrived if e[1][0].startswith(b"after")]
        assert numbers == sorted(set(numbers))  # some may be lost; none comes twice or out of order
        until(lambda: not receiver.receive(0.02))


def test_the_supervisor_knows_a_worker_again(party, proxy, until) -> None:
    keys = RunKeys.generate()
    server = party.keep(SupervisorSocket(keys, advertise=proxy.endpoint))
    proxy.upstream = f"tcp://127.0.0.1:{port_of(server._router)}"
    worker = party.worker(0, supervisor=(server.address, Token.parse(keys.token)))
    assert worker.send(SUPERVISOR, [b"one"])
    ((connection, _),) = until(lambda: server.receive(0.1))
    until(lambda: worker.receive(0.02) or worker.supervisor.status == "connected")
    proxy.cut()
    arrived = until(lambda: worker.send(SUPERVISOR, [b"two"]) and server.receive(0.1))
    until(lambda: proxy.connections == 2 or server.receive(0.05) is None)
    assert {name for name, _ in arrived} == {connection}

    def answered() -> bool:
        """The worker sends on, as its heartbeats do: on a busy machine the connection may break once more."""
        return worker.send(SUPERVISOR, [b"more"]) and server.send(connection, [b"hello again"]) and worker.receive(0.1)

    assert until(answered)


def test_a_new_connection_takes_the_place_of_one_that_hangs(party, until) -> None:
    """A host that lost its network comes back before the supervisor has noticed that it was gone."""
    keys = RunKeys.generate()
    token, server = Token.parse(keys.token), party.keep(SupervisorSocket(keys))
    names = []
    for body in (b"old", b"new"):
        worker = party.worker(0, supervisor=(server.address, token))
        dealer = worker._supervisor.socket
        dealer.disconnect(server.address)
        dealer.routing_id = b"\x01the same name"
        dealer.connect(server.address)
        assert until(lambda worker=worker, body=body: worker.send(SUPERVISOR, [body]))
        arrived = until(lambda: server.receive(0.1))
        names += [name for name, frames in arrived if frames == [body]]
    assert names == [b"\x01the same name"] * 2
    assert server.send(names[0], [b"to the new one"])
    assert until(lambda: worker.receive(0.1)) == [(SUPERVISOR, [b"to the new one"])]


def test_a_restarted_supervisor_gets_the_same_workers(party, until) -> None:
    keys = RunKeys.generate()
    first = SupervisorSocket(keys)
    worker = party.worker(0, supervisor=(first.address, Token.parse(keys.token)))
    try:
        assert worker.send(SUPERVISOR, [b"one"])
        ((connection, _),) = until(lambda: first.receive(0.1))
    finally:
        first.close()
    port = int(first.address.rpartition(":")[2])
    again = party.keep(SupervisorSocket(RunKeys.parse(keys.text), port=port))
    arrived = until(lambda: worker.send(SUPERVISOR, [b"two"]) and again.receive(0.1))
    assert {name for name, _ in arrived} == {connection}
    assert until(lambda: again.send(connection, [b"back"]) and worker.receive(0.1))


def test_a_message_to_a_peer_that_is_not_up_yet_arrives_when_it_comes(party, until) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    sender = party.worker(0)
    keys = WorkerKeys.generate()
    sender.admit(Member(1, f"tcp://127.0.0.1:{port}", keys.public_key))
    assert sender.send(1, [b"early"])
    late = party.keep(ZmqTransport(keys, bind=f"127.0.0.1:{port}"))
    late.admit(party.members[0])
    assert until(lambda: late.receive(0.1)) == [(0, [b"early"])]


def test_messages_keep_their_shape_on_the_way_to_the_supervisor_and_back(party, until) -> None:
    keys = RunKeys.generate()
    server = party.keep(SupervisorSocket(keys))
    worker = party.worker(0, supervisor=(server.address, Token.parse(keys.token)))
    for frames in (
        [b"one"],
        [b"digest", b"buffers"],
        [b"", b""],
        [b"upload", bytes(4_000_000)],
        [b"b", b"", b"c"],
    ):
        assert worker.send(SUPERVISOR, frames)
        ((connection, arrived),) = until(lambda: server.receive(0.1))
        assert arrived == frames
        assert server.send(connection, frames)
        assert until(lambda: worker.receive(0.1)) == [(SUPERVISOR, frames)]


def test_a_last_word_is_sent_by_a_lingering_close(party, until) -> None:
    keys = RunKeys.generate()
    server = party.keep(SupervisorSocket(keys))
    worker = party.worker(0, supervisor=(server.address, Token.parse(keys.token)))
    until(lambda: server.receive(0.01) or worker.receive(0.01) or worker.supervisor.status == "connected")
    assert worker.send(SUPERVISOR, [b"failed", bytes(1_000_000)])
    worker.close(linger_s=10)
    assert until(lambda: server.receive(0.1))[0][1][0] == b"failed"
