"""Checks of settings: each takes what the user wrote (a string from a flag or the environment, any TOML value from the
file) and the name to blame, and returns the value or raises ``Misuse``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from taut.core.finishes import FINISHES
from taut.errors import Misuse
from taut.quantities import LINK_EXAMPLE, parse_link, parse_resources
from taut.specs import did_you_mean, parse_address, parse_early_stop, parse_interval

Check = Callable[[object, str], Any]
_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def one_of(known: tuple[str, ...]) -> Check:
    def check(given: object, blame: str) -> str:
        if given not in known:
            raise Misuse(f"{blame} = {given!r}", "one of " + ", ".join(known), did_you_mean(str(given), known))
        return str(given)

    return check


def whole(lowest: int, highest: int) -> Check:
    def check(given: object, blame: str) -> int:
        try:
            number = int(given) if isinstance(given, str) else given
        except ValueError:
            number = None
        if not isinstance(number, int) or isinstance(number, bool) or not lowest <= number <= highest:
            raise Misuse(f"{blame} = {given!r}", f"a whole number from {lowest} to {highest}")
        return number

    return check


def text(given: object, blame: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise Misuse(f"{blame} = {given!r}", "a text that is not empty")
    return given.strip()


def run_name(given: object, blame: str) -> str:
    if not isinstance(given, str) or not _RUN_NAME.fullmatch(given) or given == "latest":
        raise Misuse(
            f"{blame} = {given!r}",
            "letters, digits, dots, dashes and underscores, a letter or digit first, at most 100",
            "'latest' always means the newest run" if given == "latest" else "",
        )
    return given


def modules(given: object, blame: str) -> tuple[str, ...]:
    words = given.split(",") if isinstance(given, str) else given
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise Misuse(f"{blame} = {given!r}", "a list of module names")
    return tuple(word.strip() for word in words if word.strip())


@contextmanager
def _blamed(given: object, blame: str) -> Iterator[None]:
    """Name the setting in what the block raises."""
    try:
        yield
    except Misuse as error:
        raise Misuse(f"{blame} = {given!r}: {error.given}", error.expected, error.remedy) from None


def codec(given: object, blame: str) -> str:
    """Return a codec in its written form, ``name`` or ``name:key=value,...``, whether it came so or as a table."""
    from taut.codecs import parse, spec

    with _blamed(given, blame):
        return spec(parse(given))  # type: ignore[arg-type]


def strategy(given: object, blame: str) -> str:
    """Return a strategy in its written form, ``name`` or ``name:value,key=value`` (or several: ``sync for 200 steps, then
    async``), whether it came so or as a table."""
    from taut.strategies.phases import parse_schedule

    with _blamed(given, blame):
        return str(parse_schedule(given))  # type: ignore[arg-type]


def topology(given: object, blame: str) -> str:
    """Return a topology in its written form. The file of ``file:PATH`` is read here: workers elsewhere need none."""
    from taut.topologies.registry import parse
    from taut.topologies.shapes.edge_list import resolve as read_file

    with _blamed(given, blame):
        written = read_file(text(given, blame), read_graph)
        parse(written)
        return written


def read_graph(path: str) -> str:
    """Read the file of a topology ``file:PATH``."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Misuse(f"file:{path} ({reason})", "a file with a list of edges, or node-link JSON") from None


def finish(given: object, blame: str) -> str:
    return str(one_of(FINISHES)(given, blame))


def interval(given: object, blame: str) -> str:
    parse_interval(given, blame)
    return str(given).strip()


def evaluation_interval(given: object, blame: str) -> str:
    found = parse_interval(given, blame)
    if found.unit == "epochs" and found.amount != int(found.amount):
        raise Misuse(f"{blame} = {given!r}", "a whole number of epochs", "or count steps, as in 200steps")
    return str(given).strip()


def early_stop(given: object, blame: str) -> str:
    return str(parse_early_stop(given, blame))


def address(given: object, blame: str) -> str:
    host, port = parse_address(given, blame)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def link(given: object, blame: str) -> str:
    if not isinstance(given, str):
        raise Misuse(f"{blame} = {given!r}", "a rate with its unit", LINK_EXAMPLE)
    parse_link(given, f"{blame} = {given!r}")
    return given.strip()


def hosts(given: object, blame: str) -> str:
    """Return hosts as a list in one text, or the path of their file, which is read here to be checked."""
    from taut.config.hosts import read_hosts

    written = text(",".join(map(str, given)) if isinstance(given, list) else given, blame)
    read_hosts(written, blame)
    return written


def paths(given: object, blame: str) -> tuple[str, ...]:
    words = [given] if isinstance(given, str) else given
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) and word for word in words):
        raise Misuse(f"{blame} = {given!r}", "a list of paths")
    return tuple(words)


def resources(given: object, blame: str) -> str:
    """Return resources in their written form, ``CPU=1,GPU=0.5``, whether they came so or as a table."""
    written = ",".join(f"{name}={amount}" for name, amount in given.items()) if isinstance(given, dict) else given
    parse_resources(written, f"{blame} = {given!r}")
    return str(written)


def engine(given: object, blame: str) -> str:
    from taut.plugins import ENGINES

    name = text(given, blame)
    ENGINES.find(name)
    return name


def devices(given: object, blame: str) -> str:
    words = [
        str(word).strip().removeprefix("cuda:") for word in (given if isinstance(given, list) else str(given).split(","))
    ]
    if words != ["auto"] and not all(word == "cpu" or (word.isdecimal() and word.isascii()) for word in words):
        raise Misuse(f"{blame} = {given!r}", "auto, cpu, or numbers of GPUs", "as in 0,1 or 0,0,cpu")
    return ",".join(words)


def scale_lr(given: object, blame: str) -> str:
    from taut.strategies.rate_scaling import parse_rate_scaling

    return str(parse_rate_scaling(given, blame))


def transport(given: object, blame: str) -> str:
    from taut.plugins import TRANSPORTS

    name = text(given, blame)
    if not TRANSPORTS.find(name).between_processes:
        raise Misuse(f"{blame} = {name!r}", "a transport between processes", "zmq is the default")
    return name
