"""PNG files: written from 8-bit pixels, and recognised."""

from __future__ import annotations

import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOR_TYPES = {1: 0, 3: 2, 4: 6}  # gray, RGB, RGB with alpha


def encode_png(pixels: bytes, height: int, width: int, channels: int) -> bytes:
    r"""Return a PNG file of ``height`` rows of ``width`` pixels, each of 1, 3 or 4 bytes.

    >>> png = encode_png(bytes([0, 255, 255, 0]), 2, 2, 1)
    >>> is_png(png), png[12:16]
    (True, b'IHDR')
    """
    row = width * channels
    lines = b"".join(b"\0" + pixels[row * y : row * (y + 1)] for y in range(height))  # 0: no filter
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines)) + _chunk(b"IEND", b"")


def is_png(data: bytes) -> bool:
    """Return whether ``data`` begins as a PNG file does."""
    return data.startswith(SIGNATURE)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
