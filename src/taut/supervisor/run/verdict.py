"""The verdict on the replicas, their distance, the average of their buffers, and the upload of the final model. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from taut.core.messages import Digest, TensorSpec, Upload
from taut.errors import MalformedMessage

MOST_BLAMED = 8
_SIZES = {"float": 4, "double": 8, "half": 2, "long": 8, "bool": 1}  # types without a number of bits in their names


class Verdict(Struct, frozen=True):
    """The result of comparing digests. Without ``exact`` from all, ``identical`` is False and means nothing."""

    identical: bool
    exact: bool
    digest: str  # the common one, empty when they differ
    notes: tuple[str, ...]  # for the record


def judge(digests: Mapping[int, Digest]) -> Verdict:
    """Compare the replicas' hashes.

    >>> from taut.core.messages import Statistics
    >>> same = {rank: Digest("ab12", True, {}, Statistics()) for rank in (0, 3)}
    >>> judge(same).identical, judge(same).digest
    (True, 'ab12')
    """
    exact = bool(digests) and all(digest.exact for digest in digests.values())
    hashes = {digest.digest for digest in digests.values()}
    common = next(iter(hashes)) if len(hashes) == 1 else ""
    notes = []
    if not exact:
        notes.append("replicas not compared by hash: equality to the last bit is not promised here")
    elif len(hashes) > 1:
        each = ", ".join(f"{rank}: {digest.digest[:12]}" for rank, digest in sorted(digests.items()))
        notes.append(f"replicas differ although equality is promised ({each})")
        vectors = {tuple(sorted(digest.have.items())) for digest in digests.values()}
        if len(vectors) > 1:
            each = ", ".join(f"{rank}: {dict(sorted(one.have.items()))}" for rank, one in sorted(digests.items()))
            notes.append(f"they had included different updates ({each})")
    return Verdict(exact and len(hashes) == 1, exact, common, tuple(notes))


def why_differ(digests: Mapping[int, Digest], refused: Mapping[int, int]) -> str:
    """Return the known facts about replicas that differ though they must not: which, and whose messages were refused.

    >>> from taut.core.messages import Statistics
    >>> ends = {rank: Digest(end, True, {}, Statistics()) for rank, end in enumerate(("ab", "cd", "ab"))}
    >>> why_differ(ends, {})
    'the replicas of workers 0, 2 and worker 1 differ, though they must not; no message was refused: a bug in taut'
    >>> why_differ(ends, {3: 40})
    'the replicas of workers 0, 2 and worker 1 differ, though they must not; refused: 40 messages of worker 3'
    """
    alike: dict[str, list[int]] = {}
    for rank, digest in sorted(digests.items()):
        alike.setdefault(digest.digest, []).append(rank)
    groups = [f"worker{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" for ranks in alike.values()]
    text = f"the replicas of {' and '.join(groups)} differ, though they must not"
    worst = sorted((rank for rank, count in refused.items() if count), key=lambda rank: -refused[rank])[:MOST_BLAMED]
    if not worst:
        return f"{text}; no message was refused: a bug in taut"
    return f"{text}; refused: " + ", ".join(f"{refused[rank]} messages of worker {rank}" for rank in worst)


def by_island(digests: Mapping[int, Digest]) -> list[int]:
    """Return the ranks in the order of their islands, which is the same in the runs of all parts; of workers that are no
    islands, the lowest rank first.

    >>> from taut.core.messages import Statistics
    >>> by_island({rank: Digest("ab", True, {}, Statistics(), island=1 - rank) for rank in (0, 1)})
    [1, 0]
    """
    return sorted(digests, key=lambda rank: (rank if (own := digests[rank].island) is None else own, rank))


def by_score(scores: Mapping[int, float | None], lower_is_better: bool = False) -> list[int]:
    """Return the ranks, the best first; of equals the first one. A score that is no number never wins.

    >>> by_score({0: 0.9, 1: float("nan"), 2: 0.95, 3: 0.95, 4: None})
    [2, 3, 0, 1, 4]
    """

    def key(rank: int) -> tuple[bool, float]:
        score = scores[rank]
        if score is None or math.isnan(score):
            return True, 0.0
        return False, score if lower_is_better else -score

    return sorted(scores, key=key)


def scores_text(scores: Mapping[int, float | None]) -> str:
    """Return the scores for the log.

    >>> scores_text({0: 0.97, 1: None})
    'worker 0: 0.97, worker 1: none'
    """
    return ", ".join(f"worker {rank}: {'none' if score is None else f'{score:.6g}'}" for rank, score in scores.items())


def spread(digests: Mapping[int, Digest]) -> float:
    """Return the consensus distance of the replicas before averaging, relative to the norm of their mean: root mean
    square of their measurements, or 0 if equality was promised and kept, or else an estimate from sketches."""
    measured = [digest.distance for digest in digests.values() if digest.distance >= 0.0]
    if measured:
        return math.sqrt(sum(distance**2 for distance in measured) / len(measured))
    if judge(digests).identical:
        return 0.0
    return relative(digest.sketch for digest in digests.values())


def relative(sketches: Iterable[Sequence[float]]) -> float:
    """Return the ``consensus`` distance relative to the norm of the mean: 0.01 is one percent of the weights.

    >>> relative([[3.0, 4.0], [3.0, 6.0]])
    0.17149858514250882
    """
    rows = _table(sketches)
    norm = float(np.linalg.norm(rows.mean(axis=0))) if len(rows) else 0.0
    distance = _distance(rows)
    return distance / norm if norm > 0.0 and math.isfinite(norm) else distance


def consensus(sketches: Iterable[Sequence[float]]) -> float:
    """Return the root mean square distance of the replicas from their mean, sqrt(mean_i |s_i - mean|^2).

    The sketch is linear and keeps norms on average, so the distance of sketches estimates the distance of weights.
    Sketches of an uncommon length, empty ones and ones that are not finite are left out; fewer than two give 0.

    >>> consensus([[0.0, 0.0], [2.0, 0.0]])
    1.0
    >>> consensus([[1.0, 2.0]])
    0.0
    """
    return _distance(_table(sketches))


def _distance(table: npt.NDArray[np.float64]) -> float:
    if len(table) < 2:
        return 0.0
    # in units of the largest deviation, since squares of very large weights overflow
    away = table - table.mean(axis=0)
    scale = float(np.abs(away).max())
    if scale == 0.0 or not np.isfinite(scale):
        return scale
    return scale * float(np.sqrt(np.mean(np.sum((away / scale) ** 2, axis=1))))


def _table(sketches: Iterable[Sequence[float]]) -> npt.NDArray[np.float64]:
    rows = [sketch for sketch in sketches if len(sketch) > 0]
    if not rows:
        return np.empty((0, 0))
    common = Counter(len(row) for row in rows).most_common(1)[0][0]
    table = np.array([row for row in rows if len(row) == common], dtype=np.float64)
    usable: npt.NDArray[np.float64] = table[np.isfinite(table).all(axis=1)]
    return usable


def average_buffers(parts: Mapping[int, tuple[int, bytes]]) -> tuple[bytes, tuple[int, ...]]:
    """Return the mean of the workers' float32 buffers, weighted by samples: sum_i n_i x_i / sum_i n_i, in float64, in
    rank order.

    ``parts`` maps a rank to (samples, bytes). The result is the mean as float32 bytes, and the ranks left out: those
    whose buffers have another length than most, or are not finite while others' are.

    >>> one, two = np.float32([0.0, 1.0]).tobytes(), np.float32([4.0, 1.0]).tobytes()
    >>> mean, left_out = average_buffers({0: (300, one), 1: (100, two)})
    >>> np.frombuffer(mean, "<f4").tolist(), left_out
    ([1.0, 1.0], ())
    """
    whole = {rank: part for rank, part in sorted(parts.items()) if len(part[1]) % 4 == 0}
    if not whole:
        return b"", tuple(sorted(parts))
    nbytes = Counter(len(data) for _, data in whole.values()).most_common(1)[0][0]
    fitting = {rank: part for rank, part in whole.items() if len(part[1]) == nbytes}
    vectors = {rank: np.frombuffer(data, "<f4") for rank, (_, data) in fitting.items()}
    finite = {rank for rank, vector in vectors.items() if np.isfinite(vector).all()}
    kept = sorted(finite or vectors)
    weights = {rank: fitting[rank][0] for rank in kept}
    if not any(weights.values()):
        weights = dict.fromkeys(kept, 1)
    total = np.zeros(nbytes // 4, dtype=np.float64)
    with np.errstate(invalid="ignore"):  # buffers of which none is finite may hold any bits
        for rank in kept:
            if weights[rank]:
                total += weights[rank] * vectors[rank].astype(np.float64)
        mean = (total / sum(weights.values())).astype("<f4")
    return mean.tobytes(), tuple(rank for rank in sorted(parts) if rank not in kept)


def upload_limit_nbytes(model: Sequence[TensorSpec]) -> int:
    """Return the most that a safetensors file of this model may take: every tensor twice (tied tensors are written
    under each of their names), and a header with room for names and metadata."""
    tensors, header = 0, 1 << 16
    for spec in model:
        tensors += math.prod(spec.shape) * _item_nbytes(spec.dtype)
        header += 512 + 8 * len(spec.name.encode())
    return 2 * tensors + header


def _item_nbytes(dtype: str) -> int:
    """Return the bytes of one element: float32 4, torch.bfloat16 2, bool 1; 16, the most there is, if it is unknown."""
    name = dtype.removeprefix("torch.")
    bits = re.search(r"\d+", name)
    return max(1, int(bits[0][:4]) // 8) if bits else _SIZES.get(name, 16)


class ModelUpload(Struct):
    """Joins the writer's chunks, which come in order, without gaps, and never exceed the limit."""

    limit_nbytes: int
    total: int | None = None
    data: bytearray = bytearray()

    def add(self, chunk: Upload, payloads: Sequence[bytes]) -> bytes | None:
        """Add a chunk; return the whole file when it is complete, else None. Raise MalformedMessage if it is wrong."""
        if len(payloads) != 1:
            raise MalformedMessage(f"an upload of {len(payloads)} frames: expected 1")
        if chunk.total > self.limit_nbytes or chunk.total == 0:
            raise MalformedMessage(
                f"an upload of {chunk.total} bytes: expected 1 to {self.limit_nbytes}, by the model's tensors"
            )
        if self.total is None:
            self.total = chunk.total
        if chunk.total != self.total or chunk.offset != len(self.data):
            raise MalformedMessage(
                f"upload chunk at {chunk.offset} of {chunk.total}: expected {len(self.data)} of {self.total}"
            )
        if not payloads[0] or len(self.data) + len(payloads[0]) > self.total:
            raise MalformedMessage(f"upload chunk of {len(payloads[0])} bytes at {chunk.offset} of {self.total}")
        self.data += payloads[0]
        return bytes(self.data) if len(self.data) == self.total else None
