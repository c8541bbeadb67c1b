"""The known strategies by name, and their written form: ``ssp:3``, ``averaging:every=8``.

Two kinds: *streams* (``Broadcast`` and what is built on it) move what the codec emits; *methods* exchange vectors.
Modules are imported when their strategy is asked for, so that nobody pays for the others at the start.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from taut.errors import Misuse
from taut.specs import did_you_mean, named, pairs

if TYPE_CHECKING:
    from taut.strategies.api import Method
    from taut.strategies.broadcast.broadcast import Broadcast
    from taut.strategies.broadcast.log import Merge

STREAMS = {
    "async": "broadcast.asynchronous:Asynchronous",
    "independent": "broadcast.independent:Independent",
    "ssp": "broadcast.ssp:StaleSynchronous",
}
METHODS = {
    "admm": "periodic.admm:ADMM",
    "averaging": "periodic.averaging:Averaging",
    "diloco": "periodic.diloco:DiLoCo",
    "dynamic": "periodic.dynamic:Dynamic",
    "easgd": "server.easgd:EASGD",
    "fedavg": "periodic.fedavg:FedAvg",
    "sync": "allreduce.sync:Sync",
    "dpsgd": "gossip.dpsgd:DPSGD",
    "relay": "tree.relay:Relay",
    "server": "server.server:Server",
    "codistillation": "gossip.codistillation:Codistillation",
    "relaysgd": "gossip.relaysgd:RelaySGD",
    "choco": "gossip.choco:Choco",
    "gossipgrad": "gossip.gossipgrad:GossipGraD",
    "gossip": "gossip.gossip:Gossip",
    "sgp": "gossip.sgp:SGP",
    "adpsgd": "gossip.adpsgd:ADPSGD",
}
REGISTRY = STREAMS | METHODS
INTERNAL = {
    "probe": "probing.probe_method:Probing"
}  # methods that a command of its own chooses; they train nothing together


@dataclass(frozen=True)
class Choice:
    """A strategy that was written down, checked."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> type[Any]:
        module, _, name = (REGISTRY | INTERNAL)[self.name].partition(":")
        kind: type[Any] = getattr(importlib.import_module(f"taut.strategies.{module}"), name)
        return kind

    @property
    def is_method(self) -> bool:
        return self.name in METHODS or self.name in INTERNAL

    def method(self) -> Method:
        made: Method = self.kind(**self.settings)
        return made

    def stream(self, merge: Merge, **limits: Any) -> Broadcast:
        made: Broadcast = self.kind(merge=merge, **self.settings, **limits)
        return made

    def __str__(self) -> str:
        given = ",".join(f"{key}={_written(value)}" for key, value in self.settings.items())
        return f"{self.name}:{given}" if given else self.name


def parse(given: str | Mapping[str, Any]) -> Choice:
    """The strategy that was written down, as ``name``, ``name:value,key=value`` or a table with ``name``. Values without
    a key go to the parameters in order.

    >>> str(parse("async")), parse("dpsgd").is_method
    ('async', True)
    """
    name, rest, settings = named(given, "strategy", "ssp:3", '{ name = "ssp", slack = 3 }')
    positional: list[str] = []
    settings |= pairs(rest, f"strategy {given!r}", "averaging:every=8", positional)
    if name not in REGISTRY and name not in INTERNAL:
        raise Misuse(f"strategy {name!r}", f"one of {', '.join(sorted(REGISTRY))}", did_you_mean(name, REGISTRY))
    kind = Choice(name).kind
    hints = _parameters(kind, stream=name in STREAMS)
    if len(positional) > len(hints):
        raise Misuse(f"strategy {given!r}", f"at most {len(hints)} values: {', '.join(hints) or 'none'}")
    for key, value in zip(hints, positional, strict=False):
        if key in settings:
            raise Misuse(f"strategy {given!r}", f"{key} once")
        settings[key] = value
    for key in settings:
        if key not in hints:
            raise Misuse(f"strategy {name} with {key!r}", ", ".join(hints) or "no parameters", did_you_mean(key, hints))
    choice = Choice(name, {key: _value(settings[key], hints[key], f"{name}: {key}") for key in hints if key in settings})
    choice.method() if choice.is_method else choice.stream(b"".join)  # checks the values
    return choice


def on_topology(choice: Choice, topology: str) -> Choice:
    """The strategy as it runs on ``topology``: where not everybody is wired to everybody, ``async`` is relayed.

    >>> str(on_topology(parse("async"), "ring")), str(on_topology(parse("async"), "complete"))
    ('relay', 'async')
    """
    return Choice("relay") if choice.name == "async" and topology != "complete" else choice


def parameters(name: str) -> dict[str, Any]:
    """Names and defaults of what may be set of the strategy ``name``."""
    return _parameters(Choice(name).kind, stream=name in STREAMS)


def _parameters(kind: type[Any], stream: bool) -> dict[str, Any]:
    """Names and defaults of what the user may set."""
    from taut.strategies.broadcast.broadcast import Broadcast

    own = {one.name for one in dataclasses.fields(Broadcast)} if stream else set()
    return {one.name: one.default for one in dataclasses.fields(kind) if one.name not in own and one.init}


def _value(given: Any, default: Any, blame: str) -> Any:
    """``given`` as the type of the parameter's default."""
    if not isinstance(given, str):
        return given
    text = given.strip()
    if isinstance(default, bool):
        if text.lower() not in ("true", "false", "yes", "no", "on", "off", "1", "0"):
            raise Misuse(f"{blame}={given}", "true or false")
        return text.lower() in ("true", "yes", "on", "1")
    if isinstance(default, str):
        return text
    try:
        return int(text) if isinstance(default, int) else float(text) if isinstance(default, float) else _guess(text)
    except ValueError:
        expected = "a whole number" if isinstance(default, int) else "a number"
        raise Misuse(f"{blame}={given}", expected) from None


def _guess(text: str) -> Any:
    """For parameters without a default: a whole number, a number, or a word."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
