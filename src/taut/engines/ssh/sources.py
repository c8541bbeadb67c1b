"""The files of a script: itself, and the modules of its own folder that it imports, and what these import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from taut.errors import Misuse

MAX_NBYTES = 8 << 20


def sources_of(script: str | Path) -> dict[str, bytes]:
    """Return the script and its modules by their paths from the script's folder; the script comes first.

    Imports are found in the text, so a module that is imported by a computed name is not.
    """
    folder, found, waiting = Path(script).parent, {}, [Path(script).name]  # type: Path, dict[str, bytes], list[str]
    while waiting:
        name = waiting.pop(0)
        if name in found:
            continue
        found[name] = (folder / name).read_bytes()
        waiting += [path for module in imported(found[name], name) for path in _files(folder, module)]
    nbytes = sum(map(len, found.values()))
    if nbytes > MAX_NBYTES:
        raise Misuse(
            f"{script} with the {len(found) - 1} modules beside it: {nbytes / 1e6:.0f} MB",
            f"at most {MAX_NBYTES >> 20} MB to send to each host",
            "put them there, and name the folder: directory in hosts.toml",
        )
    return found


def imported(text: bytes, path: str) -> Iterator[str]:
    """Yield the names that a file imports, with those of the packages around them.

    >>> list(imported(b"import os.path; from .net import layers", "models/big.py"))
    ['os', 'os.path', 'models', 'models.net', 'models.net.layers']
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # the script itself says so, when it is run
        return
    package = path.split("/")[:-1]
    for node in ast.walk(tree):
        names: list[list[str]] = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, *(node.module.split(".") if node.module else [])]
            names = [[*base, alias.name] for alias in node.names]
        known: dict[str, None] = {}
        for name in names:
            known |= {".".join(name[:end]): None for end in range(1, len(name) + 1)}
        yield from known


def _files(folder: Path, module: str) -> list[str]:
    """Return the files of a module in this folder; none where it is not there."""
    path = module.replace(".", "/")
    return [name for name in (f"{path}.py", f"{path}/__init__.py") if (folder / name).is_file()]
