"""Signatures of job files: Ed25519 (RFC 8032), by the package ``cryptography``.

A key is a line of text: ``taut-signing-key HEX`` in a file that only its owner can read, and ``taut-public-key HEX``
in a file for those who run the jobs. A file of public keys may have several lines; what follows a key is a remark.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from taut.cli.packing.job_file import SIGNATURE_NBYTES, Job
from taut.core.files import write_atomically
from taut.errors import Misuse

SECRET, PUBLIC = "taut-signing-key", "taut-public-key"
KEY_NBYTES = 32
KEYS_FILE_NBYTES = 1 << 20
_MEANING = b"taut job 1\0"  # before the manifest: the signature is of a job, and of nothing else


def make_keys(file: Path) -> Path:
    """Write a new key to ``file``, and its public half beside it, whose path is returned."""
    ed25519, public = _ed25519(), file.with_name(file.name + ".pub")
    for each in (file, public):
        if each.exists():
            raise Misuse(str(each), "a file that does not exist yet", "keys are not overwritten")
    secret = secrets.token_bytes(KEY_NBYTES)
    half = ed25519.Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    write_atomically(file, f"{SECRET} {secret.hex()}\n".encode(), 0o600)
    write_atomically(public, f"{PUBLIC} {half.hex()}\n".encode())
    return public


def signer(file: Path) -> Callable[[bytes], bytes]:
    """Return the function that signs a manifest with the key in ``file``."""
    key = _ed25519().Ed25519PrivateKey.from_private_bytes(_keys(file, SECRET)[0])
    public: bytes = key.public_key().public_bytes_raw()
    return lambda encoded: public + key.sign(_MEANING + encoded)


def check_signature(job: Job, trusted: Path | None) -> str:
    """Return who signed a job, in words. Raises ``Misuse`` where the signature is wrong, or ``trusted`` is a file of
    public keys and none of them signed it."""
    keys = None if trusted is None else _keys(trusted, PUBLIC)
    if not job.signature:
        if keys is not None:
            raise Misuse(f"{job.path}, which is not signed", f"a job signed by a key of {trusted}")
        return "not signed"
    try:
        ed25519 = _ed25519()
    except Misuse:
        if keys is not None:
            raise
        return "signature not checked, since cryptography is not installed"
    public, signature = job.signature[:KEY_NBYTES], job.signature[KEY_NBYTES:]
    from cryptography.exceptions import InvalidSignature

    try:
        if len(job.signature) != SIGNATURE_NBYTES:
            raise InvalidSignature
        ed25519.Ed25519PublicKey.from_public_bytes(public).verify(signature, _MEANING + job.encoded)
    except (InvalidSignature, ValueError):
        raise Misuse(f"{job.path}, whose signature is wrong", "a job that nobody changed after it was signed") from None
    if keys is not None and public not in keys:
        raise Misuse(f"{job.path}, signed by {public.hex()[:16]}", f"a job signed by a key of {trusted}")
    return f"signed by {public.hex()[:16]}" + (", which is not compared with any key" if keys is None else "")


def _keys(file: Path, kind: str) -> list[bytes]:
    """Return the keys of this kind in a file."""
    found = []
    try:
        with file.open("rb") as opened:
            text = opened.read(KEYS_FILE_NBYTES).decode("utf-8", "replace")
    except OSError as error:
        given = f"the keys in {file}, which cannot be read ({error.strerror})"
        raise Misuse(given, "a file of keys", "`taut pack --new-key FILE` makes one") from None
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            key = bytes.fromhex(words[1]) if words[0] == kind else b""
        except (ValueError, IndexError):
            key = b""
        if len(key) != KEY_NBYTES:
            raise Misuse(f"{file}, line {number}", f"a line `{kind} HEX`", "`taut pack --new-key FILE` makes keys")
        found.append(key)
    if not found:
        raise Misuse(f"{file} without a key", f"a line `{kind} HEX`", "`taut pack --new-key FILE` makes keys")
    return found


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise Misuse(
            "signatures without cryptography", "the package that makes them", "pip install 'taut[sign]'"
        ) from None
    return ed25519
