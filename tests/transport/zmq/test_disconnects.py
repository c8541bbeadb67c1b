"""The supervisor learns whose connection was closed: of the dead, not of the living, and after their last words."""

from hypothesis import given
from hypothesis import strategies as st

from taut.core.messages import SUPERVISOR
from taut.transport.keys import RunKeys, Token
from taut.transport.zmq.disconnects import Disconnects
from taut.transport.zmq.server import SupervisorSocket


def port_of(zmq_socket) -> int:
    return int(zmq_socket.last_endpoint.decode().rpartition(":")[2])


def test_the_end_of_a_worker_closes_its_connection_and_no_other(party, until) -> None:
    keys = RunKeys.generate()
    server = party.keep(SupervisorSocket(keys))
    workers = [party.worker(rank, supervisor=(server.address, Token.parse(keys.token))) for rank in range(3)]
    names = []
    for rank, worker in enumerate(workers):
        assert worker.send(SUPERVISOR, [b"%d" % rank])
        ((name, _),) = until(lambda: server.receive(0.1))
        names.append(name)
    assert server.take_closed() == []
    workers[1].send(SUPERVISOR, [b"last words"])
    workers[1].close(linger_s=10)
    heard = []
    closed = until(lambda: heard.extend(server.receive(0.1)) or server.take_closed())
    assert closed == [names[1]] and heard == [(names[1], [b"last words"])], "its last words come first"
    for rank in (0, 2):
        assert workers[rank].send(SUPERVISOR, [b"still here"])
        assert until(lambda: server.receive(0.1)) == [(names[rank], [b"still here"])]
    assert server.take_closed() == []


def test_who_comes_back_after_a_broken_connection_is_heard_after_its_closure(party, proxy, until) -> None:
    keys = RunKeys.generate()
    server = party.keep(SupervisorSocket(keys, advertise=proxy.endpoint))
    proxy.upstream = f"tcp://127.0.0.1:{port_of(server._router)}"
    worker = party.worker(0, supervisor=(server.address, Token.parse(keys.token)))
    assert worker.send(SUPERVISOR, [b"one"])
    ((name, _),) = until(lambda: server.receive(0.1))
    for again in range(2):
        proxy.cut()
        assert until(lambda: (server.receive(0.05), server.take_closed())[1]) == [name]  # a second "two" may come first
        until(lambda again=again: server.receive(0.05) or worker.receive(0.0) or proxy.connections == again + 2)
        assert until(lambda: worker.send(SUPERVISOR, [b"two"]) and server.receive(0.1))[0][0] == name
        assert server.take_closed() == [], "what came by the new connection is heard, and nothing closed since"


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 2)), max_size=60))
def test_only_the_last_connection_of_a_name_counts(history: list[tuple[bool, int, int]]) -> None:
    """Against a plain model: whom a name's last message came by, and whether that one was lost since."""
    closures, last, closed = Disconnects(), {}, set()
    for came, descriptor, number in history:
        name = b"%d" % number
        if came:
            closed |= {other for other, by in last.items() if by == descriptor and other != name}
            last = {other: by for other, by in last.items() if by != descriptor}
            last[name] = descriptor
            closures.came(name, descriptor)
            closed.discard(name)
        else:
            closed |= {other for other, by in last.items() if by == descriptor}
            last = {other: by for other, by in last.items() if by != descriptor}
            closures.lost(descriptor)
    assert set(closures.take()) == closed and closures.take() == []
