"""Lists of choices on one line: ``sync,ssp:3,tether:slack=2^-6,gain=2``.

A comma separates choices, and it separates the settings of one. It begins a new choice where a known name follows, or
where the choice before it has no settings that could go on.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from taut.errors import Misuse

_WORD = re.compile(r"\s*([^\s:,]+)")
_THEN = re.compile(r"\s*then\b")  # a strategy may be a schedule: "sync for 200 steps, then async"


def split(text: str, known: Collection[str]) -> list[str]:
    """Split a list into its choices; ``known`` are the names that a choice may begin with.

    >>> split("sync,ssp:3,averaging:every=8,weights=equal,async", ["sync", "ssp", "averaging", "async"])
    ['sync', 'ssp:3', 'averaging:every=8,weights=equal', 'async']
    >>> split("sync for 20 steps, then async,gossip", ["sync", "async", "gossip"])
    ['sync for 20 steps, then async', 'gossip']
    """
    found: list[str] = []
    for piece in text.split(","):
        if found and _goes_on(found[-1], piece, known):
            found[-1] += f",{piece}"
        else:
            found.append(piece)
    return [choice.strip() for choice in found if choice.strip()]


def split_all(texts: Sequence[str], known: Collection[str]) -> list[str]:
    """Return the choices of a flag that was given several times, each once.

    >>> split_all(["dense", "tether:slack=2^-6,gain=2,dense"], ["dense", "tether"])
    ['dense', 'tether:slack=2^-6,gain=2']
    """
    return list(dict.fromkeys(choice for text in texts for choice in split(text, known)))


def whole_numbers(texts: Sequence[str], flag: str, lowest: int = 1) -> list[int]:
    """Read lists of whole numbers.

    >>> whole_numbers(["4,8", "16"], "--workers")
    [4, 8, 16]
    """
    found: dict[int, None] = {}
    for word in (word.strip() for text in texts for word in text.split(",")):
        if not word.isdecimal() or int(word) < lowest:
            raise Misuse(
                f"{flag} = {','.join(texts)!r}", f"whole numbers from {lowest}, with commas between", "as in 4,8,16"
            )
        found[int(word)] = None
    return list(found)


def _goes_on(choice: str, piece: str, known: Collection[str]) -> bool:
    if _THEN.match(piece):
        return True
    word = _WORD.match(piece)
    return ":" in choice and not (word is not None and word[1] in known)
