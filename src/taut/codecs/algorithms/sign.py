"""Sign: one bit per element, times the mean magnitude.

    Q(v) = (|v|_1 / n) sign(v)        |Q(v) - v|^2 = |v|^2 - |v|_1^2 / n <= (1 - 1/n) |v|^2

Zero counts as plus. The mean is over the scanned elements; its sum is in float64, in a fixed order (``ordered_sums.py``).
Without error feedback the codec does not converge on simple convex problems (a test has Karimireddy's counter-example);
with error feedback it does.

With ``vote`` synchronous rounds take the majority: every worker has one vote per element, and

    the sum of all updates is replaced by  sign(sum of the workers' signs) * (mean of the workers' scales),   sign(0) = 0

In asynchronous training no worker counts votes, and ``vote`` changes nothing.

Bernstein et al. 2018, "signSGD: compressed optimisation for non-convex problems" (the vote); Karimireddy et al. 2019,
"Error feedback fixes signSGD and other gradient compression schemes" (the scale, and feedback).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from taut.codecs.compressor import FEEDBACK_KERNELS, Array, CompressedPiece, Compressor, CompressorState, Vector
from taut.codecs.info import CodecCost, CodecInfo
from taut.codecs.kernels import cpu
from taut.codecs.math.ordered_sums import magnitude_sum
from taut.codecs.parallel import run_chunks
from taut.codecs.wire.layouts.sign_bits import minus_bits
from taut.codecs.wire.payload import CHUNK, Header, Kind


@dataclass(frozen=True)
class SignPiece(CompressedPiece):
    """A piece of signs, each of which is worth ``scale``."""

    scale: float = 0.0


@dataclass(frozen=True)
class Sign(Compressor):
    """``vote``: synchronous rounds follow the majority, element by element.

    >>> v = np.array([3.0, -1.0, 0.0], np.float32)
    >>> Sign().compress(v, 0, CompressorState(3)).q.tolist() == [np.float32(4 / 3), -np.float32(4 / 3), np.float32(4 / 3)]
    True
    """

    name: ClassVar[str] = "sign"
    kernels = (*FEEDBACK_KERNELS, "signs._choose", "signs._block_sums", "signs.signs")
    kind: ClassVar[Kind] = Kind.VOTES

    vote: bool = False

    @property
    def facts(self) -> CodecInfo:
        return CodecInfo(
            title="the sign of each element, times the mean magnitude" + (", by majority" if self.vote else ""),
            bits=1.0,
            error=1.0,
            bound="|Q(v) - v|^2 = |v|^2 - |v|_1^2 / n, at most (1 - 1/n) |v|^2",
            paper="Karimireddy et al. 2019" if not self.vote else "Bernstein et al. 2018",
            cost=CodecCost(2.13e-9, 6.1e-9, 1.0, 25.5e-6),
        )

    @property
    def votes(self) -> bool:
        return self.vote

    def compress(self, v: Vector, lo: int, memory: CompressorState) -> CompressedPiece | None:
        scale = np.float32(magnitude_sum(v) / len(v))
        if not scale > 0.0:  # v is zero, or so small that its mean is no float32
            return None
        if isinstance(v, np.ndarray):
            return _signs_numpy(v, scale)
        import torch

        worth = torch.tensor(float(scale), dtype=torch.float32, device=v.device)
        return SignPiece((packed_torch(v < 0),), torch.where(v < 0, -worth, worth), scale=float(scale))

    def conclude(self, total: Vector, scale: float) -> None:
        """Replace the sum of votes by the majority's sign times ``scale``, in place."""
        if self.vote:
            total[:] = total.sign() if hasattr(total, "sign") else np.sign(total)
            total *= scale

    def head_and_body(self, pieces: Sequence[CompressedPiece], lo: int, length: int) -> tuple[Header, tuple[Array, ...]]:
        piece = pieces[0]
        assert len(pieces) == 1 and isinstance(piece, SignPiece)
        return Header(self.kind, piece.scale, lo, length, length), piece.body


def _signs_numpy(v: Any, scale: np.float32) -> SignPiece:
    """Write the bits and q chunk by chunk, so that v is read once."""
    bits, q = np.empty(-(-len(v) // 8), np.uint8), np.empty(len(v), np.float32)

    def write(start: int, stop: int) -> None:
        bits[start // 8 : -(-stop // 8)] = minus_bits(v[start:stop])
        cpu.signs.signs(v[start:stop], scale, q[start:stop])

    run_chunks(write, 0, len(v), CHUNK)
    return SignPiece((bits,), q, scale=float(scale))


def packed_torch(mask: Any) -> Array:
    """Pack a boolean tensor on its device, eight elements to a byte from the low end."""
    import torch

    padded = torch.nn.functional.pad(mask, (0, -len(mask) % 8)).view(-1, 8)
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=mask.device)
    packed: Array = (padded * weights).sum(1, dtype=torch.uint8).cpu().numpy()
    return packed
