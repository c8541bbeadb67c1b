"""The folders of runs: making a new one, and finding one by the run's name. A run without a name gets the time of its
start and two words that are easy to remember."""

from __future__ import annotations

import errno
import random
import shutil
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from taut.config import Settings
from taut.errors import Misuse, StorageFailed

if TYPE_CHECKING:
    from taut.supervisor.checkpoints.folder import Launch
    from taut.supervisor.prepare import Origin
    from taut.supervisor.service import Supervisor
    from taut.transport.keys import RunKeys


_MANNERS = """
able amber bold brave brisk calm civil clear clever cool deft eager early even fair fleet fond frank free
fresh gentle glad grand green happy hardy humble keen kind light lively lucid mellow merry mild neat noble
patient plain polite proud quick quiet ready robust rosy serene sharp shy silver smart smooth snug sober
spry steady still stout sunny sure swift tidy tranquil true vivid warm wary wise witty young
           """
_ANIMALS = """
adder auk badger bat beaver bee bison boar buck carp cat civet cod colt crab crane crow deer dove duck eagle
eel egret elk falcon ferret finch fox frog gecko goat goose gull hare hawk hen heron ibex ibis jay kite
koala lark lemur lion lizard lynx marten mole moose moth mouse newt okapi osprey otter owl ox panda pike
pony puffin quail rabbit ram raven robin rook salmon seal shrew skink snail sparrow squid stoat stork swan
tapir tern thrush tiger toad trout viper vole walrus wasp weasel whale wolf wombat wren yak zebra
           """


def run_name(now: datetime, chance: random.Random) -> str:
    """Return a name that sorts by time.

    >>> run_name(datetime(2026, 11, 15, 3, 18, 22), random.Random(1)).startswith("20261115-031822-")
    True
    """
    return f"{now:%Y%m%d-%H%M%S}-{chance.choice(_MANNERS.split())}-{chance.choice(_ANIMALS.split())}"


def new_run_folder(
    runs_dir: str, name: str | None, now: datetime | None = None, chance: random.Random | None = None
) -> Path:
    """Make a new run's folder, and return it; without a ``name``, one is made up that no other run has."""
    parent, now, chance = Path(runs_dir), now or datetime.now(), chance or random.Random()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for _ in range(1000):
            folder = parent / (name or run_name(now, chance))
            try:
                folder.mkdir()
                return folder
            except FileExistsError:
                if name is not None:
                    remedy = f"`taut show {name}` shows that run"
                    raise Misuse(f"--name {name}", f"a name that no run in {runs_dir} has", remedy) from None
        raise StorageFailed(f"{runs_dir}: no free name for a run that begins at {now}")
    except FileExistsError:
        raise Misuse(f"--runs-dir {runs_dir}", "a folder", "a file of that name is in the way") from None
    except OSError as error:
        if error.errno == errno.ENOSPC:  # a full disk is not the user's mistake
            raise StorageFailed(f"--runs-dir {runs_dir}: {error}") from None
        raise Misuse(f"--runs-dir {runs_dir} ({error.strerror})", "a folder that this user may write to") from None


def new_supervisor(
    settings: Settings, command: str, launch: Launch | None = None, keys: RunKeys | None = None
) -> Supervisor:
    """Make a new run, and return its supervisor, not started. Nothing is left where that fails."""
    from taut.supervisor.prepare import Origin

    folder = new_run_folder(settings.runs_dir, settings.name)
    try:
        return supervisor_in(folder, settings, Origin(command, launch, keys=keys))
    except BaseException:  # Ctrl-C, too
        shutil.rmtree(folder, ignore_errors=True)
        raise


def supervisor_in(folder: Path, settings: Settings, origin: Origin, part: int = 0) -> Supervisor:
    """Return the supervisor of the run in this folder, not started. ``part``: of the model, that the run trains."""
    from taut.supervisor.prepare import Listen
    from taut.supervisor.service import Supervisor

    listen = Listen(settings.bind, settings.port, settings.advertise, settings.transport)
    run, workers, seed = folder.name, settings.workers, settings.seed
    shared = settings.shared() | ({"part": part} if part else {})
    return Supervisor(shared, folder, run=run, workers=workers, seed=seed, listen=listen, origin=origin)
