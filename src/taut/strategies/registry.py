"""The known strategies by name, and their written form: ``ssp:3``, ``averaging:every=8``.

Two kinds: *streams* (``Broadcast`` and the classes made from it) move what the codec emits; *methods* exchange vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from taut.plugins import STRATEGIES as REGISTRY
from taut.specs import parse_spec, settings_of

if TYPE_CHECKING:
    from taut.strategies.api import Method
    from taut.strategies.broadcast.broadcast import Broadcast
    from taut.strategies.broadcast.log import Merge

__all__ = ["REGISTRY", "Choice", "on_topology", "parameters", "parse"]


@dataclass(frozen=True)
class Choice:
    """A strategy that was written down, checked."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> type[Any]:
        kind: type[Any] = REGISTRY[self.name]
        return kind

    @property
    def is_method(self) -> bool:
        """Return whether the strategy is a method, and not a stream."""
        from taut.strategies.api import Method

        return issubclass(self.kind, Method)

    def method(self) -> Method:
        made: Method = self.kind(**self.settings)
        return made

    def stream(self, merge: Merge, **limits: Any) -> Broadcast:
        """Return a new instance of the stream; ``limits``: the settings of a stream that users do not set."""
        made: Broadcast = self.kind(merge=merge, **self.settings, **limits)
        return made

    def __str__(self) -> str:
        given = ",".join(
            f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in self.settings.items()
        )
        return f"{self.name}:{given}" if given else self.name


def parse(given: str | Mapping[str, Any]) -> Choice:
    """Read a strategy: ``name``, ``name:value,key=value`` or a table with ``name``. Values without a key go in order.

    >>> str(parse("async")), parse("dpsgd").is_method, str(parse("easgd:every=2^3"))
    ('async', True, 'easgd:every=8')
    """
    choice = Choice(*parse_spec(given, REGISTRY, "averaging:every=8", fields_of=_settings, positional=True))
    choice.method() if choice.is_method else choice.stream(b"".join)  # checks the values
    return choice


def on_topology(choice: Choice, topology: str) -> Choice:
    """Return the strategy as it runs on ``topology``: where workers have no channel to each other, ``async`` and ``ssp``
    are relayed, with the same settings.

    >>> [str(on_topology(parse(name), "ring")) for name in ("async", "ssp", "ssp:2")]
    ['relay', 'relay:slack=3', 'relay:slack=2']
    >>> str(on_topology(parse("async"), "complete"))
    'async'
    """
    sparse: str = choice.kind.info.on_sparse
    if not sparse or topology == "complete":
        return choice
    return Choice(sparse, {**parameters(choice.name), **choice.settings})


def parameters(name: str) -> dict[str, Any]:
    """Return names and defaults of the parameters of the strategy ``name``."""
    kind = REGISTRY[name]
    return {one.name: one.default for one in fields(kind) if one.name in _settings(kind)}


def _settings(kind: type[Any]) -> dict[str, Any]:
    """Return what a user may set: not the limits that all streams have."""
    from taut.strategies.broadcast.broadcast import Broadcast

    own = settings_of(Broadcast) if issubclass(kind, Broadcast) else ()
    return {name: hint for name, hint in settings_of(kind).items() if name not in own}
