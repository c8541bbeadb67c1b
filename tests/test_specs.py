"""One reader for all that is written as ``name:key=value``: a number is a number, and yes is yes, wherever it stands."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut import codecs, strategies, topologies
from taut.errors import Misuse
from taut.specs import number, parse_spec, truth, whole


@pytest.mark.parametrize(
    ("read", "spec", "attribute", "value"),
    [
        (codecs.parse, "threshold:tau=2^-8", "tau", 2**-8),
        (codecs.parse, "powersgd:rank=2^2", "compressor.rank", 4),
        (codecs.parse, "topk:density=1e-3,feedback=off", "keep", False),
        (strategies.parse, "server:push=2**3", "settings.push", 8),
        (strategies.parse, "dpsgd:mu=2^-1,tracking=on", "settings.tracking", True),
        (strategies.parse, "dpsgd:mu=5e-1", "settings.mu", 0.5),
        (strategies.parse, "sync:1e0", "name", None),
        (topologies.parse, "matcha:budget=2^-2", "budget", 0.25),
        (topologies.parse, "exponential:directed=off", "directed", False),
        (topologies.parse, "random:degree=1e1", "degree", 10),
    ],
)
def test_numbers_and_answers_are_written_alike_everywhere(read: Any, spec: str, attribute: str, value: object) -> None:
    if value is None:
        with pytest.raises(Misuse, match="schedule=1e0"):
            read(spec)
        return
    found = read(spec)
    for name in attribute.split("."):
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("word", ["yes", "True", " on ", "1", True, 1])
def test_yes(word: object) -> None:
    assert truth(word, "key") is True


@pytest.mark.parametrize("word", ["no", "FALSE", "off", "0", False, 0])
def test_no(word: object) -> None:
    assert truth(word, "key") is False


@given(st.integers(-(10**30), 10**30))
def test_whole_numbers_of_any_length_are_read_back(value: int) -> None:
    assert whole(str(value), "key") == whole(value, "key") == value


@given(st.floats(allow_nan=False))
def test_numbers_are_read_back(value: float) -> None:
    assert number(repr(value), "key") == number(value, "key") == value


@pytest.mark.parametrize(
    ("read", "given", "expected"),
    [
        (whole, "2.5", "a whole number"),
        (whole, "inf", "a whole number"),
        (whole, "nan", "a whole number"),
        (whole, "two", "a whole number"),
        (whole, True, "a whole number"),
        (number, "2^99999", "a number such as"),
        (number, True, "a number such as"),
        (number, None, "a number such as"),
        (truth, "perhaps", "yes or no"),
        (truth, 2, "yes or no"),
    ],
)
def test_what_is_none_is_refused(read: Any, given: object, expected: str) -> None:
    with pytest.raises(Misuse, match=f"key={given}: expected {expected}".replace("^", r"\^")):
        read(given, "key")


@dataclass
class Mine:
    """As a package elsewhere may write it: with annotations that are no text."""

    rate: float = 0.5
    limit: Optional[int] = None  # noqa: UP045
    mode: str = "plain"
    loud: bool = False
    other: Any = 0


KINDS = SimpleNamespace(kind="codec", find=lambda name, remedy="": Mine)


def test_annotations_may_be_types() -> None:
    _, found = parse_spec("mine:rate=1,limit=3,mode= x ,loud=on,other=2", KINDS, "mine:rate=1")
    assert found == {"rate": 1.0, "limit": 3, "mode": "x", "loud": True, "other": 2}
    assert [type(value) for value in found.values()] == [float, int, str, bool, int]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("mine:rats=1", "codec mine with 'rats': expected rate, limit, mode, loud, other; did you mean 'rate'"),
        ("mine:1", "expected name:key=value,key=value; as in mine:rate=1"),
        ("mine:rate=1,rate=2", "expected rate once"),
        ({"rate": 1}, 'a table with a name, such as { name = "mine", rate = 1 }'),
        (7, "codec 7: expected a text such as 'mine:rate=1', or a table"),
    ],
)
def test_misuse_says_given_expected_and_remedy(spec: object, says: str) -> None:
    with pytest.raises(Misuse) as caught:
        parse_spec(spec, KINDS, "mine:rate=1")
    assert says in str(caught.value)


def test_values_without_a_key_go_to_the_settings_in_order() -> None:
    assert parse_spec("mine:0.25,4,loud=yes", KINDS, "", positional=True)[1] == {"rate": 0.25, "limit": 4, "loud": True}
    for spec, says in (("mine:1,rate=2", "rate once"), ("mine:1,2,a,no,5,6", "at most 5 values")):
        with pytest.raises(Misuse, match=says):
            parse_spec(spec, KINDS, "", positional=True)
