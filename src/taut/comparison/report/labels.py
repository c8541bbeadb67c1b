"""Names of configurations, and figures as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from taut.comparison.report.table import Row

UNITS_OF_TIME = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def names(rows: Sequence[Row]) -> dict[tuple[str, str, str], str]:
    """Return a short name for each strategy, codec and topology: the codec and the topology only where a strategy has
    several.

    >>> row = {"strategy": "async", "codec": "dense", "topology": "ring"}
    >>> list(names([row, row | {"codec": "tether"}, row | {"strategy": "sync"}]).values())
    ['async dense', 'async tether', 'sync dense']
    """
    seen = list(dict.fromkeys((row["strategy"], row["codec"], row["topology"]) for row in rows))
    of_strategy: dict[str, list[tuple[str, str, str]]] = {}
    for choice in seen:
        of_strategy.setdefault(choice[0], []).append(choice)
    told = [any(len({one[index] for one in group}) > 1 for group in of_strategy.values()) for index in (1, 2)]
    return {
        choice: " ".join([choice[0], *(word for word, tell in zip(choice[1:], told, strict=True) if tell)])
        for choice in seen
    }


def seconds(value: float | None) -> str:
    """Format a duration with its unit.

    >>> seconds(0.0421), seconds(7.25), seconds(754.0), seconds(None)
    ('42 ms', '7.2 s', '12.6 min', '-')
    """
    if value is None:
        return "-"
    for unit, name in UNITS_OF_TIME:
        if value >= 2 * unit:
            return f"{value / unit:.1f} {name}"
    return f"{value:.1f} s" if value >= 1 else f"{1000 * value:.0f} ms"


def figure(value: float | None) -> str:
    """Format four digits of a score, a loss or a rate.

    >>> figure(0.931249), figure(18342.7), figure(None)
    ('0.9312', '18,343', '-')
    """
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def with_spread(row: Row, name: str) -> str:
    """Format the mean, and half of the spread between seeds where it is known.

    >>> with_spread({"score": 0.931, "score_spread": 0.006}, "score"), with_spread({"score": 0.931}, "score")
    ('0.931 ±0.003', '0.931')
    """
    spread = row.get(f"{name}_spread")
    if row[name] is None or spread is None:
        return figure(row[name])
    half = spread / 2
    return f"{figure(row[name])} ±" + (f"{half:,.0f}" if half >= 10 else f"{half:.1g}")


def workers(count: int) -> str:
    """Format a number of workers.

    >>> workers(1), workers(16)
    ('1 worker', '16 workers')
    """
    return "1 worker" if count == 1 else f"{count} workers"


def listed(words: Sequence[str]) -> str:
    """Join words with commas and "and".

    >>> listed(["sync", "async", "gossip"]), listed(["sync"])
    ('sync, async and gossip', 'sync')
    """
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
