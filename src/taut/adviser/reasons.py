"""Why, in words, with the numbers that decided."""

from __future__ import annotations

from statistics import median

from taut.adviser.candidates import Completeness
from taut.adviser.evidence import measured_on
from taut.adviser.prediction import Prediction
from taut.adviser.ranking import Advice
from taut.adviser.record import Probe

LATE_STEPS = 4.0  # updates this late act like so much momentum that the learning rate may have to be smaller
UNEVEN = 1.3  # the slowest worker against the middle one
BUSY = 0.1  # a share of the time that is worth a word


def quantity(value: float, unit: str) -> str:
    """Return the value with three digits and a prefix.

    >>> quantity(102_400_000, "B"), quantity(0.0123, "s"), quantity(0, "B")
    ('102 MB', '12.3 ms', '0 B')
    """
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u")):
        if value >= factor * 0.9995:
            return f"{float(f'{value / factor:.3g}'):g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def percent(share: float) -> str:
    """Return a share in percent.

    >>> percent(0.944), percent(0.004)
    ('94%', '0.4%')
    """
    return f"{100 * share:.0f}%" if share >= 0.01 or share == 0 else f"{100 * share:.1g}%"


def machine_facts(probe: Probe) -> list[str]:
    """Return sentences about the machines and the model, before anything is compared."""
    middle_s = median(worker.mean_step_s for worker in probe.workers)
    batch = median(worker.batch for worker in probe.workers)
    facts = [f"a step of {batch:g} samples takes {quantity(middle_s, 's')}; the dense update is {_dense(probe)}"]
    if probe.links:
        slow = min(probe.links, key=lambda link: link.bytes_per_s)
        takes = quantity(4 * probe.parameters / slow.bytes_per_s, "s")
        facts.append(
            f"your slowest link ({slow.one}-{slow.other}) carries {rate_text(slow.bytes_per_s)}, a round trip on it "
            f"takes {quantity(slow.round_trip_s, 's')}: one dense update is on its way for {takes}"
        )
    slowest = max(probe.workers, key=lambda worker: worker.mean_step_s)
    if slowest.mean_step_s > UNEVEN * middle_s:
        facts.append(
            f"worker {slowest.rank} takes {quantity(slowest.mean_step_s, 's')} per step, the middle one "
            f"{quantity(middle_s, 's')}: whoever waits for everybody waits for it"
        )
    return facts


def why_not(prediction: Prediction, probe: Probe, workers: int) -> str:
    """Return why something more complete was not recommended: what it would wait for."""
    figures, name = prediction.figures, prediction.candidate.name
    waits = f"{name} would wait {percent(figures.wait_share)} of the time"
    if prediction.candidate.completeness is Completeness.UNBOUNDED:  # nobody waits, but for what is under way at the end
        waits = f"{name} would spend {percent(figures.wait_share)} of the time on updates that are still under way"
    if prediction.candidate.resolved.codec.startswith("dense") and probe.links:
        slow = min(link.bytes_per_s for link in probe.links)
        sent = quantity(figures.bytes_per_step, "B")
        text = (
            f"your slowest link carries {rate_text(slow)}, the dense update is {_dense(probe)} "
            f"({sent} sent per step and worker among {workers}): {waits}"
        )
    else:
        text = f"{name} sends {quantity(figures.bytes_per_step, 'B')} per step and worker: " + waits
        if figures.exchange_share >= BUSY:
            text += f" and spend {percent(figures.exchange_share)} of it on encoding, sending and merging"
    return text + f", and reach {percent(prediction.efficiency)} of the speed of workers that never talk"


def why(prediction: Prediction, probe: Probe) -> str:
    """Return a sentence on how the recommended candidate uses the time and the links."""
    figures = prediction.figures
    dense_nbytes = 4.0 * probe.parameters
    text = f"{prediction.candidate.name} sends {quantity(figures.bytes_per_step, 'B')} per step and worker"
    if 0.0 < figures.bytes_per_step < dense_nbytes / 2:
        text += f", {dense_nbytes / figures.bytes_per_step:.0f} times less than one dense update"
    text += (
        f"; it waits {percent(figures.wait_share)} of the time and exchanges in {percent(figures.exchange_share)} of it"
    )
    return text + f", which leaves {percent(prediction.efficiency)} of the speed of workers that never talk"


def quality(prediction: Prediction, workers: int, batch: int) -> list[str]:
    """Return sentences on what is at stake beside speed."""
    candidate, figures = prediction.candidate, prediction.figures
    words = {
        Completeness.SYNCHRONOUS: f"replicas are equal after every step, which is one of {workers * batch} samples: "
        "the learning rate may have to follow",
        Completeness.BOUNDED: "every update reaches everybody, a bounded number of steps late",
        Completeness.UNBOUNDED: f"every update reaches everybody, about {max(figures.staleness, 0.5):.1f} steps late",
        Completeness.NEIGHBOURS: "updates reach neighbours only: replicas differ, and their average comes out",
        Completeness.SELDOM: f"workers exchange every {candidate.every} steps and stray apart in between: "
        "speed says nothing about quality here, compare it on your data",
        Completeness.NOTHING: "workers never exchange anything",
    }
    found = [words[candidate.completeness]]
    if candidate.completeness < Completeness.NEIGHBOURS and not candidate.resolved.agrees:
        found.append("replicas differ at the end, and their average comes out")
    codec = candidate.resolved.codec.partition(":")[0]
    if codec in ("tether", "threshold") and candidate.completeness is not Completeness.NOTHING:
        exact = " and replicas are still equal to the last bit at the end" if candidate.resolved.agrees else ""
        found.append(f"{codec} sends signs where a weight has moved far enough; the rest waits{exact}")
    if codec == "dense" and candidate.completeness in (Completeness.BOUNDED, Completeness.UNBOUNDED):
        found.append("dense updates do not make up for their lateness: momentum may have to be smaller")
    if figures.staleness >= LATE_STEPS:
        found.append(f"updates come {figures.staleness:.1f} steps late: a smaller learning rate may be needed")
    if candidate.completeness is not Completeness.NOTHING:
        found.append(measured_on(candidate.strategy, candidate.resolved.codec))
    return found


def compression(advice: Advice) -> list[str]:
    """Return a sentence on whether it pays to compress: what the recommended candidate gains by it, or would gain."""
    chosen = advice.recommended
    sharing = [one for one in advice.known if one.candidate.completeness <= Completeness.NEIGHBOURS]
    plain = [one for one in sharing if _is_dense(one) and one.candidate.strategy == chosen.candidate.strategy]
    packed = [one for one in sharing if not _is_dense(one)]
    if not _is_dense(chosen):
        best = max(plain, key=lambda one: one.efficiency, default=None)
        if best is None or best.candidate.completeness is Completeness.NOTHING:
            return []
        if best.efficiency >= chosen.efficiency:
            return [f"compression does not pay here: {best.candidate.name} reaches {percent(best.efficiency)}"]
        return [f"compression pays: with dense updates ({best.candidate.name}) it would be {percent(best.efficiency)}"]
    best = max(packed, key=lambda one: one.efficiency, default=None)
    if best is None:
        return []
    if best.efficiency <= chosen.efficiency:
        return [
            f"compression does not pay here: dense updates leave {percent(chosen.efficiency)} of that speed, the best "
            f"compressed ones ({best.candidate.name}) {percent(best.efficiency)}"
        ]
    gain = best.efficiency / chosen.efficiency - 1.0
    return [f"compression would gain {percent(gain)} ({best.candidate.name}): too little to give up dense updates for"]


def _is_dense(prediction: Prediction) -> bool:
    return prediction.candidate.resolved.codec.partition(":")[0] == "dense"


def reasons(advice: Advice, probe: Probe, workers: int) -> list[str]:
    """Return facts about the machines, why nothing more complete was taken, and what the recommended one does."""
    chosen = advice.recommended
    found = machine_facts(probe)
    classes = range(Completeness.SYNCHRONOUS, chosen.candidate.completeness)
    for number in classes:
        rivals = [one for one in advice.ranked if one.candidate.completeness == number]
        if rivals:
            found.append(why_not(max(rivals, key=lambda one: one.efficiency), probe, workers))
    found.append(why(chosen, probe))
    found += compression(advice)
    fastest = max(advice.ranked, key=lambda one: one.efficiency)
    if fastest is not chosen:
        ahead = fastest.efficiency / chosen.efficiency - 1.0
        given = "shares less" if fastest.candidate.completeness > chosen.candidate.completeness else "is listed after it"
        found.append(f"{fastest.candidate.name} would be {percent(ahead)} faster, but {given}")
    if advice.seldom_allowed:
        found.append(
            "nothing that shares every step reaches half the speed of workers that never talk, so exchanging now and "
            "then was allowed"
        )
    return found


def _dense(probe: Probe) -> str:
    return quantity(4 * probe.parameters, "B")


def rate_text(bytes_per_s: float) -> str:
    return f"{quantity(bytes_per_s, 'B')}/s"
