"""Several tokens to a run, which expire and can be revoked; the owner's orders; nobody speaks as another."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from taut.core.messages import SUPERVISOR
from taut.errors import Misuse, SupervisorLost
from taut.supervisor.control import Dismiss, DrainRun
from taut.transport.access import AccessControl
from taut.transport.framing import encode
from taut.transport.keys import MOST_TOKENS, RunKeys, Token
from taut.transport.zmq.factory import Zmq
from taut.transport.zmq.server import SupervisorSocket

KEYS = RunKeys.generate()
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", fullmatch=True).filter(lambda name: name != "first")


@given(st.dictionaries(NAMES, st.none() | st.floats(0, 1e12), max_size=4), st.data())
def test_keys_with_tokens_are_kept_and_read_back(tokens, data) -> None:
    keys = KEYS
    for name, expires_at in tokens.items():
        keys = keys.issue(name, expires_at)
    for name in data.draw(st.sets(st.sampled_from(["first", *tokens]))):
        keys = keys.revoke(name)
    again = RunKeys.parse(keys.text + "\n")
    assert again == keys
    assert again.token == KEYS.token
    assert again.admin == KEYS.admin
    shown = f"{keys!r} {keys.join_secrets!r}"
    assert not any(keys.token_of(one.name)[50:] in shown or repr(one.secret) in shown for one in keys.join_secrets)


def test_keys_of_runs_before_tokens_had_names_are_read() -> None:
    old = KEYS.text
    assert "\n" not in old
    assert [one.name for one in RunKeys.parse(old).join_secrets] == ["first"]


@pytest.mark.parametrize(
    "line",
    [
        "x",
        "token",
        "token a never short",
        "token a never " + "A" * 43 + " x",
        "token a nan " + "A" * 43,
        "token a soon " + "A" * 43,
        "token a/b never " + "A" * 43,
        "revoked b",
    ],
)
def test_a_damaged_line_is_refused_and_not_quoted(line: str) -> None:
    with pytest.raises(Misuse, match=r"line 2 of a run's keys \(not shown\)") as caught:
        RunKeys.parse(f"{KEYS.text}\n{line}")
    assert "AAAA" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "first", "a b", "a/../b", "x" * 33, "-x"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(Misuse, match="token name"):
        KEYS.issue(name)


def test_unknown_names_and_too_many_tokens() -> None:
    with pytest.raises(Misuse, match="did you mean 'guests'"):
        KEYS.issue("guests").revoke("guest")
    keys = KEYS
    for number in range(MOST_TOKENS):
        keys = keys.issue(f"n{number}")
    with pytest.raises(Misuse, match="at most"):
        keys.issue("one-more")


@given(st.floats(0, 1e10), st.floats(-1e6, 1e6), st.booleans())
def test_a_token_is_good_until_it_expires_or_is_revoked(expires_at, late_s, revoked) -> None:
    keys = KEYS.issue("guests", expires_at)
    keys = keys.revoke("guests") if revoked else keys
    door = AccessControl(keys, clock=lambda: expires_at + late_s)
    guest = Token.parse(keys.token_of("guests")).client_public.decode()
    good = not revoked and expires_at + late_s < expires_at
    assert door.standing(guest) == ("joiner" if good else "void")
    assert door.standing(KEYS.client_public.decode()) == "joiner", "another token is another's"
    assert door.standing(KEYS.admin.client_public.decode()) == "owner"


# ---------------------------------------------------------------------------------------------------- over sockets


def test_a_void_token_is_refused_at_the_handshake_and_told_from_a_wrong_one(party, until) -> None:
    keys = RunKeys.generate().issue("guests")
    server = party.keep(SupervisorSocket(keys))
    guest = Token.parse(keys.token_of("guests"))
    early = party.worker(0, supervisor=(server.address, guest))
    assert early.send(SUPERVISOR, [b"hello"])
    (connection, frames), *_ = until(lambda: server.receive(0.1))
    assert frames == [b"hello"]
    assert server.came_with(connection) == "guests"
    server.access.keys = keys.revoke("guests")
    late = party.worker(1, supervisor=(server.address, guest))
    wrong = party.worker(2, supervisor=(server.address, Token.parse(RunKeys.generate().token)))

    def turned_away() -> bool:
        assert server.receive(0.01) == []
        late.receive(0.01), wrong.receive(0.01)
        return late.supervisor.status == "expired" and wrong.supervisor.status == "refused"

    until(turned_away)
    assert early.send(SUPERVISOR, [b"still here"])
    assert until(lambda: server.receive(0.1)) == [(connection, [b"still here"])]


def test_a_worker_whose_token_expired_comes_back_under_its_own_key(party, proxy, until) -> None:
    keys = RunKeys.generate()
    server = party.keep(SupervisorSocket(keys, advertise=proxy.endpoint))
    proxy.upstream = f"tcp://127.0.0.1:{server._router.last_endpoint.decode().rpartition(':')[2]}"
    worker = party.worker(0, supervisor=(server.address, Token.parse(keys.token)))
    assert worker.send(SUPERVISOR, [b"hello"])
    (connection, _), *_ = until(lambda: server.receive(0.1))
    worker.supervisor.admitted()
    server.access.knows = party.members[0].public_key.__eq__
    server.access.keys = keys.revoke("first")
    proxy.cut()
    sent = []

    def back() -> object:
        worker.receive(0.02)
        if len(sent) < 50 and worker.supervisor.status == "connected" and worker.send(SUPERVISOR, [b"again"]):
            sent.append(1)
        return [one for one in server.receive(0.02) if one == (connection, [b"again"])]

    assert until(back)
    assert server.came_with(connection) == "first"


def test_orders_are_the_owners_alone(party, until) -> None:
    keys = RunKeys.generate()
    server = party.keep(SupervisorSocket(keys))
    order = encode(DrainRun("enough"), ())
    worker = party.worker(0, supervisor=(server.address, Token.parse(keys.token)))
    assert worker.send(SUPERVISOR, order)
    assert [frames for _, frames in until(lambda: server.receive(0.1))] == [order]
    assert not server.orders, "a worker gives no orders"
    answers = []
    asking = threading.Thread(target=lambda: answers.append(Zmq().ask(server.address, keys, order)))
    asking.start()
    until(lambda: server.receive(0.05) or server.orders)
    connection, frames = server.orders.popleft()
    assert frames == order
    assert server.send(connection, [b"done"])
    asking.join(20)
    assert answers == [[b"done"]]


def test_a_supervisor_that_is_not_there_is_not_waited_for_long(party) -> None:
    with pytest.raises(SupervisorLost, match="did not answer in 0 s"):
        Zmq().ask("tcp://127.0.0.1:1", KEYS, encode(Dismiss(1, "go"), ()), patience_s=0.2)
    other = party.keep(SupervisorSocket(RunKeys.generate()))  # of another run
    with pytest.raises(SupervisorLost):
        Zmq().ask(other.address, KEYS, encode(Dismiss(1, "go"), ()), patience_s=0.2)


def test_a_message_of_many_frames_costs_no_more_than_the_limit(party, context, until) -> None:
    keys = RunKeys.generate()
    server = party.keep(SupervisorSocket(keys))
    token = Token.parse(keys.token)
    dealer = context.socket(zmq.DEALER)
    dealer.linger = 0
    dealer.curve_serverkey, dealer.curve_publickey = token.server_public, token.client_public
    dealer.curve_secretkey = token.client_secret
    dealer.connect(server.address)
    dealer.send_multipart([b"x"] * 5_000)
    ((_, frames),) = until(lambda: server.receive(0.1))
    dealer.close()
    assert len(frames) == 64


@pytest.fixture
def context() -> Iterator[zmq.Context]:
    context = zmq.Context()
    yield context
    context.destroy(linger=0)
