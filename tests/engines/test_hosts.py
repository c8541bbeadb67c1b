"""Hosts as they are written: a list or a TOML file, and how many workers each gets."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.config import resolve
from taut.config.hosts import Host, dealt, parse_hosts, parse_hosts_toml, read_hosts, with_hosts
from taut.engines.ssh.session import command
from taut.errors import Misuse

NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
USERS = st.none() | st.from_regex(r"[a-z][a-z0-9_-]{0,10}", fullmatch=True)
COUNTS = st.none() | st.integers(1, 4096)
LISTS = st.lists(st.tuples(NAMES, USERS, COUNTS), min_size=1, max_size=6, unique_by=lambda item: item[0])


def written(items: list[tuple[str, str | None, int | None]]) -> str:
    return ",".join((f"{u}@" if u else "") + name + (f":{count}" if count else "") for name, u, count in items)


@given(LISTS)
def test_a_list_is_read_as_it_was_written(items: list[tuple[str, str | None, int | None]]) -> None:
    found = parse_hosts(written(items))
    assert [(host.name, host.user or None, host.workers) for host in found] == items


@given(LISTS)
def test_a_file_says_the_same_as_a_list(items: list[tuple[str, str | None, int | None]]) -> None:
    lines = []
    for name, user, count in items:
        lines += [
            f'[hosts."{name}"]',
            *([f'user = "{user}"'] if user else []),
            *([f"workers = {count}"] if count else []),
        ]
    assert parse_hosts_toml("\n".join(lines), "hosts.toml") == parse_hosts(written(items))


@given(st.text(max_size=40))
def test_any_text_is_hosts_or_a_misuse(text: str) -> None:
    try:
        hosts = parse_hosts(text)
    except Misuse:
        return
    for host in hosts:  # nothing on ssh's command line is an option, or means something to a shell
        words = command(host, ["ssh"], "python3")
        assert words[words.index("--") + 1] == host.destination
        assert not host.destination.startswith("-")
        assert not set(host.destination) & set(" \t\n;&|<>$`'\"\\*?!(){}/")


@given(st.text(max_size=60))
def test_any_file_is_hosts_or_a_misuse(text: str) -> None:
    with contextlib.suppress(Misuse):
        assert parse_hosts_toml(text, "hosts.toml")


@given(st.lists(COUNTS, min_size=1, max_size=6), st.none() | st.integers(1, 10_000))
def test_workers_are_dealt(counts: list[int | None], workers: int | None) -> None:
    hosts = [Host(f"h{number}", workers=count) for number, count in enumerate(counts)]
    try:
        found = [host.workers or 0 for host in dealt(hosts, workers)]
    except Misuse:
        asked = sum(count or 1 for count in counts)
        assert workers is not None
        assert workers < asked or (workers > asked and None not in counts)
        return
    assert all(now >= 1 and count in (None, now) for count, now in zip(counts, found, strict=True))
    assert workers in (None, sum(found))
    shares = [now for count, now in zip(counts, found, strict=True) if count is None]
    assert not shares or max(shares) - min(shares) <= 1
    assert workers is not None or set(shares) <= {1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'': expected [USER@]HOST[:WORKERS]; as in a,b:2,ada@c"),
        ("a,,b", "''"),
        ("a,-oProxyCommand=x", "'-oProxyCommand=x'"),
        ("-b@a", "'-b@a'"),
        ("a:0", "a whole number from 1 to 4096"),
        ("a:x", "'a:x'"),
        ("a b", "'a b'"),
        ("a;reboot", "'a;reboot'"),
        ("a,b,a", "a twice: expected each host once; a:2 puts two workers on it"),
    ],
)
def test_a_list_that_cannot_be(text: str, words: str) -> None:
    with pytest.raises(Misuse) as told:
        parse_hosts(text)
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "hosts: expected a table [hosts.NAME] for each host"),
        ("hosts = 3", "a table [hosts.NAME]"),
        ("[hosts]\na = 3", "a table [hosts.NAME]"),
        ("[host.a]", "did you mean 'hosts'?"),
        ("[hosts.a]\nprot = 22", "did you mean 'port'?"),
        ("[hosts.a]\nport = 0", "[hosts.a] port = 0: expected a whole number from 1 to 65535"),
        ("[hosts.a]\nport = true", "a whole number"),
        ("[hosts.a]\nworkers = 1.5", "a whole number"),
        ('[hosts.a]\nuser = "-x"', "the name of a user there"),
        ('[hosts.a]\npython = ""', "a text that is not empty"),
        ('[hosts.a]\naddress = "-x"', "does not begin with a dash"),
        ('[hosts.a]\naddress = "x y"', "a host's name or address"),
        ('[hosts."-x"]', "a host's name or address"),
        ('[hosts.a]\ndevices = "gpu"', "auto, cpu, or numbers of GPUs"),
        ("defaults = 1\n[hosts.a]", "a table [defaults]"),
        ("[hosts.a", "a TOML file"),
    ],
)
def test_a_file_that_cannot_be(text: str, words: str) -> None:
    with pytest.raises(Misuse) as told:
        parse_hosts_toml(text, "hosts.toml")
    assert words in str(told.value)


def test_a_file_says_more(tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text(
        '[defaults]\nuser = "ada"\nworkers = 2\n[hosts.a]\n[hosts.b]\naddress = "10.0.0.2"\nport = 2222\n'
        'python = "/opt/env/bin/python"\ndirectory = "/srv/job"\nworkers = 1\ndevices = "0,1"\n'
    )
    a, b = read_hosts(str(tmp_path / "hosts.toml"))
    assert a == Host("a", user="ada", workers=2)
    assert b == Host("b", "10.0.0.2", "ada", 2222, "/opt/env/bin/python", "/srv/job", 1, "0,1")
    with pytest.raises(Misuse, match="No such file"):
        read_hosts(str(tmp_path / "none.toml"))


def settings(**flags: object):  # type: ignore[no-untyped-def]
    return resolve(flags, environ={}, cwd="/nowhere")


def test_hosts_choose_the_engine_and_the_workers() -> None:
    found = with_hosts(settings(hosts="a,b:2"))
    assert (found.engine, found.workers) == ("ssh", 3)
    assert with_hosts(settings(hosts="a,b", workers=5)).workers == 5
    assert with_hosts(settings(workers=5)) == settings(workers=5)
    assert with_hosts(settings(hosts=["a", "b:2"], engine="ssh")).workers == 3


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"hosts": "a", "engine": "local"}, "--engine local beside --hosts: expected --engine ssh, or none"),
        ({"same_file": ("x",)}, "--same-file x without --hosts"),
        ({"hosts": "a,b:2", "workers": 2}, "--workers 2 beside --hosts: expected at least 3 workers"),
        ({"hosts": "a:1,b:2", "workers": 4}, "expected 3 workers, as the hosts say"),
        ({"hosts": "a;b"}, "--hosts = 'a;b'"),
    ],
)
def test_settings_that_do_not_go_together(flags: dict[str, object], words: str) -> None:
    with pytest.raises(Misuse) as told:
        with_hosts(settings(**flags))
    assert words in str(told.value)
