"""What does encryption cost per MB: CURVE, which every connection of taut has, against AES-256-GCM in hardware?

    .venv-lan/bin/python bench/encryption.py        (``make test-lan`` makes that environment; AES needs `cryptography`)

First the ciphers alone, on one thread, in and out of the same buffers, in turn: XSalsa20-Poly1305 of the libsodium that
pyzmq carries, which is what libzmq's CURVE calls for each message, and AES-256-GCM of `cryptography`. Then messages over
loopback from a PUSH to a PULL socket of one process, with CURVE and without: CPU time and seconds for each gigabyte, for
both ends together. The difference is CURVE's, with its copies.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import zmq

from report import Row, arguments, report, row

SIZES = {"64 kB": 64 << 10, "1 MB": 1 << 20}
KEY_NBYTES, NONCE_NBYTES, TAG_NBYTES = 32, 24, 16


def sodium() -> ctypes.CDLL:
    """Load the libsodium that pyzmq's wheel carries."""
    (found,) = (Path(zmq.__file__).parents[1] / "pyzmq.libs").glob("libsodium*")
    library = ctypes.CDLL(str(found))
    assert library.sodium_init() >= 0  # it chooses the code for this processor; libzmq calls it, too
    return library


def curve_cipher(nbytes: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return how to encrypt a message of this size as CURVE does, and how to decrypt it."""
    library = sodium()
    key, nonce = os.urandom(KEY_NBYTES), os.urandom(NONCE_NBYTES)
    clear = ctypes.create_string_buffer(os.urandom(nbytes), nbytes)
    sealed = ctypes.create_string_buffer(nbytes + TAG_NBYTES)
    length, longer = ctypes.c_ulonglong(nbytes), ctypes.c_ulonglong(nbytes + TAG_NBYTES)

    def encrypt() -> None:
        library.crypto_box_easy_afternm(sealed, clear, length, nonce, key)

    def decrypt() -> None:
        assert library.crypto_box_open_easy_afternm(clear, sealed, longer, nonce, key) == 0

    return encrypt, decrypt


def aes_cipher(nbytes: int) -> tuple[Callable[[], object], Callable[[], object]]:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher, nonce, clear = AESGCM(os.urandom(KEY_NBYTES)), os.urandom(12), os.urandom(nbytes)
    sealed = cipher.encrypt(nonce, clear, None)
    return lambda: cipher.encrypt(nonce, clear, None), lambda: cipher.decrypt(nonce, sealed, None)


def cpu_ms_per_mb(step: Callable[[], object], nbytes: int, seconds: float) -> float:
    """Return the CPU time of one call, by the size of its message."""
    calls, began_s = 0, time.thread_time()
    while time.thread_time() - began_s < seconds:
        step()
        calls += 1
    return (time.thread_time() - began_s) * 1e3 / (calls * nbytes / 1e6)


def carried(nbytes: int, total: int, *, curve: bool) -> tuple[float, float]:
    """Send ``total`` bytes over loopback; return the seconds and the CPU seconds of all threads, per GB."""
    context = zmq.Context()
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    try:
        if curve:
            public, secret = zmq.curve_keypair()
            pull.curve_server, pull.curve_secretkey = True, secret
            push.curve_serverkey = public
            push.curve_publickey, push.curve_secretkey = zmq.curve_keypair()
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        push.connect(f"tcp://127.0.0.1:{port}")
        message = os.urandom(nbytes)
        push.send(message)
        pull.recv()
        count = max(1, total // nbytes)
        sender = threading.Thread(target=lambda: [push.send(message, copy=False) for _ in range(count)])
        began_s, used_s = time.monotonic(), time.process_time()
        sender.start()
        for _ in range(count):
            pull.recv(copy=False)
        sender.join()
        per_gb = 1e9 / (count * nbytes)
        return (time.monotonic() - began_s) * per_gb, (time.process_time() - used_s) * per_gb
    finally:
        push.close(0)
        pull.close(0)
        context.term()


def rows(repetitions: int, seconds: float, total: int) -> list[Row]:
    made: list[Row] = []
    ciphers = {"XSalsa20-Poly1305 (CURVE)": curve_cipher, "AES-256-GCM": aes_cipher}
    for size, nbytes in SIZES.items():
        steps = {
            f"{name}, {how}": step
            for name, made_by in ciphers.items()
            for how, step in zip(("encrypt", "decrypt"), made_by(nbytes), strict=True)
        }
        taken: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(repetitions):
            for name, step in steps.items():
                taken[name].append(cpu_ms_per_mb(step, nbytes, seconds))
        made += [
            row(f"{name}, messages of {size}", statistics.median(each), "ms of CPU per MB")
            for name, each in taken.items()
        ]
    for size, nbytes in SIZES.items():
        ways = {"in the clear": False, "with CURVE": True}
        figures: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        for _ in range(repetitions):
            for way, curve in ways.items():
                figures[way].append(carried(nbytes, total, curve=curve))
                gc.collect()
        for way, each in figures.items():
            name = f"loopback {way}, messages of {size}"
            made.append(row(f"{name}: CPU of both ends", statistics.median(cpu for _, cpu in each), "ms per MB"))
            made.append(row(f"{name}: time", statistics.median(wall for wall, _ in each), "ms per MB"))
    return made


def main(args: argparse.Namespace) -> None:
    quick = args.quick
    report("encryption", rows(3 if quick else 7, 0.05 if quick else 0.3, (32 << 20) if quick else (512 << 20)), args)


if __name__ == "__main__":
    main(arguments(__doc__ or "").parse_args())
