"""A user's script as the main module: a file, or (``-m NAME``) a module, as Python takes them."""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from types import TracebackType

MODULE = "-m "  # before the name of a module that is run in place of a file, as by python -m


def module_of(script: str | Path) -> str:
    """Return the module's name where ``script`` is one, else an empty text.

    >>> module_of("-m package.train"), module_of("train.py")
    ('package.train', '')
    """
    return str(script).removeprefix(MODULE) if str(script).startswith(MODULE) else ""


def import_folder(script: str) -> str:
    """Return the folder in which Python looks first for what ``script`` imports."""
    return os.getcwd() if module_of(script) else str(Path(script).resolve().parent)


def run_main(script: str) -> None:
    """Run ``script`` as the main module. Its arguments and its `import_folder` are the caller's to set."""
    module = module_of(script)
    if module:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(script, run_name="__main__")


def script_trace(trace: TracebackType | None, *callers: str) -> TracebackType | None:
    """Return a traceback without the frames before the user's script: those of this file, of runpy, and of the files
    ``callers``."""
    before = (__file__, "<frozen runpy>", runpy.__file__, *callers)
    while trace is not None and trace.tb_frame.f_code.co_filename in before:
        trace = trace.tb_next
    return trace
