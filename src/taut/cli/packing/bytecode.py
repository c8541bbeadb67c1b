"""Modules without their source: byte code of this Python, which runs on the same version only.

Byte code hides comments and formatting. Names and constants are still in it, and there are programs that write source
from it: it is no secret.
"""

from __future__ import annotations

import importlib.util
import marshal
from collections.abc import Mapping
from pathlib import PurePosixPath

from taut.errors import Misuse

MARK = importlib.util.MAGIC_NUMBER.hex()  # of this Python's byte code
_UNCHECKED = (1).to_bytes(4, "little") + bytes(8)  # byte code that is not compared with a source


def compiled(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files with byte code (``.pyc``) in place of Python (``.py``)."""
    made = {}
    for path, data in files.items():
        name = PurePosixPath(path)
        made[renamed(path)] = _compile(path, data) if name.suffix == ".py" else data
    return made


def renamed(path: str) -> str:
    """Return the path that a file has as byte code.

    >>> renamed("package/module.py"), renamed("words.txt")
    ('package/module.pyc', 'words.txt')
    """
    return path + "c" if path.endswith(".py") else path


def _compile(path: str, source: bytes) -> bytes:
    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise Misuse(f"{path}: {error}", "Python") from None
    return importlib.util.MAGIC_NUMBER + _UNCHECKED + marshal.dumps(code)
