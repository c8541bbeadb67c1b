"""The figures of a run in Prometheus's text format (version 0.0.4). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from taut.core.staleness_counts import BOUNDS, BUCKETS
from taut.dashboard.view_model import Seen

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TOTALS = {  # of each worker: name, unit and meaning
    "steps": ("taut_steps_total", "Steps of a worker."),
    "samples": ("taut_samples_total", "Samples that a worker has trained on."),
    "bytes_sent": ("taut_sent_bytes_total", "Bytes that a worker has sent, over all peers."),
    "refused": ("taut_refused_messages_total", "Messages of a worker that others refused."),
}
_NOW = {
    "loss": ("taut_loss", "Loss of a worker's last step."),
    "staleness": ("taut_staleness_steps", "Own steps until a worker's update reaches the others."),
    "suspicion": ("taut_suspicion", "-log10 of the chance that a worker is only late."),
}
_HOSTS = {  # of each host that tells them
    "processor": ("taut_host_processor_ratio", "Share of a host's processors that is busy."),
    "memory_used": ("taut_host_memory_used_bytes", "Memory of a host that is not available."),
    "memory_total": ("taut_host_memory_bytes", "Memory of a host."),
    "gpu": ("taut_host_gpu_ratio", "Share of time that a host's GPUs work, their mean."),
    "gpu_memory_used": ("taut_host_gpu_memory_used_bytes", "Memory of a host's GPUs that is used."),
    "gpu_memory_total": ("taut_host_gpu_memory_bytes", "Memory of a host's GPUs."),
}
_RUN = {
    "wall_s": ("taut_run_seconds", "Time since the run began."),
    "workers": ("taut_workers", "Workers that are not gone."),
    "epoch": ("taut_pass", "The earliest pass that is not complete, from 0."),
    "samples_done": ("taut_pass_samples", "Samples of that pass that are done."),
    "consensus": ("taut_consensus_distance", "Distance of the replicas from their mean, relative."),
}


def exposition(seen: Seen) -> bytes:
    """Return the figures, each under a name that begins with ``taut_`` and with the run as a label."""
    return "".join(line + "\n" for line in _lines(seen)).encode()


def _lines(seen: Seen) -> Iterator[str]:
    run, workers = seen.run, seen.workers.workers
    for field, (name, text) in _RUN.items():
        yield from _family(name, "gauge", text, [({"run": run.run}, getattr(run, field))])
    for table, kind in ((_TOTALS, "counter"), (_NOW, "gauge")):
        for field, (name, text) in table.items():
            values = [({"run": run.run, "worker": str(one.rank)}, getattr(one, field)) for one in workers]
            yield from _family(name, kind, text, values)
    spent = [
        ({"run": run.run, "worker": str(one.rank), "part": part}, seconds)
        for one in workers
        for part, seconds in one.parts.items()
    ]
    yield from _family("taut_time_seconds_total", "counter", "Time of a worker, by what it went into.", spent)
    yield from _staleness(seen)
    for field, (name, text) in _HOSTS.items():
        told = [({"run": run.run, "host": one.host}, getattr(one, field)) for one in seen.hosts]
        yield from _family(name, "gauge", text, told)
    present = [
        ({"run": run.run, "worker": str(one.rank), "state": one.state}, int(one.state != "gone")) for one in workers
    ]
    yield from _family("taut_worker_present", "gauge", "1 while a worker takes part.", present)


def _staleness(seen: Seen) -> Iterator[str]:
    """Yield the buckets of the staleness, each with all before it, as ``histogram_quantile`` wants them."""
    whole = [*map(str, BOUNDS), "+Inf"]
    buckets = [
        ({"run": seen.run.run, "worker": str(rank), "le": bound}, reached)
        for rank, late in sorted(seen.late.items())
        for bound, reached in zip(whole, accumulate((*late, *[0] * (BUCKETS - len(late)))), strict=True)
    ]
    text = "Updates that were included within so many steps."
    yield from _family("taut_update_staleness_steps_bucket", "counter", text, buckets)


def _family(name: str, kind: str, text: str, values: Sequence[tuple[dict[str, str], float | None]]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values:
        if value is not None:
            written = ",".join(f'{label}="{escaped(told)}"' for label, told in labels.items())
            yield f"{name}{{{written}}} {value!r}"


def escaped(label: str) -> str:
    r"""Escape the value of a label.

    >>> escaped('a"b\\c')
    'a\\"b\\\\c'
    """
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
