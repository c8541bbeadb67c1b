"""Masks that cancel in a sum: of each pair of members one adds a stream of random numbers, and the other subtracts it.

    y_i = v_i + sum_{j > i} PRG(s_ij) - sum_{j < i} PRG(s_ij)   (mod 2^64)        sum_i y_i = sum_i v_i

s_ij: X25519 of i's secret key and j's public one, through HKDF-SHA256 with the round, the version of the members and both
public keys; PRG: the key stream of ChaCha20. Each round has keys of its own, which nobody keeps: who learns one later
learns nothing of rounds that are over. To who lacks the streams of one pair, y_i is uniformly distributed, whatever v_i
is. The keys are random, and the sum does not depend on them. By the package ``cryptography`` (the extra privacy).

Paper: Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving Machine Learning".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from taut.errors import MalformedMessage, Misuse

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

Words = npt.NDArray[np.uint64]
KEY_NBYTES = 32
WORD_NBYTES = 8
CHUNK = 1 << 17  # words of a mask that are made at a time


def check_installed(given: str) -> None:
    """Raise ``Misuse`` where the package that makes keys and masks is missing."""
    if find_spec("cryptography") is None:
        raise Misuse(given, "the package cryptography, which makes the masks", "pip install 'taut[privacy]'")


class RoundKeys:
    """One member's keys for one round. ``public``: what the others are told."""

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._secret: X25519PrivateKey = X25519PrivateKey.generate()
        self.public: bytes = self._secret.public_key().public_bytes_raw()

    def check(self, public: bytes) -> None:
        """Raise ``MalformedMessage`` unless this is a public key that makes a secret with ours."""
        self._shared(public)

    def mask(self, values: Words, rank: int, public: Mapping[int, bytes], of: tuple[int, ...]) -> None:
        """Add the masks that member ``rank`` shares with all others in ``public``; ``of``: what the masks are for, and
        for nothing else: the round, and the version of the members."""
        for other, key in public.items():
            if other != rank:
                low, high = sorted((rank, other))
                bound = struct.pack(f"<{len(of)}q", *of) + public[low] + public[high]
                _add_stream(values, self._derived(key, bound), subtract=rank == high)

    def _shared(self, public: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        try:
            return bytes(self._secret.exchange(X25519PublicKey.from_public_bytes(public)))
        except ValueError:  # of another length, or of a point from which no secret comes
            raise MalformedMessage("a public key that is none") from None

    def _derived(self, public: bytes, bound: bytes) -> bytes:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        info = b"taut masked sum 1" + bound
        return bytes(HKDF(SHA256(), KEY_NBYTES, salt=None, info=info).derive(self._shared(public)))


def _add_stream(values: Words, key: bytes, subtract: bool) -> None:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    for lo in range(0, len(values), CHUNK):
        part = values[lo : lo + CHUNK]
        mask = np.frombuffer(stream.update(bytes(WORD_NBYTES * len(part))), "<u8")
        if subtract:
            part -= mask
        else:
            part += mask
