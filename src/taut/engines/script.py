"""A user's script, run as ``python SCRIPT ARGS`` would run it, and how it ends: what it raised, said in its own terms.

Fresh processes begin at `main` or `alone`; the zygote's forks call `run_script` and `leave`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn, TextIO, cast

from taut.early_sigint import INTERRUPTED
from taut.errors import TautError
from taut.worker.joining.main_script import import_folder, module_of, run_main, script_trace
from taut.worker.joining.script_worker import script_end

# Without the current folder in sys.path: a user's file named like a module of ours must not come first. Ctrl-C is quiet
# while this module is imported, as it is from `run_script` on.
_FIRST = "import sys; sys.path.pop(0); from taut.early_sigint import EarlyInterrupt\nwith EarlyInterrupt(): "
_FILES = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
_OURS = str(Path(__file__).resolve().parents[1]) + os.sep


def command(script: str, args: Sequence[str], *, alone: bool = False) -> list[str]:
    """Return the command line of a fresh process that is that script; ``alone``: no engine looks after it."""
    entry = "alone" if alone else "main"
    return [sys.executable, "-c", f"{_FIRST}from taut.engines.script import {entry}\n{entry}()", script, *args]


def main() -> NoReturn:
    """Be the script of ``python -c "..." SCRIPT ARGS``."""
    leave(run_script(sys.argv[1], sys.argv[2:]))


def alone() -> NoReturn:
    """Be the script of ``taut worker``: SIGTERM is Ctrl-C, so that a worker whose machine is taken away leaves in
    order."""
    own = os.getpid()

    def asked_to_end(number: int, frame: FrameType | None) -> None:
        if os.getpid() == own:
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_DFL)  # a process that the script forked: it is none of our workers
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, asked_to_end)
    main()


def run_script(script: str, args: Sequence[str]) -> int:
    """Run ``script`` as the main module and return its exit code."""
    sys.stdout, sys.stderr = _losing(sys.stdout), _losing(sys.stderr)
    return exit_code(lambda: _as_main(script, args), script)


def exit_code(function: Callable[[], object], script: str) -> int:
    """Call ``function``, whose code is in the file ``script``, and return the exit code that it would have as a script;
    an exception is told on standard error."""
    try:
        with script_end():
            function()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except TautError as error:
        if error.__cause__ is not None:
            _tell(error)
        else:  # it says what is wrong and what to do: where in taut it was found helps nobody
            text = f"error: {_where(script, error.__traceback__)}{error}"
            print("\n".join([text, *getattr(error, "__notes__", ())]), file=sys.stderr)
        return error.exit_code
    except BaseException as error:
        _tell(error)
        return 1
    return 0


class _Losing(io.FileIO):
    """A file that drops what cannot be written: a full disk must not end the training of a script that prints."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _losing(stream: Any) -> Any:
    """Return a stream to the same descriptor, with the same settings, whose writes never fail."""
    if type(stream) is not io.TextIOWrapper:  # there is none, or it is somebody's own
        return stream
    stream.flush()
    file = _Losing(stream.fileno(), "wb", closefd=False)
    unbuffered = isinstance(stream.buffer, io.RawIOBase)
    return io.TextIOWrapper(
        cast("Any", file) if unbuffered else io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _as_main(script: str, args: Sequence[str]) -> None:
    """Run a file, or (``-m NAME``) a module that is found from the current folder."""
    sys.argv = [script, *args]
    sys.path.insert(0, import_folder(script))
    run_main(script)


def leave(code: int) -> NoReturn:
    """End this process now, without taking the imported world apart: torch's takes more than a second of processor time.

    All that Python promises of a script's end is done: its threads are joined, its ``atexit`` functions called, what it
    dropped is finalized, and files that it left open are flushed.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for each in gc.get_objects():  # those of the script: what was imported before the fork is frozen
        if type(each) in _FILES:
            _flush(each)  # before the collector finds them: it may close what is below a file first
    gc.collect()
    _flush(sys.stdout)
    _flush(sys.stderr)
    if sys.platform != "win32":
        ctypes.CDLL(None).fflush(None)  # what extensions have printed
    os._exit(code)


def _flush(file: io.IOBase | TextIO) -> None:
    try:
        if not file.closed:
            file.flush()
    except (OSError, ValueError):
        pass  # a full disk, a broken pipe: there is nobody left to tell


def _tell(error: BaseException) -> None:
    trace = script_trace(error.__traceback__, __file__)
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def _where(script: str, trace: TracebackType | None) -> str:
    """Return the last line of the user's own code, as ``train.py, line 12: ``; not of taut or of another package."""
    found, folder = "", (os.getcwd() if module_of(script) else str(Path(script).absolute().parent)) + os.sep
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name == script or (name.startswith(folder) and "site-packages" not in name and not name.startswith(_OURS)):
            found = f"{name}, line {trace.tb_lineno}: "
        trace = trace.tb_next
    return found
