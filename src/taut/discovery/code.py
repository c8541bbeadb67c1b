"""The pairing code: eight digits that a person reads on one machine and types on another; and how often it may be wrong.

A code lets one worker in. It is replaced after that, and after three wrong ones. There are no more than three wrong codes
in a minute: then nobody is let in until the minute is over. So a stranger who never stops guesses right with a
probability of 3 * 1440 / 10**8 a day, one in 23,000. Pure.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from taut.errors import Misuse

DIGITS, WRONG, MINUTE_S = 8, 3, 60.0


def new_code() -> str:
    """Return a new code, in two groups.

    >>> len(new_code()), new_code()[4]
    (9, '-')
    """
    text = f"{secrets.randbelow(10**DIGITS):0{DIGITS}}"
    return f"{text[:4]}-{text[4:]}"


def parse_code(text: str) -> str:
    """Return the code's digits; spaces and dashes do not count. Raise ``Misuse``, which never quotes them.

    >>> parse_code(" 1234-5678\\n"), parse_code("1234 5678")
    ('12345678', '12345678')
    """
    digits = "".join(text.replace("-", " ").split())
    if len(digits) != DIGITS or not digits.isascii() or not digits.isdecimal():
        given = f"a code of {len(digits)} characters (not shown)"
        raise Misuse(given, f"{DIGITS} digits, such as 1234-5678", "read it where `taut supervisor --announce` runs")
    return digits


@dataclass
class CodeLimits:
    """The current code, and the attempts to guess it. ``number``: of the code, which says that it has been replaced.

    >>> codes = iter(["1111-1111", "2222-2222"])
    >>> limits = CodeLimits(lambda: next(codes))
    >>> [limits.tried(limits.number, False, now) for now in (0.0, 1.0, 2.0)], limits.code, limits.locked_s(12.0)
    ([False, False, False], '2222-2222', 48.0)
    """

    make: Callable[[], str] = new_code
    code: str = field(init=False, repr=False)
    number: int = 0
    _wrong: int = 0
    _times: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.code = self.make()

    def locked_s(self, now: float) -> float:
        """Return for how long nobody is let in, because of too many wrong codes."""
        self._times = [one for one in self._times if now - one < MINUTE_S]
        return self._times[-WRONG] + MINUTE_S - now if len(self._times) >= WRONG else 0.0

    def tried(self, number: int, right: bool, now: float) -> bool:
        """Note an attempt with the code of ``number``; return whether it is let in. One with a code that was replaced in
        the meantime is not, and tells nothing."""
        if number != self.number or self.locked_s(now):
            return False
        if not right:
            self._wrong += 1
            self._times.append(now)
        if right or self._wrong >= WRONG:
            self.code, self.number, self._wrong = self.make(), self.number + 1, 0
        return right
