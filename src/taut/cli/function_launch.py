"""``taut.launch``: train a function in several processes, from a notebook or a program."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from taut.analysis.run import Run
from taut.config import resolve
from taut.errors import Misuse, TautError

JOB = Path(__file__).parent / "jobs" / "function.py"
TAUT = [sys.executable, "-m", "taut"]
ELSEWHERE = ("hosts", "engine", "ray_address")  # settings of runs on other machines: a pickle must not travel


class LaunchFailed(TautError):
    """A run of ``taut.launch`` ended with an error. Its output says which."""


class Launched:
    """A run that ``taut.launch`` made. ``result``: what the function returned on the first worker; ``run``: the run's
    tables, figure and model, as ``taut.Run`` has them."""

    def __init__(self, run: Run, result: Any) -> None:
        self.run, self.result = run, result

    def model(self) -> dict[str, Any]:
        """Return the tensors of the final model, by name."""
        return self.run.model()

    def __repr__(self) -> str:
        return f"<run {self.run.name}, {self.run.state}>"


def launch(
    function: Callable[..., Any],
    workers: int = 2,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    quiet: bool = False,
    **settings: object,
) -> Launched:
    """Train ``function`` in ``workers`` processes on this machine, and return its result and the run.

    ``function(*args, **kwargs)`` is called in each process, and calls ``taut.join`` as a script does. Its output and the
    run's progress are printed, unless ``quiet``. ``settings``: those of ``taut run``, such as ``strategy="sync"``,
    ``codec="int8"``, ``dashboard=8080``. A function of a module is imported there; one that was written in a notebook or
    in the program itself goes along by value, which needs cloudpickle. Ctrl-C, or the notebook's stop button, ends the
    run in order.

        def train(rate):
            model = Net()
            with taut.join(model, torch.optim.SGD(model.parameters(), lr=rate)) as worker:
                for x, y in worker.batches(dataset, batch_size=64, epochs=3):
                    worker.step(F.cross_entropy(model(x), y))
            return worker.loss

        done = taut.launch(train, workers=4, args=(0.1,), strategy="sync")
        done.result, done.run.figure(), done.model()
    """
    for name in ELSEWHERE:
        if settings.get(name) is not None:
            raise Misuse(f"taut.launch(..., {name}=...)", "a run on this machine", "write a script, and use `taut run`")
    with tempfile.TemporaryDirectory(prefix="taut-launch-") as name:
        folder = Path(name)  # which only this user may read
        (folder / "call.pickle").write_bytes(_packed(function, tuple(args), dict(kwargs or {})))
        (folder / "path.json").write_text(json.dumps(sys.path), encoding="utf-8")
        run_name = str(settings.get("name") or f"{_plain(function)}-{os.urandom(3).hex()}")
        words = ["--workers", workers, *_flags({**settings, "name": run_name})]
        command = [*TAUT, "run", *map(str, words), *(["--quiet"] if quiet else [])]
        code, last = _seen_through([*command, str(JOB), str(folder)], quiet)
        runs_dir = str(settings.get("runs_dir") or resolve({}).runs_dir)
        if code == Misuse.exit_code:
            raise Misuse(f"taut.launch({_plain(function)}, ...): {last}", "a run that can be started")
        if code != 0:
            error = folder / "error"
            why = error.read_text(encoding="utf-8") if error.exists() else last
            raise LaunchFailed(f"{why}; the run ended with exit code {code}, see `taut show {run_name}`")
        results = sorted(folder.glob("result-*"))  # of this user's own processes; the first worker that came to its end
        result = pickle.loads(results[0].read_bytes()) if results else None
    return Launched(Run(run_name, runs_dir), result)


def _plain(function: Callable[..., Any]) -> str:
    name = "".join(letter for letter in getattr(function, "__name__", "run") if letter.isalnum() or letter in "_-")
    return name.strip("_-") or "run"


def _flags(settings: Mapping[str, object]) -> list[str]:
    """Return settings as flags of ``taut run``.

    >>> _flags({"strategy": "sync", "checkpoint_every": "5m", "threads": None})
    ['--strategy', 'sync', '--checkpoint-every', '5m']
    """
    words = []
    for name, value in settings.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def _packed(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Return the call as a pickle: the function by its name where a module has it, else by value."""
    name, module = getattr(function, "__qualname__", ""), getattr(function, "__module__", "__main__")
    by_name = module != "__main__" and "<" not in name and _found(module, name) is function
    if by_name:
        return pickle.dumps((module, name, args, kwargs))
    if find_spec("cloudpickle") is None:
        remedy = "pip install 'taut[notebook]'; or write it into a module, and import it from there"
        raise Misuse(f"taut.launch of {name or function!r}, which no module has", "cloudpickle", remedy)
    import cloudpickle

    packed: bytes = cloudpickle.dumps(("", function, args, kwargs))
    return packed


def _found(module: str, name: str) -> Any:
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found


def _seen_through(command: list[str], quiet: bool) -> tuple[int, str]:
    """Run the command and print its output; return its exit code, and its last error or line."""
    last = ""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout:
        while True:
            try:
                for line in process.stdout:
                    last = line.strip() if line.strip() and not last.startswith("error:") else last
                    if not quiet:
                        print(line, end="", flush=True)
                return process.wait(), last.removeprefix("error: ")
            except KeyboardInterrupt:  # the run ends in order, with a model
                process.send_signal(signal.SIGINT)
