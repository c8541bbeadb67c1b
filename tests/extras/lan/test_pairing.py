"""Pairing: the right code gives the token, any other nothing; and nothing that is changed on its way goes through."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.discovery.choice import Announced
from taut.discovery.code import CodeLimits
from taut.discovery.frames import Frames
from taut.discovery.lan import Service
from taut.discovery.pairing import PairingFailed, SupervisorSide, WorkerSide
from taut.discovery.pairing_client import pair
from taut.discovery.pairing_server import CONNECTIONS, PairingServer
from taut.engines.launchers.rendezvous import Offer
from taut.errors import Misuse, Refused
from taut.transport.keys import RunKeys

CODE, WRONG = "1234-5678", "1234-5679"
OFFER = Offer("tcp://10.0.0.7:7000", "calm-otter", token=RunKeys.generate().token)


def exchange(
    tamper: Callable[[int, bytes], bytes], code: str = CODE, run: str = OFFER.run
) -> tuple[Offer | None, list[bytes]]:
    """Return what the worker gets, and all messages; ``tamper`` may change each on its way."""
    worker, supervisor, sent = WorkerSide(code, run), SupervisorSide(CODE, OFFER), list[bytes]()

    def passed(data: bytes) -> bytes:
        sent.append(data)
        return tamper(len(sent) - 1, data)

    try:
        answer = passed(supervisor.answer(passed(worker.start())))
        if not supervisor.proven(passed(worker.confirm(answer))):
            return None, sent
        return worker.taken(passed(supervisor.grant())), sent
    except PairingFailed:
        return None, sent


def unchanged(number: int, data: bytes) -> bytes:
    return data


def test_the_right_code_gives_the_token() -> None:
    got, sent = exchange(unchanged)
    assert got == OFFER
    assert OFFER.token[6:].encode() not in b"".join(sent), "it goes over encrypted"
    assert CODE.replace("-", "").encode() not in b"".join(sent)


def test_each_exchange_has_keys_of_its_own() -> None:
    first, second = exchange(unchanged)[1], exchange(unchanged)[1]
    assert all(one != other for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize(("code", "run"), [(WRONG, OFFER.run), (CODE, "shy-crab")])
def test_another_code_or_run_gives_nothing(code: str, run: str) -> None:
    got, sent = exchange(unchanged, code, run)
    assert got is None and len(sent) < 4, "no grant is made"


@settings(max_examples=150, deadline=None)
@given(number=st.integers(0, 3), bit=st.integers(0))
def test_no_flipped_bit_goes_through(number: int, bit: int) -> None:
    def flip(which: int, data: bytes) -> bytes:
        if which != number:
            return data
        at = bit % (8 * len(data))
        return data[: at // 8] + bytes([data[at // 8] ^ 1 << at % 8]) + data[at // 8 + 1 :]

    assert exchange(flip)[0] is None


@settings(max_examples=60, deadline=None)
@given(number=st.integers(0, 3), data=st.binary(max_size=300))
def test_no_other_message_goes_through(number: int, data: bytes) -> None:
    assert exchange(lambda which, sent: data if which == number else sent)[0] is None


@settings(max_examples=20, deadline=None)
@given(number=st.integers(0, 3), other=st.integers(0, 3))
def test_no_replayed_message_goes_through(number: int, other: int) -> None:
    """Of an exchange with the same code before, or of this exchange's other side (a reflection)."""
    before = exchange(unchanged)[1]
    assert exchange(lambda which, sent: before[other] if which == number else sent)[0] is None


def test_one_in_the_middle_with_another_code_is_noticed() -> None:
    """The stranger plays the supervisor for the worker, and the worker for the supervisor."""
    worker, stranger = WorkerSide(CODE, OFFER.run), SupervisorSide(WRONG, Offer("tcp://6.6.6.6:6", OFFER.run, token="x"))
    proof = worker.confirm(stranger.answer(worker.start()))
    assert not stranger.proven(proof)
    with pytest.raises(PairingFailed, match="it is not the supervisor"):
        worker.taken(stranger.grant())


class Told:
    """Collects the new codes that a server shows."""

    def __init__(self) -> None:
        self.codes: list[str] = []
        self.came = threading.Semaphore(0)

    def __call__(self, code: str) -> None:
        self.codes.append(code)
        self.came.release()


def at(server: PairingServer) -> Announced:
    return Service(OFFER.run, f"127.0.0.1:{server.port}", "")


def another(code: str) -> str:
    return f"{(int(code.replace('-', '')) + 1) % 10**8:08}"


def test_a_server_gives_the_token_once_for_a_code() -> None:
    with PairingServer(OFFER, "127.0.0.1", told := Told()) as server:
        code = server.code
        assert pair(at(server), code) == OFFER
        assert told.came.acquire(timeout=30) and told.codes == [server.code] and server.code != code
        with pytest.raises(Refused, match="wrong code"):
            pair(at(server), code)
        assert pair(at(server), server.code) == OFFER


def test_after_three_wrong_codes_there_is_a_new_one_and_a_pause() -> None:
    now = [0.0]
    with PairingServer(OFFER, "127.0.0.1", told := Told(), now=lambda: now[0]) as server:
        first = server.code
        for _ in range(3):
            assert told.codes == []
            with pytest.raises(Refused, match="wrong code"):
                pair(at(server), another(first))
        assert told.came.acquire(timeout=30) and told.codes == [server.code] and server.code != first
        with pytest.raises(Refused, match="too many wrong codes: nobody is let in for 60 s"):
            pair(at(server), server.code)
        now[0] = 61.0
        assert pair(at(server), server.code) == OFFER


def test_guesses_side_by_side_are_counted_one_by_one() -> None:
    """All begin with the same code before one of them is counted: still no more than three are looked at."""
    limits, counted = CodeLimits(), list[bool]()
    before = limits.tried

    def tried(number: int, right: bool, now: float) -> bool:
        counted.append(number == limits.number)
        return before(number, right, now)

    limits.tried = tried  # type: ignore[method-assign]
    with PairingServer(OFFER, "127.0.0.1", Told(), limits) as server:
        sides = [WorkerSide(another(server.code), OFFER.run) for _ in range(CONNECTIONS)]
        ends = [socket.create_connection(("127.0.0.1", server.port)) for _ in sides]
        frames = [Frames(end, 30) for end in ends]
        for side, each in zip(sides, frames, strict=True):
            each.send(side.start())
        proofs = [side.confirm(each.receive()) for side, each in zip(sides, frames, strict=True)]
        for each, proof in zip(frames, proofs, strict=True):
            each.send(proof)
        for side, each, end in zip(sides, frames, ends, strict=True):
            with end, pytest.raises(PairingFailed, match="wrong code"):
                side.taken(each.receive())
    assert sum(counted) == 3 and len(counted) == CONNECTIONS


@pytest.mark.parametrize(
    "said", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00", b"\xff\xff" + bytes(70_000), b"\x00\x05hello"]
)
def test_strangers_disturb_nobody(said: bytes) -> None:
    with PairingServer(OFFER, "127.0.0.1", Told()) as server:
        for _ in range(CONNECTIONS + 2):
            with socket.create_connection(("127.0.0.1", server.port)) as stranger:
                try:
                    stranger.sendall(said)
                    stranger.shutdown(socket.SHUT_WR)
                    while stranger.recv(4096):
                        pass
                except OSError:
                    pass
        assert pair(at(server), server.code) == OFFER


def test_a_code_that_is_none_is_not_sent() -> None:
    with pytest.raises(Misuse, match="not shown"):
        pair(Service(OFFER.run, "127.0.0.1:9", ""), "guitar")


def test_a_server_that_is_gone_is_told() -> None:
    with PairingServer(OFFER, "127.0.0.1", Told()) as server:
        service = at(server)
    with pytest.raises(Refused, match=r"127\.0\.0\.1:\d+ does not answer: "):
        pair(service, CODE)
