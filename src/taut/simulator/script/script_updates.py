"""The updates that a script really makes: it is run as one worker for some steps, in this process, and watched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from taut.errors import Misuse, RunFailed, TautError
from taut.simulator.scenario import Scenario
from taut.simulator.script.connection import VirtualConnector
from taut.simulator.script.run import ScriptRun, deterministic
from taut.worker.standalone.worker import Vector

if TYPE_CHECKING:
    from taut.worker.model.flat_params import FlatParams

Watcher = Callable[["FlatParams", Vector], None]


class _Watched(ScriptRun):
    watcher: Watcher

    def _stepped(self, connector: VirtualConnector) -> None:
        params = connector.session.params
        self.watcher(params, params.host(params.vector))
        super()._stepped(connector)


def watch_script(script: str, args: tuple[str, ...], steps: int, watcher: Watcher) -> int:
    """Run the script alone, and call ``watcher`` with the weights after every step; then drain the run, as by Ctrl-C.
    Return how many steps it made: fewer if its data ended before. Raises ``RunFailed`` if the script itself fails."""
    if not Path(script).is_file():
        raise Misuse(f"script {script!r}", "a file that exists")
    alone = Scenario(workers=1, strategy="independent", steps=steps, script=script, args=args)
    with deterministic():
        run = _Watched(alone, None, None, None)
        run.watcher = watcher
        try:
            run.go()
        except TautError:
            raise
        except Exception as error:
            raise RunFailed(f"{script} failed: {type(error).__name__}: {error}") from error
        finally:
            run.close()
    result = run.result(0.0)
    if result.error:
        raise RunFailed(result.error)
    return run.observer.steps
