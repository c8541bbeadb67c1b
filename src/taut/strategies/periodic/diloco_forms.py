"""Which of ``diloco``'s settings go together: its forms are streaming, eager, of a quorum, robust and delayed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taut.errors import Misuse
from taut.strategies.allreduce.robust_mean import check_robust

if TYPE_CHECKING:
    from taut.strategies.periodic.diloco import DiLoCo


def check_forms(method: DiLoCo) -> None:
    """Raise ``Misuse`` for settings of two forms that cannot be one."""
    every, fragments, overlap = method.every, method.fragments, method.overlap
    robust = method.robust != "none"
    if fragments > every or overlap > every // fragments:
        given = f"diloco: every={every},fragments={fragments},overlap={overlap}"
        expected = f"an overlap of at most every / fragments = {every / fragments:g} steps, and at least 1"
        raise Misuse(given, expected, "take a larger every, or fewer fragments")
    if method.delayed and (fragments > 1 or overlap):
        remedy = "delayed=true never waits anyway"
        raise Misuse("diloco: delayed with fragments or overlap", "one of the two forms", remedy)
    if method.eager and (fragments > 1 or overlap or method.quorum or method.delayed or robust):
        given = "diloco: eager with fragments, overlap, quorum, delayed or robust"
        raise Misuse(given, "eager alone", "its rounds are overlapped by H steps, of the whole vector")
    if method.quorum and (method.delayed or robust):
        given = f"diloco: quorum={method.quorum} with delayed or robust"
        raise Misuse(given, "one of them", "delayed=true waits for nobody; robust averages are of all")
    check_robust(method)
    if robust and (method.delayed or fragments > 1):
        given = "delayed" if method.delayed else f"fragments={fragments}"
        remedy = "a holder's word and a listener's zeros cannot be outvoted: drop " + given
        raise Misuse(f"diloco: robust={method.robust} with {given}", "one of them", remedy)


def check_codec(method: DiLoCo, codec: str) -> None:
    """Raise ``Misuse`` for a codec with a form whose messages are whole vectors."""
    forms = {"delayed=true": method.delayed, f"fragments={method.fragments}": method.fragments > 1}
    forms[f"quorum={method.quorum}"] = method.quorum > 0
    for setting in [each for each, chosen in forms.items() if chosen and codec != "dense"]:
        given, expected = f"codec {codec!r} with diloco:{setting}", "dense: compressing this form is not built yet"
        raise Misuse(given, expected, f"leave {setting} out, or the codec")
