"""The advice as a record: what ``--json`` prints, what to type, and what the reader must know beside it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taut.adviser.prediction import Prediction
from taut.adviser.ranking import Advice
from taut.adviser.reasons import quality, reasons
from taut.adviser.record import Probe
from taut.adviser.verification import Verified, command


@dataclass(frozen=True)
class AdviceReport:
    """``refused``: candidates that were not simulated, and why. ``costs_from``: of what the probe did not measure."""

    probe: Probe
    advice: Advice
    refused: Mapping[str, str]
    verified: Sequence[Verified]
    workers: int
    script: Path
    args: Sequence[str]
    costs_from: str = ""

    def warnings(self) -> list[str]:
        """Return remarks about the predictions themselves."""
        found = []
        if self.probe.local and self.workers != len(self.probe.workers):
            found.append(
                f"the probe had {len(self.probe.workers)} workers on this machine: {self.workers} would share its cores "
                f"differently; `taut probe --workers {self.workers}` measures that"
            )
        if self.probe.script and Path(self.probe.script).name != self.script.name:
            found.append(f"the probe was made with {self.probe.script}: steps and updates are that script's")
        return found + self._left_out()

    def _left_out(self) -> list[str]:
        """Return the candidates that were not simulated, reason by reason."""
        names: dict[str, list[str]] = {}
        for name, reason in self.refused.items():
            names.setdefault(reason, []).append(name)
        return [
            f"{', '.join(each)} {'was' if len(each) == 1 else 'were'} left out: {reason}"
            for reason, each in names.items()
        ]

    def command(self, prediction: Prediction) -> str:
        """Return the command to type: here, or, for a probe between machines, on the machine of the supervisor."""
        words = command(prediction, self.workers, self.script, self.args)
        if self.probe.local:
            return shlex.join(words)
        flags = shlex.join(["--workers", str(self.workers), *prediction.candidate.flags()])
        script = shlex.join([str(self.script), *self.args])
        return f"taut supervisor {flags}    # and on each machine: taut worker --join ADDRESS {script}"

    def record(self, top: int) -> dict[str, Any]:
        batch = self.probe.workers[0].batch
        return {
            "workers": self.workers,
            "recommended": self.advice.recommended.candidate.name,
            "command": self.command(self.advice.recommended),
            "bar_efficiency": self.advice.bar,
            "reasons": reasons(self.advice, self.probe, self.workers),
            "warnings": self.warnings(),
            "costs_from": self.costs_from,
            "top": [
                {
                    **prediction_record(one),
                    "reaches_bar": self.advice.reaches(one),
                    "quality": quality(one, self.workers, batch),
                    "command": self.command(one),
                }
                for one in self.advice.ranked[:top]
            ],
            "verified": [
                {
                    "name": one.prediction.candidate.name,
                    "predicted_samples_per_s": one.prediction.figures.samples_per_s,
                    "measured_samples_per_s": one.samples_per_s,
                    "error": one.error,
                    "predicted_bytes_per_step": one.prediction.figures.bytes_per_step,
                    "measured_bytes_per_step": one.bytes_per_step,
                }
                for one in self.verified
            ],
        }


def prediction_record(prediction: Prediction) -> dict[str, Any]:
    candidate, figures = prediction.candidate, prediction.figures
    return {
        "name": candidate.name,
        "strategy": candidate.strategy,
        "topology": candidate.resolved.topology,
        "codec": candidate.resolved.codec,
        "completeness": candidate.completeness.name.lower(),
        "replicas_agree": candidate.resolved.agrees,
        "efficiency": prediction.efficiency,
        "bytes_per_s": prediction.bytes_per_s,
        **{name: getattr(figures, name) for name in figures.__struct_fields__},
    }
