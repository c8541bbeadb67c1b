"""Names for runs: the time of the start, and two words that are easy to remember."""

from __future__ import annotations

import random
from datetime import datetime
from pathlib import Path

from taut.errors import StorageFailed

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


def new_run(runs_dir: Path, now: datetime | None = None, chance: random.Random | None = None) -> Path:
    """Make the folder of a new run under ``runs_dir`` and return it; its name, the run's, is unique."""
    now, chance = now or datetime.now(), chance or random.Random()
    for _ in range(1000):
        path = runs_dir / run_name(now, chance)
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            if path.is_dir():
                continue
            raise StorageFailed(f"{runs_dir}: a file is in the way of the folder of runs") from None
        except OSError as error:
            raise StorageFailed(f"{path}: the run's folder could not be made: {error.strerror}") from error
        return path
    raise StorageFailed(f"{runs_dir}: no free name for a run that begins at {now}")
