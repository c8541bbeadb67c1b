"""Text from the network, made safe to print."""

from __future__ import annotations

from dataclasses import fields

_PICTURES = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}  # such as U+241B, the picture of Escape
_MARKS = (*range(0x80, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_HARMLESS = _PICTURES | dict.fromkeys(_MARKS, 0xFFFD)


def printable(text: str) -> str:
    r"""Return ``text`` at the same length, with pictures in place of characters that could control a terminal, begin
    another line or reverse the direction of writing.

    >>> printable("host\x1b[2J"), printable("killed\n[  9.0 s] verdict: identical"), printable("größer, 大")
    ('host␛[2J', 'killed␊[  9.0 s] verdict: identical', 'größer, 大')
    """
    return text if text.isprintable() else text.translate(_HARMLESS)


class Printable:
    """Base of dataclasses that are shown to people: makes their texts, and tuples of texts, ``printable``."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            value = getattr(self, field.name)
            if isinstance(value, str):
                object.__setattr__(self, field.name, printable(value))
            elif isinstance(value, tuple):
                shown = tuple(printable(item) if isinstance(item, str) else item for item in value)
                object.__setattr__(self, field.name, shown)
