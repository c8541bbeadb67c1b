"""A list of names is written once, in ``taut.plugins`` (or where its registry is); all others ask the registry.

A literal tuple, list, set or dict in src that has three or more names of one registry is such a list again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import pytest
from sources import PATHS, named, nodes_in, nodes_of

from taut import collectives
from taut.plugins import CODECS, STRATEGIES, TOPOLOGIES
from taut.topologies.mixing import KINDS

REGISTRIES: dict[str, frozenset[str]] = {
    "strategies": frozenset(STRATEGIES.own),
    "codecs": frozenset(CODECS.own),
    "topologies": frozenset(TOPOLOGIES.own),
    "schedules": frozenset(collectives.REGISTRY),
}
MANY = 3
# What is no statement about the registry: a choice of examples, which need not follow when a name is added.
EXAMPLES: Mapping[str, str] = {
    "plugins.py": "the registry itself",
    "testing/soak/cases.py": "the soak's seeds draw from these topologies, and must keep their meaning",
}


def lists(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the texts of every literal collection; of a dict, its keys."""
    exported = [node.value for node in nodes if isinstance(node, ast.Assign) and _is_all(node)]
    for node in nodes:
        if node in exported:
            continue
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            parts: list[ast.expr] = node.elts
        elif isinstance(node, ast.Dict):
            parts = [key for key in node.keys if key is not None]
        else:
            continue
        yield (
            node.lineno,
            [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)],
        )


def _is_all(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)


def twins(nodes: Sequence[ast.AST]) -> list[tuple[int, str, list[str]]]:
    """Return the literal collections that hold names of a registry: line, registry, names."""
    found = []
    for line, texts in lists(nodes):
        names = {text.partition(":")[0].strip() for text in texts}
        found += [(line, kind, sorted(names & known)) for kind, known in REGISTRIES.items() if len(names & known) >= MANY]
    return found


def test_no_list_of_names_is_written_again() -> None:
    found = {named(path): twins(nodes_of(path)) for path in PATHS}
    again = {name: lines for name, lines in found.items() if lines and name not in EXAMPLES}
    assert again == {}, "ask the class (StrategyInfo, CodecInfo, Shape) or the registry instead"
    unused = [name for name in EXAMPLES if not found[name]]
    assert unused == [], "it has no such list any more: take it out of EXAMPLES"


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ('SLOW = ("sync", "ssp:3", "averaging:every=8")', "strategies"),
        ('COST = {"topk": 1, "int8": 2, "dense": 3}', "codecs"),
        ('if shape in {"ring", "torus", "star"}: pass', "topologies"),
        ('SCHEDULES = ["ring", "tree", "halving-doubling"]', "schedules"),
    ],
)
def test_the_check_sees_a_list(source: str, kind: str) -> None:
    assert kind in {one[1] for one in twins(nodes_in(source))}


def test_two_names_are_no_list() -> None:
    assert twins(nodes_in('CODECS = ("tether", "threshold", "mine")')) == []


def test_mixing_kinds_are_known_once() -> None:
    found = [named(path) for path in PATHS for _, names in lists(nodes_of(path)) if set(KINDS) <= {*names}]
    assert found == ["topologies/mixing.py"]


def test_every_codec_can_be_imported_from_the_package() -> None:
    """``taut.codecs`` names its classes for users and type checkers; the registry knows them by name."""
    from taut import codecs

    assert {kind.__name__ for kind in (CODECS[name] for name in CODECS.own)} <= set(codecs.__all__)
