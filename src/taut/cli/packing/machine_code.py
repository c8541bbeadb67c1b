"""Modules as machine code, by Cython, where it and a C compiler are at hand. It runs on the same system and the same
version of Python only.

The script itself, and the ``__init__.py`` of packages, stay byte code: Python runs them as they are.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path, PurePosixPath

SUFFIX: str = sysconfig.get_config_var("EXT_SUFFIX") or ""  # of machine code for this Python on this system
_BUILD = """
import json, sys
from Cython.Build import cythonize
from setuptools import Extension, setup
made = [Extension(name, [path], extra_compile_args=["-g0"]) for name, path in json.loads(sys.argv[1]).items()]
directives = {"language_level": 3, "annotation_typing": False}
setup(name="job", script_args=["-q", "build_ext", "--build-lib", "out", "--build-temp", "made"],
      ext_modules=cythonize(made, quiet=True, compiler_directives=directives))
"""


def compiler() -> str:
    """Return what would compile, or an empty text."""
    try:
        version = metadata.version("cython")
    except metadata.PackageNotFoundError:
        return ""
    command = shlex.split(sysconfig.get_config_var("CC") or "") or [""]
    return f"Cython {version}" if SUFFIX and shutil.which(command[0]) else ""


def compiled(files: Mapping[str, bytes], script: str) -> tuple[dict[str, bytes], str]:
    """Return the files with machine code in place of the modules that can be compiled, and why some could not."""
    modules = {path: _name(path) for path in files if path != script and path.endswith(".py") and _name(path)}
    if not modules:
        return dict(files), ""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path in modules:
            (root / "src" / path).parent.mkdir(parents=True, exist_ok=True)
            (root / "src" / path).write_bytes(files[path])
        given = json.dumps({name: f"src/{path}" for path, name in modules.items()})
        ended = subprocess.run(
            [sys.executable, "-c", _BUILD, given], cwd=root, capture_output=True, text=True, errors="replace", check=False
        )
        if ended.returncode:
            said = [line for line in (ended.stdout + ended.stderr).splitlines() if line.strip()] or ["no reason given"]
            return dict(files), said[-1][:200]
        made = {path: data for path, data in files.items() if path not in modules}
        for path in modules:
            name = path.removesuffix(".py") + SUFFIX
            made[name] = (root / "out" / name).read_bytes()
        return made, ""


def _name(path: str) -> str:
    """Return the full name of a module that can be compiled, else an empty text.

    >>> _name("package/module.py"), _name("package/__init__.py"), _name("my-tool.py")
    ('package.module', '', '')
    """
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts) if all(part.isidentifier() for part in parts) and parts[-1] != "__init__" else ""
