"""Whatever text comes from the network, it can be printed: it controls no terminal and begins no line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.communication.framing import MAGIC, decode
from taut.core.messages import PROTOCOL_VERSION, Message, WorkerMessage
from taut.core.printable import printable
from taut.errors import MalformedMessage
from taut.testing.message_samples import message_samples

HARM = "\x1b]0;owned\x07\r\n"


@given(st.text())
def test_a_text_keeps_its_length_and_says_the_same_again(text: str) -> None:
    safe = printable(text)
    assert len(safe) == len(text)
    assert printable(safe) == safe
    assert len(f"a{safe}b".splitlines()) == 1
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in safe)


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Zs"))))
def test_letters_of_any_language_stay(text: str) -> None:
    assert printable(text) == text


def harmed(value: Any) -> Any:
    """Return the value with a terminal escape and a line end in place of the first characters of every text."""
    if isinstance(value, str) and value != "Lease":  # the tag of a message inside another
        return (HARM + value)[: max(1, len(value))]
    if isinstance(value, list | tuple):
        return [harmed(item) for item in value]
    if isinstance(value, dict):
        return {key: harmed(item) for key, item in value.items()}
    return value


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts(item)


@pytest.mark.parametrize("message", message_samples(), ids=lambda message: type(message).__name__)
def test_every_text_of_every_message_can_be_printed(message: Message) -> None:
    tag, *fields = msgspec.to_builtins(message)
    broken = msgspec.msgpack.encode([tag, *harmed(fields)])
    decoded = msgspec.to_builtins(msgspec.msgpack.decode(broken, type=type(message)))
    assert [text for text in texts(decoded) if printable(text) != text] == []


def test_what_is_said_of_a_message_that_cannot_be_read_can_be_printed() -> None:
    header = bytes([MAGIC, PROTOCOL_VERSION]) + msgspec.msgpack.encode([HARM, 1])
    with pytest.raises(MalformedMessage) as error:
        decode([header], WorkerMessage)
    assert "owned" in str(error.value)
    assert printable(str(error.value)) == str(error.value)


def test_there_are_texts_in_the_samples() -> None:
    assert sum(bool(list(texts(msgspec.to_builtins(message)[1:]))) for message in message_samples()) > 8
