"""Python and packages as files, for a machine that has neither: this Python, with the standard library, the packages
that a job needs with all that they need in turn, and the shared libraries that all of these load.

    bin/python3.11             this Python; it finds the rest from where it is
    lib/python3.11/            the standard library
    lib/python3.11/site-packages/
    system/                    shared libraries of this system but for those of its C library
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path

import taut
from taut.errors import Misuse

LIBRARIES = "system"
OUR_EXTRAS = frozenset({"dashboard"})  # of taut, taken along where they are installed

# Parts of the standard library that no training job imports; what tkinter loads is larger than all the rest.
_LEFT_OUT = frozenset({"test", "ensurepip", "idlelib", "tkinter", "turtledemo"})
_NO_LIBRARY = frozenset({"site-packages", "dist-packages", "__pycache__"})
# The C library and the drivers of GPUs: a program has to take the machine's own.
_MACHINES_OWN = re.compile(
    r"(ld-linux.*|linux-vdso|libc|libm|libmvec|libdl|libpthread|librt|libresolv|libutil|libnsl|libanl|libnss_\w+"
    r"|libBrokenLocale|libthread_db|libcuda|libnvidia-.*)\.so.*"
)
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[([^]]*)\])?")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")


def check_system() -> str:
    """Return this system's version of glibc. Raises ``Misuse`` where no executable can be made."""
    library, version = platform.libc_ver()
    if sys.platform != "linux" or library != "glibc" or shutil.which("ldd") is None:
        given = f"--executable on {platform.system()}{' without glibc' if sys.platform == 'linux' else ''}"
        raise Misuse(given, "Linux with glibc and its `ldd`", "without --executable, a job runs wherever taut does")
    return version


def packages(names: Iterable[str]) -> dict[str, Distribution]:
    """Return taut, these packages, and the installed ones of those that they require, by name. What is not installed is
    left out: the job does without it here, too."""
    found: dict[str, Distribution] = {}
    wanted: list[tuple[str, frozenset[str]]] = [("taut", OUR_EXTRAS), *((_normal(name), frozenset()) for name in names)]
    seen = set()
    while wanted:
        each = name, extras = wanted.pop()
        if each in seen:
            continue
        seen.add(each)
        try:
            found[name] = importlib.metadata.distribution(name)
        except PackageNotFoundError:
            continue
        wanted += (needed for text in found[name].requires or [] for needed in _required(text, extras))
    return dict(sorted(found.items()))


def _required(text: str, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the name and the extras of a requirement, unless it is of an extra that is not wanted.

    >>> list(_required("Foo_bar[b] >=1.2; python_version > '3'", frozenset()))
    [('foo-bar', frozenset({'b'}))]
    >>> list(_required("foo; extra == 'a'", frozenset())), list(_required("foo; extra == 'a'", frozenset("a")))
    ([], [('foo', frozenset())])
    """
    requirement, _, condition = text.partition(";")
    named, of_extra = _REQUIREMENT.match(requirement), _EXTRA.search(condition)
    if named is not None and (of_extra is None or of_extra[1] in extras):
        yield _normal(named[1]), frozenset(each.strip() for each in (named[2] or "").split(",") if each.strip())


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def files(found: Mapping[str, Distribution]) -> dict[str, Path]:
    """Return all files by their paths in the folder that they will be in."""
    python, library = Path(os.path.realpath(sys.executable)), Path(sysconfig.get_path("stdlib"))
    if not library.is_relative_to(sys.base_prefix):
        raise Misuse(f"--executable with {sys.executable}, whose library is {library}", f"one in {sys.base_prefix}")
    place = library.relative_to(sys.base_prefix).as_posix()
    made = {f"bin/python{sysconfig.get_python_version()}": python}
    made |= {f"{place}/{path}": file for path, file in _standard_library(library)}
    site = _site_folder(python)
    for name, distribution in found.items():
        made |= {f"{site}/{path}": file for path, file in _package(name, distribution)}
    return made | {f"{LIBRARIES}/{path}": file for path, file in _libraries(made)}


def _standard_library(library: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of the standard library."""
    for folder, names, inside in os.walk(library):
        own = Path(folder) == library
        left_out = _NO_LIBRARY | (_LEFT_OUT if own else frozenset())
        names[:] = [name for name in names if name not in left_out and not (own and name.startswith("config-"))]
        for name in inside:
            file = Path(folder, name)
            if file.is_file() and not name.startswith("_tkinter."):  # a link may lead nowhere
                yield file.relative_to(library).as_posix(), file


def _site_folder(python: Path) -> str:
    """Return the folder of packages in a Python of this build."""
    code = "import site, sys; print(site.getsitepackages(['/prefix'])[-1])"
    ended = subprocess.run([python, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    return ended.stdout.strip().removeprefix("/prefix/")


def _package(name: str, distribution: Distribution) -> Iterator[tuple[str, Path]]:
    """Yield the files of a package, but for those outside the folder of packages, such as commands."""
    if name == "taut":
        home = Path(taut.__file__).parent
        yield from ((f"taut/{file.relative_to(home).as_posix()}", file) for file in home.rglob("*") if _taken(file))
    elif json.loads(distribution.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"):
        remedy = f"pip install the folder of {name} without -e"
        raise Misuse(f"--executable with {name}, which is installed with -e", "packages that are copied here", remedy)
    if distribution.read_text("RECORD") is None:
        remedy = f"install {name} with pip, in a virtual environment"
        raise Misuse(f"--executable with {name}, of which no list of files is kept", "packages of pip", remedy)
    for listed in distribution.files or []:
        file = Path(str(listed.locate()))
        plain = not listed.is_absolute() and ".." not in listed.parts
        if plain and _taken(file) and not (name == "taut" and file.suffix == ".pth"):
            yield listed.as_posix(), file


def _taken(file: Path) -> bool:
    """Return whether a file of a package is needed to run it: static libraries and cached byte code are not."""
    return file.suffix not in (".a", ".pyc") and file.is_file()


def _libraries(found: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """Yield the shared libraries that these files load, by the names by which they are loaded; not those among them."""
    binaries = [str(file) for path, file in found.items() if path.startswith("bin/") or ".so" in file.suffixes]
    here = {os.path.realpath(file) for file in binaries}
    ended = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False)  # 1: one is a script
    yield from loaded(ended.stdout, here)


def loaded(said: str, here: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yield the libraries in what ``ldd`` said, once each, but for those ``here`` and the machine's own.

    >>> said = "\\tlibc.so.6 => /lib/libc.so.6 (0x7f)\\n\\tlibz.so.1 => /lib/libz.so.1 (0x8f)\\n\\tq.so => not found\\n"
    >>> [name for name, _ in loaded(said, [])]
    ['libz.so.1']
    """
    known = set(here)
    found = re.findall(r"^\s*(\S+) => (/.*) \(0x[0-9a-f]+\)$", said, re.MULTILINE)
    for name, path in sorted(set(found)):
        if not _MACHINES_OWN.fullmatch(name) and os.path.realpath(path) not in known:
            yield name, Path(path)
