"""Kernels for NumPy vectors, compiled by numba: once per machine, for one signature each, kept on disk.

A kernel is loaded from numba's cache, or compiled, when it is first called. ``taut run`` does not wait for that: before
it starts workers it asks `missing` which kernels of the run's codecs are not in the cache, and compiles those. The cache
is beside the kernel's source file, in the user's cache folder where that is read-only, or in a private folder of the
temporary one. Importing a module of kernels compiles nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import numba
from numba.core.compiler_lock import global_compiler_lock

from taut.codecs.parallel import forget_pool
from taut.codecs.registry import compiling_text
from taut.core.files import lock_file

if sys.platform != "win32":
    os.register_at_fork(after_in_child=forget_pool)


class Kernel:
    """A function compiled for one ``signature``. Thread-safe: numba compiles under a lock of its own."""

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self.__doc__ = function.__doc__
        self._function, self._signature = function, signature
        self._compiled: Any = None

    def __call__(self, *given: Any) -> Any:
        return (self._compiled or self.compile())(*given)

    def compile(self) -> Any:
        """Return the compiled function, from the cache if it is there. Of several processes or threads at once, one
        compiles it."""
        with global_compiler_lock:
            if self._compiled is None:
                dispatcher = self._dispatcher
                with _locked(f"{self._function.__module__}.{self._function.__name__}"):
                    dispatcher.compile(self._signature)
                dispatcher.disable_compile()  # arguments are converted to this signature: no other is ever compiled
                self._compiled = dispatcher
            return self._compiled

    def load(self) -> bool:
        """Load the kernel if it is in the cache; return whether it is ready to be called."""
        with global_compiler_lock:
            cache, target = self._dispatcher._cache, self._dispatcher.targetctx
            if self._compiled is None and cache.load_overload(self._signature, target) is not None:
                self.compile()
            return self._compiled is not None

    @property
    def loaded(self) -> bool:
        """Return whether it can be called at once."""
        return self._compiled is not None

    @property
    def kept(self) -> bool:
        """Return whether there is a folder in which the compiled kernel is kept."""
        return bool(self._dispatcher._cache.cache_path)

    @cached_property
    def _dispatcher(self) -> Any:
        with contextlib.suppress(RuntimeError):  # numba: no folder for the cache can be written
            return _jit(cache=True)(self._function)
        path = private_folder()
        if path is not None:
            numba.config.CACHE_DIR = path  # type: ignore[attr-defined]
        return _jit(cache=path is not None)(self._function)


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a `Kernel` of a function, as a decorator."""
    return lambda function: Kernel(function, signature)


def _jit(cache: bool) -> Any:
    return numba.njit(cache=cache, nogil=True, error_model="numpy")


part = _jit(cache=False)  # decorates functions that kernels call: compiled and kept with those


def private_folder() -> str | None:
    """Return a folder under the temporary one that only this user can write, since what is loaded from it is run; or
    None. On Windows each user has a temporary folder."""
    with contextlib.suppress(OSError):
        if sys.platform == "win32":
            path = os.path.join(tempfile.gettempdir(), "taut-kernels")
            os.makedirs(path, exist_ok=True)
            return path
        path = os.path.join(tempfile.gettempdir(), f"taut-kernels-{os.getuid()}")
        os.makedirs(path, mode=0o700, exist_ok=True)
        about = os.lstat(path)
        if about.st_uid == os.getuid() and not about.st_mode & 0o077 and not os.path.islink(path):
            return path
    return None


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    """Hold this user's lock of that name: another process that wants it waits. Without a private folder, do not lock."""
    folder = private_folder()
    if folder is None:
        yield
        return
    with open(os.path.join(folder, f"{name}.lock"), "w", encoding="ascii") as lock:
        lock_file(lock.fileno(), wait=True)
        yield


def find(names: Iterable[str]) -> list[Kernel]:
    """Return the kernels of these names, ``module.function``, each once."""
    found = []
    for name in dict.fromkeys(names):
        module, _, function = name.partition(".")
        found.append(getattr(importlib.import_module(f"taut.codecs.kernels.cpu.{module}"), function))
    return found


def missing(names: Iterable[str]) -> list[Kernel]:
    """Load the kernels of these names from the cache; return those that are not there."""
    return [each for each in find(names) if not each.load()]


def compile_missing(names: Iterable[str], tell: Callable[[str], None]) -> None:
    """Compile the kernels that are not in the cache, in this thread; ``tell`` gets a line at the beginning, and one at
    the end."""
    wanted = missing(names)
    for number, each in enumerate(wanted):
        if not number:
            tell(compiling_text(0, len(wanted)))
        each.compile()
    if wanted:
        tell(compiling_text(len(wanted), len(wanted)))
