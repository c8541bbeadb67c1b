"""Codecs as tables, as a page about one of them, and for JSON."""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from taut.codecs import REGISTRY, Codec, Feedback, parse, spec
from taut.codecs.params import written
from taut.worker.codec_costs.measuring import MeasuredCodec, pays_below


@dataclass(frozen=True)
class Listed:
    """A codec as the user wrote it, and how it was measured; ``pays_bits_per_s``: see ``pays_below``."""

    given: str
    measured: MeasuredCodec | None = None
    pays_bits_per_s: float | None = None

    @property
    def codec(self) -> Codec:
        return parse(self.given)


def listed(specs: Sequence[str], measured: Sequence[MeasuredCodec], dense: MeasuredCodec | None) -> list[Listed]:
    """Return the codecs with their figures; without any where nothing was measured."""
    if dense is None:
        return [Listed(given) for given in specs]
    return [Listed(given, one, pays_below(one, dense)) for given, one in zip(specs, measured, strict=True)]


def figure(value: float | None, digits: int = 3) -> str:
    """Format a figure in a few digits.

    >>> figure(0.10577), figure(32.0), figure(0.0003871), figure(None), figure(12345.6), figure(8.125)
    ('0.106', '32', '0.00039', '-', '12346', '8.12')
    """
    if value is None or not math.isfinite(value):
        return "-"
    if 0.0 < abs(value) < 0.001:
        return f"{value:.2g}"
    return f"{value:.{digits}g}" if abs(value) < 1000 else f"{value:.0f}"


def rate(bits_per_s: float | None) -> str:
    """Format the speed of a link.

    >>> rate(8e9), rate(25e6), rate(math.inf), rate(0.0), rate(None)
    ('8.0 Gbit/s', '25 Mbit/s', 'any link', 'never', '-')
    """
    if bits_per_s is None:
        return "-"
    if not bits_per_s:
        return "never"
    if math.isinf(bits_per_s):
        return "any link"
    for unit, factor in (("Tbit", 1e12), ("Gbit", 1e9), ("Mbit", 1e6), ("kbit", 1e3)):
        if bits_per_s >= factor:
            value = bits_per_s / factor
            return f"{value:.1f} {unit}/s" if value < 10 else f"{value:.0f} {unit}/s"
    return f"{bits_per_s:.0f} bit/s"


def stated_table(rows: Sequence[Listed], wide: bool = True) -> Table:
    """Return a table of the properties that codecs state; ``wide``: in more than 80 columns."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("codec", overflow="fold", max_width=24)
    table.add_column("does", overflow="fold", ratio=3)
    for heading in ("bits", "error"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("paper", overflow="fold", ratio=2, max_width=24 if wide else 14)
    for row in rows:
        facts = row.codec.facts
        marks = ("u" if facts.unbiased else " ") + ("s" if facts.summable else " ") + ("=" if row.codec.exact else " ")
        table.add_row(
            row.given, facts.title, figure(facts.bits), figure(facts.error), marks, facts.paper.partition(" (")[0]
        )
    return table


STATED_LEGEND = (
    "bits per element; error: of one update, |Q(v) - v|^2 / |v|^2 at most (-: another bound, see taut codecs NAME); "
    "u: unbiased, s: payloads are summed without decoding, =: replicas are equal to the last bit"
)


def measured_table(rows: Sequence[Listed]) -> Table:
    """Return a table of the measured figures."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("codec", overflow="fold", max_width=24)
    for heading in ("bits", "vs dense", "error", "encode", "decode", "pays below"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        found = row.measured
        assert found is not None
        less = f"{32.0 / found.bits:.{0 if found.bits < 3.2 else 1}f}x" if found.bits else "-"
        times = f"{found.encode_ns:.2f}", f"{found.decode_ns:.2f}"
        pays = "" if row.given == "dense" else rate(row.pays_bits_per_s)
        table.add_row(row.given, figure(found.bits), less, figure(found.error), *times, pays)
    return table


MEASURED_LEGEND = (
    "encode and decode in ns per element; error: the part of |v|^2 that was not sent, v being the change and what was "
    "left from before; pays below: on slower links an update is sooner there than as plain float32"
)


def show_one(console: Console, row: Listed) -> None:
    """Print all about one codec."""
    codec, facts = row.codec, row.codec.facts
    kind: Any = REGISTRY[codec.name]
    text = inspect.cleandoc(sys.modules[kind.__module__].__doc__ or "")
    console.print(text, markup=False, soft_wrap=True)
    console.print()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("on the command line", f"--codec {spec(codec)}")
    table.add_row("in taut.toml", f"codec = {toml(codec)}")
    table.add_row("in Python", python(codec))
    table.add_row("parameters", ", ".join(f"{key}={value}" for key, value in parameters(codec).items()) or "none")
    table.add_row("", about_parameters(kind))
    table.add_row("bits per element", f"{figure(facts.bits)} (plain float32: 32)")
    error = "" if facts.error is None else f"; |Q(v) - v|^2 <= {figure(facts.error)} |v|^2"
    table.add_row("bound", facts.bound + error)
    table.add_row("unbiased", "yes" if facts.unbiased else "no")
    table.add_row("summed undecoded", "yes" if facts.summable else "no")
    table.add_row("replicas at the end", "equal to the last bit" if codec.exact else "equal within rounding")
    if isinstance(codec, Feedback):
        table.add_row("left out", "waits in a residual" if codec.keep else "is lost (feedback=yes keeps it)")
    table.add_row("paper", facts.paper or "-")
    console.print(table)


def parameters(codec: Codec) -> dict[str, str]:
    """Return the parameters as they are set; ``-`` where one is not.

    >>> parameters(parse("topk"))
    {'density': '0.01', 'feedback': 'yes'}
    """
    found = {}
    for name, value in _values(codec).items():
        text = f"{value:g}" if isinstance(value, float) else str(value)
        found[name] = "-" if value is None else written(value) if isinstance(value, bool) else text
    return found | ({"feedback": written(codec.keep)} if isinstance(codec, Feedback) else {})


def about_parameters(kind: type[Any]) -> str:
    """Return the class's text about its parameters, without its example."""
    return " ".join(inspect.cleandoc(kind.__doc__ or "").partition(">>>")[0].replace("``", "").split())


def toml(codec: Codec) -> str:
    """Write the codec as in ``taut.toml``.

    >>> toml(parse("topk:density=0.001,feedback=no"))
    '{ name = "topk", density = 0.001, feedback = false }'
    """
    given = _values(codec)
    if isinstance(codec, Feedback) and codec.keep != codec.compressor.feeds_back:
        given["feedback"] = codec.keep
    words = [f"{key} = {str(value).lower()}" for key, value in given.items() if value is not None]
    return "{ " + ", ".join([f'name = "{codec.name}"', *words]) + " }"


def python(codec: Codec) -> str:
    """Write the codec as in Python.

    >>> python(parse("topk:density=0.001")), python(parse("topk:feedback=no"))
    ('taut.codecs.TopK(density=0.001)', 'taut.codecs.Feedback(taut.codecs.TopK(density=0.01), keep=False)')
    """
    words = ", ".join(f"{key}={value!r}" for key, value in _values(codec).items() if value is not None)
    made = f"taut.codecs.{type(_inner(codec)).__name__}({words})"
    if isinstance(codec, Feedback) and codec.keep != codec.compressor.feeds_back:
        return f"taut.codecs.Feedback({made}, keep={codec.keep})"
    return made


def record(row: Listed) -> dict[str, Any]:
    """Return one codec for JSON."""
    codec, found = row.codec, row.measured
    return {
        "name": codec.name,
        "spec": spec(codec),
        **dataclasses.asdict(codec.facts),
        "exact": codec.exact,
        "feedback": codec.keep if isinstance(codec, Feedback) else None,
        "parameters": parameters(codec),
        "measured": None
        if found is None
        else {
            "bits": found.bits,
            "error": found.error,
            "encode_ns_per_element": found.encode_ns,
            "decode_ns_per_element": found.decode_ns,
            "elements": found.elements,
            "updates": found.turns,
            "pays_on_any_link": row.pays_bits_per_s == math.inf,
            "pays_below_bits_per_s": row.pays_bits_per_s,
        },
    }


def _inner(codec: Codec) -> Any:
    return codec.compressor if isinstance(codec, Feedback) else codec


def _values(codec: Codec) -> dict[str, Any]:
    return {each.name: getattr(_inner(codec), each.name) for each in dataclasses.fields(_inner(codec))}
