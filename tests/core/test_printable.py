"""Whatever text comes from the network, it can be printed: it controls no terminal and begins no line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from taut.core.printable import printable


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
