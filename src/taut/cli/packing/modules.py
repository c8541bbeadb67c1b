"""Find the modules and the installed packages that a script imports, by reading the code; nothing is run."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from taut.errors import Misuse

OURS = "taut"


def local_files(script: Path, included: Iterable[Path] = ()) -> dict[str, Path]:
    """Return the script and all modules of its folder that it imports, directly or not, by their paths in the folder; and
    what is ``included``: files, and folders with all that is in them.

    What is imported by a name that is made up while the script runs cannot be seen: include it.
    """
    root = script.resolve().parent
    found: dict[str, Path] = {}
    waiting = [script.resolve(), *(file for path in included for file in _within(path, root))]
    while waiting:
        file = waiting.pop()
        name = file.relative_to(root).as_posix()
        if name not in found:
            found[name] = file
            waiting += _imported(file, root) if file.suffix == ".py" else []
    return found


def requirements(files: Iterable[Path], local: Iterable[str]) -> dict[str, str]:
    """Return the installed packages that these files import, with their versions. ``local``: paths of modules that are
    not to be looked for."""
    own = {Path(path).parts[0].removesuffix(".py") for path in local} | {OURS}
    names = {name.partition(".")[0] for file in files if file.suffix == ".py" for name, _ in _names(file)}
    packages = metadata.packages_distributions()
    needed = {packages[name][0] for name in names - own - set(sys.stdlib_module_names) if name in packages}
    return {name: metadata.version(name) for name in sorted(needed)}


def _within(path: Path, root: Path) -> Iterator[Path]:
    """Yield the files of what is included."""
    whole = path.resolve()
    if not whole.exists():
        raise Misuse(f"--include {path}", "a file or a folder that exists")
    if not whole.is_relative_to(root):
        remedy = "a job has the files of the script's folder; give other data to the script as an argument"
        raise Misuse(f"--include {path}", f"a file in {root}", remedy)
    files = [whole] if whole.is_file() else sorted(whole.rglob("*"))
    for file in files:
        if file.is_file() and "__pycache__" not in file.parts:
            if not file.resolve().is_relative_to(root):
                raise Misuse(f"--include {path}, in which {file.name} is a link", f"files in {root}")
            yield file


def _imported(file: Path, root: Path) -> Iterator[Path]:
    """Yield the files of ``root`` that an import in ``file`` loads."""
    for name, level in _names(file):
        base = root if not level else file.parents[level - 1]
        if not base.is_relative_to(root):
            continue
        for count in range(1 + name.count(".") if name else 0):
            part = base.joinpath(*name.split(".")[: count + 1])
            for candidate in (part.with_name(part.name + ".py"), part / "__init__.py"):
                if candidate.is_file():
                    yield candidate
        if level and (base / "__init__.py").is_file():
            yield base / "__init__.py"


def _names(file: Path) -> Iterator[tuple[str, int]]:
    """Yield the full names in the imports of a file; ``from a import b`` gives both a and a.b. With each its level: how
    many dots are before it."""
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except SyntaxError as error:
        raise Misuse(f"{file}, line {error.lineno}: {error.msg}", "Python") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield module, node.level
            yield from ((f"{module}.{alias.name}".strip("."), node.level) for alias in node.names if alias.name != "*")
