"""Resources of a Ray cluster, as plain numbers: what a worker asks for, and how many workers the nodes have room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from taut.errors import Misuse

Resources = Mapping[str, float]
_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}  # what Ray has an option of its own for
_SHOWN = ("CPU", "GPU")


def room(nodes: Sequence[Resources], each: Resources) -> int:
    """Return how many workers fit into ``nodes`` if each takes ``each`` of one node.

    >>> room([{"CPU": 4.0}, {"CPU": 1.5}], {"CPU": 1.0}), room([{"CPU": 4.0}], {"CPU": 1.0, "GPU": 1.0})
    (5, 0)
    """
    return sum(min(int(node.get(name, 0.0) / amount + 1e-9) for name, amount in each.items()) for node in nodes)


def check_room(workers: int, each: Resources, nodes: Sequence[Resources], placement: str) -> None:
    """Raise ``Misuse`` where so many workers do not fit into ``nodes``, whoever uses them now."""
    fits = room(nodes, each)
    if placement == "STRICT_SPREAD":
        fits = sum(room([node], each) > 0 for node in nodes)
    elif placement == "STRICT_PACK":
        fits = max((room([node], each) for node in nodes), default=0)
    if fits < workers:
        raise Misuse(
            f"{workers} workers with {resources_text(each)} each",
            f"a Ray cluster with room for them; this one has room for {fits} ({nodes_text(nodes, each)})",
            "take fewer --workers or less of --ray-resources; where nodes are added, --ray-wait-s 600 waits for them",
        )


def actor_options(each: Resources) -> dict[str, Any]:
    """Return ``each`` as Ray's options of an actor.

    >>> actor_options({"GPU": 0.5, "tpu": 1.0})
    {'num_cpus': 0, 'num_gpus': 0.5, 'resources': {'tpu': 1.0}}
    """
    named = {_OPTIONS[name]: amount for name, amount in each.items() if name in _OPTIONS}
    return {"num_cpus": 0} | named | {"resources": {name: each[name] for name in each if name not in _OPTIONS}}


def resources_text(each: Resources) -> str:
    """Return resources as they are written.

    >>> resources_text({"CPU": 1.0, "GPU": 0.5})
    'CPU=1,GPU=0.5'
    """
    return ",".join(f"{name}={amount:g}" for name, amount in each.items())


def nodes_text(nodes: Sequence[Resources], each: Resources) -> str:
    """Return what the nodes have, those that are alike as one.

    >>> nodes_text([{"CPU": 2.0, "x": 1.0}, {"CPU": 2.0}, {"CPU": 1.0}], {"CPU": 1.0})
    '2 nodes with CPU=2,GPU=0; 1 node with CPU=1,GPU=0'
    """
    names = dict.fromkeys((*_SHOWN, *each))
    counts: dict[str, int] = {}
    for node in nodes:
        text = resources_text({name: node.get(name, 0.0) for name in names})
        counts[text] = counts.get(text, 0) + 1
    return "; ".join(f"{count} node{'s' * (count > 1)} with {text}" for text, count in counts.items()) or "no nodes"
