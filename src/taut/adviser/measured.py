"""Make a ``Probe`` from the figures that the workers counted (``strategies/probing/probe_method.py``)."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from taut.adviser.record import VERSION, CodecProbe, LinkProbe, Probe, WorkerProbe
from taut.core.messages import Statistics
from taut.errors import RunFailed
from taut.supervisor.view import WorkerRow


def counted(text: str) -> dict[str, float]:
    """Read ``Statistics.counted`` as figures by name; a word that is none (cut off at the end) is left out.

    >>> counted("measured=1 step=0.02 trip.3=0.0004 ou")
    {'measured': 1.0, 'step': 0.02, 'trip.3': 0.0004}
    """
    found = {}
    for word in text.split():
        name, _, value = word.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            continue
    return found


def is_measured(statistics: Statistics) -> bool:
    return counted(statistics.counted).get("measured") == 1.0


def probe_from(
    rows: Mapping[int, WorkerRow], *, script: str, args: Sequence[str], local: bool, gone: Mapping[int, str]
) -> Probe:
    """Return the record of a probe run. Raise ``RunFailed`` where no worker made enough steps to time them."""
    from taut import __version__

    figures = {rank: counted(row.statistics.counted) for rank, row in sorted(rows.items()) if rank not in gone}
    timed = {rank: found for rank, found in figures.items() if found.get("step", 0.0) > 0.0}
    if not timed:
        raise RunFailed(
            "no worker made enough steps to be timed: at least 6 are needed; "
            "give the script more data or more epochs, or fewer workers"
        )
    return Probe(
        version=VERSION,
        taut=__version__,
        made_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        script=script,
        args=list(args),
        local=local,
        parameters=max(int(found.get("size", 1)) for found in timed.values()),
        workers=[_worker(rows[rank], found) for rank, found in timed.items()],
        links=[link for rank, found in timed.items() for link in _links(rank, found)],
        gone={str(rank): reason for rank, reason in gone.items()},
    )


def _worker(row: WorkerRow, found: Mapping[str, float]) -> WorkerProbe:
    trained_s = row.statistics.compute_s + row.statistics.data_s
    return WorkerProbe(
        rank=row.rank,
        host=row.host,
        step_s=found["step"],
        spread=max(0.0, found.get("spread", 0.0)),
        timed=int(found.get("timed", 1)),
        batch=max(1, round(found.get("batch", 1))),
        data_share=row.statistics.data_s / trained_s if trained_s > 0.0 else 0.0,
        codecs=_codecs(found),
    )


def _links(rank: int, found: Mapping[str, float]) -> list[LinkProbe]:
    links = []
    for name, trip_s in found.items():
        kind, _, other = name.partition(".")
        keys = [f"{each}.{other}" for each in ("typical", "out", "back")]
        if kind == "trip" and other.isdigit() and all(found.get(key, 0.0) > 0.0 for key in keys) and trip_s > 0.0:
            links.append(LinkProbe(rank, int(other), trip_s, *(found[key] for key in keys)))
    return links


def _codecs(found: Mapping[str, float]) -> dict[str, CodecProbe]:
    names = [name[5:] for name in found if name.startswith("bits.")]
    keys = {name: [f"{kind}.{name}" for kind in ("encode", "absorb", "bits")] for name in names}
    return {
        name: CodecProbe(*(max(0.0, found[key]) for key in keys[name]))
        for name in names
        if all(key in found for key in keys[name])
    }
