"""Where the processes of a launch meet: what one leaves, the others find, and nobody else's word is taken."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from taut.engines.launchers.base import Launch
from taut.engines.launchers.enter import await_offer
from taut.engines.launchers.rendezvous import (
    FileRendezvous,
    MalformedOffer,
    Offer,
    Rendezvous,
    Several,
    decode,
    token_file_seen,
)
from taut.engines.launchers.supervisor_process import NotStarted, SupervisorProcess
from taut.engines.launchers.tcp_store import StoreRendezvous
from taut.errors import Misuse, NetworkError, RunFailed, SupervisorLost, TautError

OFFER = Offer("tcp://10.0.0.7:4000", "quiet-otter", "/runs/quiet-otter/token")
LAUNCH = Launch("srun", 2, 4, 0, 1, "7-0-0")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_file_is_found_by_the_others_and_removed(tmp_path: Path) -> None:
    mine, theirs = (FileRendezvous(str(tmp_path / "runs"), "slurm-7-0-0") for _ in range(2))
    assert theirs.look() is None
    mine.leave(OFFER)
    assert mine.path.stat().st_mode & 0o777 == 0o600
    assert theirs.look() == OFFER
    theirs.close()
    assert theirs.look() == OFFER, "only rank 0 takes it back"
    mine.close()
    assert theirs.look() is None
    mine.close()


def test_a_file_that_another_user_could_have_written_is_none(tmp_path: Path) -> None:
    here = FileRendezvous(str(tmp_path), "x")
    here.leave(OFFER)
    here.path.chmod(0o666)
    assert here.look() is None
    here.path.chmod(0o600)
    assert here.look() == OFFER
    real = tmp_path / "real"
    here.path.rename(real)
    here.path.symlink_to(real)
    assert here.look() is None
    here.path.unlink()
    if os.geteuid() == 0:
        real.rename(here.path)
        os.chown(here.path, 1234, -1)
        assert here.look() is None


def test_a_key_is_no_path(tmp_path: Path) -> None:
    assert FileRendezvous(str(tmp_path), "../../etc/x y").path.parent == tmp_path


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"address": 1}', b'{"unknown": ""}', b"x" * 20_000])
def test_anything_else_than_an_offer_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedOffer):
        decode(data)


def test_a_store_has_the_token_only_while_somebody_asked_for_it() -> None:
    port = free_port()
    agent = StoreRendezvous("127.0.0.1", [port], "torchrun's own", serves=True)
    mine = StoreRendezvous("127.0.0.1", [port], "taut/x", serves=False)
    theirs = StoreRendezvous("127.0.0.1", [port], "taut/x", serves=False)
    other = StoreRendezvous("127.0.0.1", [port], "taut/y", serves=False)
    assert theirs.look() is None and "refused" in theirs.place
    agent.leave(OFFER)
    assert theirs.look() is None
    mine.leave(OFFER)
    assert theirs.look() == OFFER and other.look() is None
    mine.serve("secret")
    found = theirs.look()
    assert found is not None and not found.token, "nobody asked"
    theirs.ask(2)
    mine.serve("secret")
    found = theirs.look()
    assert found is not None and found.token == "secret"
    mine.close()
    gone = theirs.look()
    assert gone is not None and not gone.token
    agent.close()
    assert theirs.look() is None, "the store is gone: no error, it may come back"


def test_a_store_takes_the_next_port_where_one_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = int(taken.getsockname()[1])
        with pytest.raises(Misuse, match="free port"):
            StoreRendezvous("127.0.0.1", [port], "taut/x", serves=True).leave(OFFER)
        StoreRendezvous("127.0.0.1", [port, free_port()], "taut/x", serves=True).leave(OFFER)


def test_rank_0_says_that_the_store_is_out_of_reach() -> None:
    with pytest.raises(NetworkError, match=r"rank 0 could not reach the store at 127\.0\.0\.1"):
        StoreRendezvous("127.0.0.1", [free_port()], "taut/x", serves=False).leave(OFFER)


def test_several_places_are_tried_in_turn(tmp_path: Path) -> None:
    first, second = FileRendezvous(str(tmp_path / "a"), "x"), FileRendezvous(str(tmp_path / "b"), "x")
    both = Several([first, second])
    assert both.look() is None
    second.leave(OFFER)
    assert both.look() == OFFER
    both.close()
    assert second.look() is None
    (tmp_path / "file").write_text("")
    nowhere = FileRendezvous(str(tmp_path / "file"), "x")
    Several([nowhere, second]).leave(OFFER)
    assert both.look() == OFFER, "one place is enough"
    with pytest.raises(OSError, match="file"):
        Several([nowhere]).leave(OFFER)
    assert str(first.path) in both.place and str(second.path) in both.place


def test_the_token_is_found_where_this_host_sees_it(tmp_path: Path) -> None:
    offer = Offer("tcp://a:1", "quiet-otter", "/elsewhere/runs/quiet-otter/token")
    assert token_file_seen(offer, str(tmp_path)) is None
    here = tmp_path / "quiet-otter" / "token"
    here.parent.mkdir()
    here.write_text("x")
    assert token_file_seen(offer, str(tmp_path)) is None, "others can read it"
    here.chmod(0o600)
    assert token_file_seen(offer, str(tmp_path)) == here
    assert token_file_seen(Offer("tcp://a:1", "quiet-otter"), str(tmp_path)) is None


class Nowhere(Rendezvous):
    """A place where ``offers`` come one after the other, then nothing."""

    def __init__(self, *offers: Offer | None) -> None:
        self._offers = list(offers)

    @property
    def place(self) -> str:
        return "the moon"

    def leave(self, offer: Offer) -> None:
        self._offers.append(offer)

    def look(self) -> Offer | None:
        return self._offers.pop(0) if self._offers else None


class Clock:
    """A time that passes only in ``sleep``."""

    now_s = 0.0

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_who_finds_nobody_says_what_was_tried_and_gives_up() -> None:
    clock = Clock()
    with pytest.raises(SupervisorLost) as lost:
        await_offer(Nowhere(), LAUNCH, 300.0, now=clock.now, pause=clock.sleep)
    assert 300.0 <= clock.now_s < 301.0
    assert lost.value.exit_code == 1
    for words in ("srun started 4 processes", "rank 2", "300 s", "tried: the moon", "TAUT_LAUNCHER=none"):
        assert words in str(lost.value)


def test_who_is_told_that_there_is_no_run_does_not_wait() -> None:
    clock = Clock()
    with pytest.raises(RunFailed, match="rank 0 of srun could not start the run: bad strategy"):
        await_offer(Nowhere(None, Offer(error="bad strategy")), LAUNCH, 300.0, now=clock.now, pause=clock.sleep)
    assert clock.now_s < 1.0


def test_an_offer_that_is_not_enough_is_waited_on() -> None:
    clock, whole = Clock(), Offer("tcp://a:1", token="secret")
    places = Nowhere(Offer("tcp://a:1"), None, whole)
    assert await_offer(places, LAUNCH, 9.0, lambda one: bool(one.token), now=clock.now, pause=clock.sleep) == whole


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        (b'{"refused": "no such folder", "code": 2}\n', NotStarted, "no such folder"),
        (b'{"refused": "\xff"}\n', MalformedOffer, "refused"),
        (b"nonsense\n", MalformedOffer, "malformed"),
        (b"", RunFailed, "ended"),
    ],
)
def test_what_the_supervisors_process_answers_is_an_offer_or_an_error(
    said: bytes, error: type[TautError], words: str
) -> None:
    reads, writes = os.pipe()
    os.write(writes, said)
    os.close(writes)
    try:
        with pytest.raises(error, match=words):
            SupervisorProcess._answer(None, reads)  # type: ignore[arg-type]
    finally:
        os.close(reads)
