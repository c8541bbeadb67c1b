"""Where samples are answered, how well, and what is sent for that.

A device answers by itself if its own exit is sure; if not, it sends its features to the edge. A sample that some device
is sure of has the answer of the surest one. Else the edge fuses the features of all, and answers if it is sure; else it
sends its features to the cloud. Without an uplink the surest device answers whatever it thinks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from taut.errors import Misuse
from taut.tiers.exits import TIERS, entropy
from taut.tiers.model import Tiers


@dataclass(frozen=True)
class TierReport:
    """``shares``: of the samples that each tier answered, with their ``accuracies`` (NaN where there are none);
    ``accuracy``: of all; bytes per sample: ``to_edge`` and ``to_cloud``, and ``raw``, of the views themselves."""

    accuracy: float
    shares: dict[str, float]
    accuracies: dict[str, float]
    to_edge: float
    to_cloud: float
    raw: float

    @property
    def nbytes(self) -> float:
        """Return the bytes per sample that are sent at all."""
        return self.to_edge + self.to_cloud


@torch.no_grad()
def evaluate(
    model: Tiers,
    views: Sequence[torch.Tensor],
    targets: torch.Tensor,
    *,
    device: float = 0.5,
    edge: float = 0.5,
    gone: Collection[int] = (),
    uplink: bool = True,
) -> TierReport:
    """Answer all samples. ``device`` and ``edge``: the entropy up to which an exit is sure (0: never, 1: always);
    ``gone``: the devices that are missing; ``uplink``: whether anything above the devices is reached."""
    there = [number for number in range(len(model.devices)) if number not in gone]
    if not there or not set(gone) <= set(range(len(model.devices))):
        raise Misuse(f"gone={sorted(gone)}", f"some of the devices 0 to {len(model.devices) - 1}, and not all of them")
    was = model.training
    model.eval()
    features = {number: model.devices[number](views[number]) for number in there}
    local = torch.stack([model.device_exits[number](features[number]) for number in there])
    unsure = torch.stack([entropy(each) for each in local])
    least, surest = unsure.min(0)
    answers = local.argmax(2).gather(0, surest.unsqueeze(0)).squeeze(0)
    tier = torch.zeros(len(targets), dtype=torch.long)
    to_edge = to_cloud = 0.0
    up = least > device
    if uplink:
        sent = (unsure > device).sum().item()
        to_edge = sent * feature_nbytes(features[there[0]]) / len(targets)
    if uplink and bool(up.any()):
        present = torch.zeros(int(up.sum()), len(model.devices), dtype=torch.bool)
        present[:, there] = True
        nothing = torch.zeros_like(features[there[0]][up])
        fused = model.edge(
            model.fuse([features[n][up] if n in features else nothing for n in range(len(views))], present)
        )
        middle = model.edge_exit(fused)
        further = entropy(middle) > edge
        found = middle.argmax(1)
        tier[up] = 1 + further.long()
        if bool(further.any()):
            found[further] = model.cloud_exit(model.cloud(fused[further])).argmax(1)
            to_cloud = int(further.sum()) * feature_nbytes(fused) / len(targets)
        answers[up] = found
    model.train(was)
    right = answers == targets
    shares = {name: (tier == number).float().mean().item() for number, name in enumerate(TIERS)}
    accuracies = {name: right[tier == number].float().mean().item() for number, name in enumerate(TIERS)}
    raw = float(sum(views[number][0].numel() for number in there))  # one byte per value, as an image has
    return TierReport(right.float().mean().item(), shares, accuracies, to_edge, to_cloud, raw)


def feature_nbytes(features: torch.Tensor) -> float:
    """Return the bytes of one sample's features as they are sent: a bit each where all are signs, else float16.

    >>> feature_nbytes(torch.ones(3, 20)), feature_nbytes(torch.zeros(3, 20))
    (3, 40)
    """
    elements = features[0].numel()
    return -(-elements // 8) if is_signs(features) else 2 * elements


def is_signs(features: torch.Tensor) -> bool:
    """Return whether all features are -1 or 1."""
    return bool((features.abs() == 1).all())
