"""Real sockets: nothing readable on the wire, and nobody without a key gets a word in or out."""

import socket
import struct
from typing import ClassVar

import pytest
import zmq

from taut.core.messages import SUPERVISOR, Failed, Member, PeerMessage, Span, Updates, WorkerMessage
from taut.errors import MalformedMessage, Misuse
from taut.transport.framing import decode, encode
from taut.transport.keys import RunKeys, Token, WorkerKeys
from taut.transport.zmq.server import SupervisorSocket

PAYLOAD = b"these are the secret weights " * 20
TEXT = "a very readable reason"


class Raw(zmq.Context):
    """Sockets without taut, kept so that none is collected before it was closed."""

    opened: ClassVar[list[zmq.Socket]] = []

    def socket(self, *args, **kwargs):
        self.opened.append(super().socket(*args, **kwargs))
        return self.opened[-1]


@pytest.fixture
def context():
    context = Raw()
    yield context
    context.destroy(linger=0)  # closes monitors too
    Raw.opened.clear()


def curve(socket, server: bytes, public: bytes, secret: bytes):
    socket.linger = 0
    socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = server, public, secret
    return socket


def raw_push(context, party, to: int, keys: WorkerKeys):
    """A peer's socket without taut's own checks on what it sends."""
    member = party.members[to]
    push = curve(context.socket(zmq.PUSH), member.public_key.encode(), keys.public_key.encode(), keys.secret_key)
    push.connect(member.address)
    return push


def failed_handshake(monitor) -> bool:
    """Whether the monitored client was turned away by now."""
    failures = (
        zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    )
    while monitor.poll(0):
        if struct.unpack_from("=H", monitor.recv_multipart()[0])[0] & failures:
            return True
    return False


def test_the_wire_between_workers_is_unreadable(party, proxy, until) -> None:
    receiver = party.worker(1, advertise=proxy.endpoint)
    proxy.upstream = f"tcp://127.0.0.1:{receiver._pull.last_endpoint.decode().rpartition(':')[2]}"
    sender = party.worker(0)
    sender.admit(party.members[1])
    receiver.admit(party.members[0])
    frames = encode(Updates(round=0, echo=1, spans=[Span(0, 1, 1)]), [PAYLOAD])
    assert sender.send(1, frames)
    ((_, frames),) = until(lambda: receiver.receive(0.1))
    assert decode(frames, PeerMessage)[1] == [PAYLOAD]
    wire = bytes(proxy.recorded)
    assert len(wire) > len(PAYLOAD)
    assert b"CURVE" in wire  # the recorder did see the connection
    for secret in (PAYLOAD, PAYLOAD[:29], frames[0], frames[0][:8], b"Updates"):
        assert secret not in wire


def test_the_wire_to_the_supervisor_is_unreadable(party, proxy, until) -> None:
    keys = RunKeys.generate()
    server = party.keep(SupervisorSocket(keys, advertise=proxy.endpoint))
    proxy.upstream = f"tcp://127.0.0.1:{server._router.last_endpoint.decode().rpartition(':')[2]}"
    worker = party.worker(0, supervisor=(server.address, Token.parse(keys.token)))
    assert worker.send(SUPERVISOR, encode(Failed(reason=TEXT)))
    ((connection, frames),) = until(lambda: server.receive(0.1))
    assert decode(frames, WorkerMessage)[0] == Failed(reason=TEXT)
    assert server.send(connection, [PAYLOAD])
    until(lambda: worker.receive(0.1))
    wire = bytes(proxy.recorded)
    assert b"CURVE" in wire
    for secret in (PAYLOAD[:29], TEXT.encode(), frames[0][:8], b"Failed", connection[1:]):
        assert secret not in wire


def test_the_recorder_would_see_plain_text(context, proxy) -> None:
    """The control: without CURVE the same recorder reads everything."""
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    proxy.upstream = f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}"
    push.connect(f"tcp://{proxy.endpoint}")
    push.send(PAYLOAD)
    assert pull.recv() == PAYLOAD
    assert PAYLOAD in proxy.recorded


@pytest.mark.parametrize("impostor", ["no encryption", "another run's token", "own client key"])
def test_who_has_no_token_gets_nothing(impostor, party, context, until) -> None:
    keys, other = RunKeys.generate(), Token.parse(RunKeys.generate().token)
    server = party.keep(SupervisorSocket(keys))
    stranger = context.socket(zmq.DEALER)
    stranger.linger = 0
    if impostor != "no encryption":
        known = keys.server_public if impostor == "own client key" else other.server_public
        curve(stranger, known, other.client_public, other.client_secret)
    monitor = stranger.get_monitor_socket()
    stranger.connect(server.address)
    stranger.send(b"let me in")
    arrived = []

    def turned_away() -> bool:
        arrived.extend(server.receive(0.01))
        return failed_handshake(monitor)

    until(turned_away)
    worker = party.worker(0, supervisor=(server.address, Token.parse(keys.token)))
    assert worker.send(SUPERVISOR, [b"hello"])
    until(lambda: arrived.extend(server.receive(0.1)) or arrived)
    assert [frames for _, frames in arrived] == [[b"hello"]]
    assert server.send(arrived[0][0], [b"welcome"])
    assert until(lambda: worker.receive(0.1))[0][1] == [b"welcome"]
    assert stranger.poll(0) == 0


def test_a_wrong_token_is_told_from_a_supervisor_that_is_not_there(party, until) -> None:
    server = party.keep(SupervisorSocket(RunKeys.generate()))
    wrong = party.worker(0, supervisor=(server.address, Token.parse(RunKeys.generate().token)))
    absent = party.worker(1, supervisor=("tcp://127.0.0.1:1", Token.parse(RunKeys.generate().token)))

    def refused() -> bool:
        server.receive(0.01)
        wrong.receive(0.01)
        absent.receive(0)
        return wrong.supervisor.status == "refused"

    until(refused)
    assert absent.supervisor.status == "connecting"


def test_a_worker_that_was_not_admitted_cannot_inject(party, context, until) -> None:
    receiver, honest = party.worker(1), party.worker(0)
    intruder = WorkerKeys.generate()
    raw_push(context, party, 1, intruder).send(b"poison")
    arrived = []
    # It has got as far as it ever will: it waits at the gate.
    until(lambda: arrived.extend(receiver.receive(0.05)) or intruder.public_key in receiver._gatekeeper._held)
    honest.admit(party.members[1])
    receiver.admit(party.members[0])
    assert honest.send(1, [b"food"])
    until(lambda: arrived.extend(receiver.receive(0.1)) or arrived)
    assert arrived == [(0, [b"food"])]


def test_strangers_at_the_gate_are_bounded(party, context, until, monkeypatch) -> None:
    monkeypatch.setattr("taut.transport.zmq.auth._HELD", 3)
    receiver = party.worker(1)
    strangers = [WorkerKeys.generate() for _ in range(6)]
    for keys in strangers:
        raw_push(context, party, 1, keys).send(b"poison")
        until(lambda keys=keys: receiver.receive(0.05) or keys.public_key in receiver._gatekeeper._held)
        assert len(receiver._gatekeeper._held) <= 3


def test_the_forgotten_are_refused_although_still_connected(party, context, until) -> None:
    receiver, honest = party.worker(1), party.worker(0)
    party.worker(2)
    push = raw_push(context, party, 1, party.keys[2])
    receiver.admit(party.members[2])
    push.send(b"as a member")
    assert until(lambda: receiver.receive(0.1))[0][0] == 2
    receiver.forget(2)
    push.send(b"as nobody", zmq.NOBLOCK)  # no error: this connection is up
    honest.admit(party.members[1])
    receiver.admit(party.members[0])
    assert honest.send(1, [b"hello"])
    assert until(lambda: receiver.receive(0.1))[0] == (0, [b"hello"])
    assert receiver.receive(0) == []


def test_a_member_cannot_be_admitted_with_the_key_of_another(party) -> None:
    receiver = party.worker(1)
    party.worker(0)
    receiver.admit(party.members[0])
    for member in (
        Member(5, party.members[0].address, party.members[0].public_key),
        Member(5, party.members[0].address, "no key"),
        Member(5, "ipc:///etc/passwd", WorkerKeys.generate().public_key),
        Member(5, "tcp://host", WorkerKeys.generate().public_key),
        Member(5, "tcp://127.0.0.1:99999", WorkerKeys.generate().public_key),
    ):
        with pytest.raises(MalformedMessage):
            receiver.admit(member)
        assert receiver.send(5, [b"x"]) is False


def test_an_oversized_frame_is_refused(party, context, until) -> None:
    limit = 100_000
    receiver, honest = party.worker(1, limit_nbytes=limit), party.worker(0)
    party.worker(2)
    for rank in (0, 2):
        receiver.admit(party.members[rank])
    giant = raw_push(context, party, 1, party.keys[2])
    giant.send(bytes(limit))
    assert len(until(lambda: receiver.receive(0.1))[0][1][0]) == limit
    monitor = giant.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    giant.send(bytes(limit + 1000))
    arrived = []
    until(lambda: arrived.extend(receiver.receive(0.05)) or monitor.poll(0))  # thrown out
    honest.admit(party.members[1])
    assert honest.send(1, [b"small"])
    until(lambda: arrived.extend(receiver.receive(0.1)) or arrived)
    assert [frames for _, frames in arrived] == [[b"small"]]
    with pytest.raises(Misuse, match="at most 100000"):
        receiver.send(0, [bytes(limit), b"1"])


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", bytes(4096), b"\xff" * 70_000, b"\xff\0\0\0\0\0\0\0\1\x7f\3\0CURVE", b"\xff"],
)
def test_garbage_on_the_port_disturbs_nobody(garbage, party, until) -> None:
    keys = RunKeys.generate()
    server = party.keep(SupervisorSocket(keys))
    a, b = party.worker(0, supervisor=(server.address, Token.parse(keys.token))), party.worker(1)
    a.admit(party.members[1])
    b.admit(party.members[0])
    for address in (b.address, server.address):
        host, port = address.removeprefix("tcp://").split(":")
        with socket.create_connection((host, int(port))) as vandal:
            vandal.sendall(garbage)
            assert a.send(1, [b"still here"])
            assert until(lambda: b.receive(0.1)) == [(0, [b"still here"])]
    assert a.send(SUPERVISOR, [b"hello"])
    assert until(lambda: server.receive(0.1))[0][1] == [b"hello"]
