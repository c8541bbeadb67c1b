"""Every number, text and list of every message is bounded where it is decoded; what is sent here is within the bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from fuzzers.message_samples import message_samples
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from taut.core import messages as m
from taut.core.messages.base import Tidy
from taut.errors import MalformedMessage
from taut.transport.framing import decode, encode, payload_count

FAMILIES = (m.PeerMessage, m.WorkerMessage, m.SupervisorMessage)
KINDS = [kind for family in FAMILIES for kind in get_args(family)]
ABSURD = (math.nan, math.inf, -math.inf, 1e39, -1e39, 1e200, 1e308)
NO_COUNTS = (*ABSURD, 0.5, 2**62 + 1, 2**63, -2, -(2**63))
CONTROLS = "\x00\x07\r\x1b\x7f\x9b\u2028\u202e\u2066"


def leaves(kind: inspect.Type, path: str = "") -> Iterator[tuple[str, inspect.Type]]:
    """Every type within a type, with its place."""
    yield path, kind
    inner: list[tuple[str, inspect.Type]] = []
    match kind:
        case inspect.StructType():
            inner = [(field.name, field.type) for field in kind.fields]
        case inspect.UnionType():
            inner = [("", each) for each in kind.types]
        case inspect.ListType() | inspect.VarTupleType():
            inner = [("[]", kind.item_type)]
        case inspect.TupleType():
            inner = [("()", each) for each in kind.item_types]
        case inspect.DictType():
            inner = [("key", kind.key_type), ("value", kind.value_type)]
    for name, each in inner:
        yield from leaves(each, f"{path}.{name}")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_of_every_message_has_bounds(kind: type[m.Message]) -> None:
    for path, each in leaves(inspect.type_info(kind), kind.__name__):
        match each:
            case inspect.IntType() | inspect.FloatType():
                assert each.ge is not None, path
                assert each.le is not None, path
                assert math.isfinite(each.ge * each.ge + each.le * each.le), f"{path}: its square is not finite"
            case (
                inspect.StrType() | inspect.BytesType() | inspect.ListType() | inspect.VarTupleType() | inspect.DictType()
            ):
                assert each.max_length is not None, path
            case inspect.StructType() | inspect.UnionType() | inspect.TupleType():
                pass
            case inspect.BoolType() | inspect.NoneType():
                pass
            case _:
                raise AssertionError(f"{path} is {each}: what are its bounds?")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Where in a message, as plain lists, numbers and texts are, and what is there."""
    match value:
        case bool() | None:
            return
        case int() | float() | str():
            yield path, value
        case list():
            for at, each in enumerate(value):
                yield from places(each, (*path, at))
        case dict():
            for at, each in value.items():
                yield from places(each, (*path, at))


def changed(message: m.Message, path: tuple[Any, ...], value: object) -> list[bytes]:
    """The frames of a message with ``value`` in one place."""
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(message), strict=False)
    at = plain
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    frames = encode(message, [b"payload"] * payload_count(message))
    return [frames[0][:2] + msgspec.msgpack.encode(plain), *frames[1:]]


def family_of(message: m.Message) -> Any:
    return next(family for family in FAMILIES if isinstance(message, family))


FULL = [
    m.Heartbeat(m.Statistics(loss=0.5), [0.25, -1.0], [m.Complaint(2, 3)], 9, 4, m.View(1, 4, [0, 2], True)),
    m.Digest("abc", True, {0: 1}, m.Statistics(loss=0.1), 0.5, False, 0.2, [0.5], "a note"),
    m.Upload(0, 10, 0.5, "a note"),
    *message_samples(),
]
PLACES = [
    (message, path, value)
    for message in FULL
    for path, value in places(msgspec.msgpack.decode(msgspec.msgpack.encode(message)))
    if path != (0,)  # the kind
]


def test_an_absurd_number_anywhere_in_a_message_is_refused() -> None:
    for message, path, value in PLACES:
        for absurd in NO_COUNTS if isinstance(value, int) else ABSURD:
            with pytest.raises(MalformedMessage):
                pytest.fail(f"taken: {decode(changed(message, path, absurd), family_of(message))}")


@given(st.sampled_from(PLACES), st.floats() | st.integers(-(2**63), 2**64 - 1))
def test_whatever_number_is_taken_can_be_reckoned_with(place, number) -> None:
    message, path, _ = place
    try:
        taken, _ = decode(changed(message, path, number), family_of(message))
    except MalformedMessage:
        return
    for value in numbers_of(msgspec.to_builtins(taken)):
        assert math.isfinite(value * value)
        assert -(2**129) < value < 2**129


def numbers_of(value: Any) -> Iterator[float]:
    match value:
        case bool() | str() | None:
            return
        case int() | float():
            yield value
        case list() | tuple():
            for each in value:
                yield from numbers_of(each)
        case dict():
            for each in value.items():
                yield from numbers_of(list(each))


def test_no_text_of_a_message_can_steer_a_terminal() -> None:
    """A name with a control character is refused; in a text for people it is replaced."""
    for message, path, value in PLACES:
        for control in CONTROLS if isinstance(value, str) else ():
            try:
                taken, _ = decode(changed(message, path, f"a{control}b"), family_of(message))
            except MalformedMessage:
                continue
            assert "a\ufffdb" in str(taken), (taken, path)


@pytest.mark.parametrize("kind", [m.Failed, m.Refusal, m.Drain, m.Leave, m.Expulsion])
def test_a_text_that_is_sent_is_made_one_that_is_taken(kind) -> None:
    message = kind("one\n\ttwo \x1b[31mred\x1b[0m" + "." * 5000)
    taken, _ = decode(encode(message), family_of(message))
    assert taken == message
    assert message.reason.startswith("one\n\ttwo \ufffd[31mred\ufffd[0m...")


def test_a_number_that_cannot_be_sent_is_left_out() -> None:
    wrong = m.Statistics(loss=math.inf, wall_s=-1e-17, tau=math.nan, staleness=1e300)
    assert (wrong.loss, wrong.wall_s, wrong.tau, wrong.staleness) == (None, 0.0, 0.0, 0.0)
    digest = m.Digest("ab", True, {}, wrong, score=math.nan, distance=math.inf, sketch=[1.0, math.nan])
    assert (digest.score, digest.distance, digest.sketch) == (None, -1.0, [])
    taken, _ = decode(encode(digest, [b""]), m.WorkerMessage)
    assert taken == digest


def test_the_stamp_of_a_membership_is_exact_as_a_float() -> None:
    for kind, fields in ((m.View, ("number", "version")), (m.Roster, ("view", "version"))):
        bounds = {field.name: field.type for field in inspect.type_info(kind).fields}
        largest = kind(**{name: [] for name in bounds} | {name: bounds[name].le for name in fields})
        assert float(largest.stamp) == largest.stamp < 2**53


def test_every_record_with_floats_or_free_text_tidies_itself() -> None:
    """But for a note between workers, whose numbers are the strategy's own."""
    for kind in KINDS:
        for path, each in leaves(inspect.type_info(kind), kind.__name__):
            if isinstance(each, inspect.StructType) and each.cls not in (m.Note, m.Welcome):
                fields = [field.type for field in each.fields]
                loose = any(
                    isinstance(one, inspect.FloatType) or (isinstance(one, inspect.StrType) and one.pattern is None)
                    for field in fields
                    for one in getattr(field, "types", [field])
                )
                assert not loose or issubclass(each.cls, Tidy), path
