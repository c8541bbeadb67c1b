"""Names that installed packages add: found when they are wanted, and refused with the package's name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from taut.codecs.registry import kernels_of
from taut.config import resolve
from taut.errors import Misuse
from taut.plugins import CODECS, ENGINES, STRATEGIES, TOPOLOGIES, TRANSPORTS, Registry
from taut.strategies.compatibility import codecs_in_use
from taut.strategies.phases import parse_schedule

Install = Callable[..., None]
OWN = {"dense": "codecs.algorithms.dense:Dense"}
BASES = ("codecs.codec:Codec",)
CODEC = "from taut.codecs import Dense\nclass Mine(Dense):\n    name = 'mine'\nclass Other(Dense):\n    name = 'other'\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package into a folder of its own on the path: as pip leaves it, of what matters here."""

    def made(package: str, source: str = CODEC, **entries: str) -> None:
        folder = tmp_path / package
        info = folder / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (folder / f"{package}.py").write_text(source)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {package}:{value}" for name, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join(["[taut.codecs]", *lines, ""]))
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, package, raising=False)

    return made


def test_a_package_adds_a_name(install: Install) -> None:
    install("one", mine="Mine", other="Other")
    registry: Registry[type] = Registry("taut.codecs", OWN, BASES)
    assert list(registry) == ["dense", "mine", "other"] and len(registry) == 3
    assert registry.find("mine").__name__ == "Mine" and registry["dense"].__name__ == "Dense"
    assert sorted(registry) == ["dense", "mine", "other"], "loading a class changes no name"


def test_names_of_ones_own_need_no_search(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("one", "raise RuntimeError('imported')", mine="Mine")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: pytest.fail("packages were searched"))
    registry: Registry[type] = Registry("taut.codecs", OWN, BASES)
    assert "dense" in registry and registry.find("dense").__name__ == "Dense"


def test_a_run_with_tauts_own_needs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search takes longer than a command may take to start."""
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: pytest.fail("packages were searched"))
    for registry in (STRATEGIES, CODECS, TOPOLOGIES, TRANSPORTS, ENGINES):
        registry.__dict__.pop("_plugins", None)
    flags = {"strategy": "sync", "codec": "topk:density=0.01", "topology": "ring", "workers": 4}
    named = {"engine": "local", "transport": "zmq"}
    chosen = resolve({**flags, **named}, environ={}, cwd="/nowhere").fitted()
    assert (chosen.codec, chosen.engine) == ("topk:density=0.01", "local")
    assert kernels_of(codecs_in_use(parse_schedule(chosen.strategy), chosen.topology, [chosen.codec]))


def test_names_are_listed_without_importing(install: Install) -> None:
    install("one", "raise RuntimeError('imported')", mine="Mine")
    assert list(Registry("taut.codecs", OWN, BASES)) == ["dense", "mine"]
    assert "one" not in sys.modules


def test_an_unknown_name_lists_all(install: Install) -> None:
    install("one", mine="Mine")
    with pytest.raises(Misuse, match=r"codec 'min': expected one of dense, mine; did you mean 'mine'\?"):
        Registry("taut.codecs", OWN, BASES).find("min")
    with pytest.raises(KeyError):
        Registry("taut.codecs", OWN, BASES)["min"]


@pytest.mark.parametrize(
    ("source", "entries", "said"),
    [
        ("import nothing_here", {"mine": "Mine"}, r"one:Mine to be importable \(ModuleNotFoundError: .*nothing_here"),
        ("raise RuntimeError('no GPU')", {"mine": "Mine"}, r"\(RuntimeError: no GPU\)"),
        (CODEC, {"mine": "Missing"}, "Missing"),
        ("def Mine(): pass", {"mine": "Mine"}, "one:Mine to be a class made from Codec"),
        (CODEC, {"mine": "Other"}, "the class's own name, 'other'"),
    ],
)
def test_a_broken_package_is_named(install: Install, source: str, entries: dict[str, str], said: str) -> None:
    install("one", source, **entries)
    with pytest.raises(Misuse, match=f"codec 'mine' of the package one 1.0: expected .*{said}.*; .*pip uninstall one"):
        Registry("taut.codecs", OWN, BASES).find("mine")


def test_a_name_of_tauts_own_is_refused(install: Install) -> None:
    install("one", dense="Mine")
    registry: Registry[type] = Registry("taut.codecs", OWN, BASES)
    assert registry["dense"].__module__ == "taut.codecs.algorithms.dense", "the package cannot take it"
    with pytest.raises(Misuse, match=r"codec 'dense' of the package one 1.0: expected a name that taut does not use"):
        list(registry)


def test_two_packages_with_one_name_are_refused(install: Install) -> None:
    install("one", mine="Mine")
    install("two", mine="Mine")
    with pytest.raises(Misuse, match=r"of the package two 1.0: expected a name that the package one 1.0 does not use"):
        Registry("taut.codecs", OWN, BASES).find("mine")


def test_a_script_may_add_a_name(install: Install) -> None:
    registry: Registry[type] = Registry("taut.codecs", OWN, BASES)
    registry["mine"] = int
    assert registry.find("mine") is int
    del registry["mine"]
    assert "mine" not in registry
