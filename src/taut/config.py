"""Flags, environment and ``taut.toml`` become one frozen ``Settings``.

Only this file and engines/ read os.environ. A value comes from the first of these that names it: a flag,
an environment variable (``TAUT_`` and the setting's name in capitals), ``taut.toml`` (in the current folder,
or the file given with ``--config``), the default. ``taut.toml`` has three tables::

    [run]                            # what is trained, and how
    strategy = "async"               # sync, ssp, async, gossip, averaging, ...: `taut strategies` lists them
    topology = "complete"
    codec = { name = "tether", density = 0.001 }     # or as on the command line: "tether:density=0.001"
    finish = "average"               # average, best, any, ensemble: docs/finish.md
    workers = 4
    seed = 0
    threads = 1                      # torch threads of each worker
    preload = ["torchvision"]        # imported once, before the workers are forked
    engine = "local"                 # what starts the workers: docs/design.md
    checkpoint_every = "5m"          # or "200steps", "1epoch": docs/checkpoints.md
    keep_checkpoints = 3
    dashboard = 8080                 # [HOST:]PORT, or true for any free port: docs/dashboard.md
    patience_s = 120                 # for a supervisor that is gone, or workers that the run needs: docs/faults.md

    [network]
    bind = "127.0.0.1"               # the address to listen on
    port = 0                         # 0: any free one
    advertise = "10.0.0.7"           # the address others are told, where it differs
    transport = "zmq"                # what carries messages: docs/communication.md
    link = "100mbit,5ms"             # what each worker's links to the others are limited to: docs/communication.md

    [output]
    runs_dir = "taut-runs"
    name = "first-try"               # of the run; made up where it is not given
    log = "warning"                  # debug, info, warning, error
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from taut.errors import Misuse
from taut.quantities import LINK_EXAMPLE, parse_link
from taut.specs import did_you_mean, parse_address, parse_interval

LOG_LEVELS = ("debug", "info", "warning", "error")
FILE_NAME = "taut.toml"
PATIENCE_S = 120  # for a supervisor that is gone, or for workers that the run needs, where the user says nothing else

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


# Checks: each takes what the user wrote (a string from a flag or the environment, any TOML value from the
# file) and the name to blame, and returns the value or raises Misuse.
Check = Callable[[object, str], Any]


def _one_of(known: tuple[str, ...]) -> Check:
    def check(given: object, blame: str) -> str:
        if given not in known:
            raise Misuse(f"{blame} = {given!r}", "one of " + ", ".join(known), did_you_mean(str(given), known))
        return str(given)

    return check


def _whole(lowest: int, highest: int) -> Check:
    def check(given: object, blame: str) -> int:
        try:
            number = int(given) if isinstance(given, str) else given
        except ValueError:
            number = None
        if not isinstance(number, int) or isinstance(number, bool) or not lowest <= number <= highest:
            raise Misuse(f"{blame} = {given!r}", f"a whole number from {lowest} to {highest}")
        return number

    return check


def _text(given: object, blame: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise Misuse(f"{blame} = {given!r}", "a text that is not empty")
    return given.strip()


def _run_name(given: object, blame: str) -> str:
    if not isinstance(given, str) or not _RUN_NAME.fullmatch(given) or given == "latest":
        raise Misuse(
            f"{blame} = {given!r}",
            "letters, digits, dots, dashes and underscores, a letter or digit first, at most 100",
            "'latest' always means the newest run" if given == "latest" else "",
        )
    return given


def _modules(given: object, blame: str) -> tuple[str, ...]:
    words = given.split(",") if isinstance(given, str) else given
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise Misuse(f"{blame} = {given!r}", "a list of module names")
    return tuple(word.strip() for word in words if word.strip())


def _codec(given: object, blame: str) -> str:
    """Return a codec in its written form, ``name`` or ``name:key=value,...``, whether it came so or as a table."""
    from taut.codecs import parse, spec

    try:
        return spec(parse(given))  # type: ignore[arg-type]
    except Misuse as error:
        raise Misuse(f"{blame} = {given!r}: {error.given}", error.expected, error.remedy) from None


def _strategy(given: object, blame: str) -> str:
    """Return a strategy in its written form, ``name`` or ``name:value,key=value`` (or several: ``sync for 200 steps, then
    async``), whether it came so or as a table."""
    from taut.strategies.phases import parse_schedule

    try:
        return str(parse_schedule(given))  # type: ignore[arg-type]
    except Misuse as error:
        raise Misuse(f"{blame} = {given!r}: {error.given}", error.expected, error.remedy) from None


def _topology(given: object, blame: str) -> str:
    """Return a topology in its written form. The file of ``file:PATH`` is read here, so that workers elsewhere need no
    file."""
    from taut.topologies.registry import parse
    from taut.topologies.shapes.edge_list import resolve as read_file

    try:
        written = read_file(_text(given, blame), _graph_text)
        parse(written)
    except Misuse as error:
        raise Misuse(f"{blame} = {given!r}: {error.given}", error.expected, error.remedy) from None
    return written


def _graph_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Misuse(f"file:{path} ({reason})", "a file with a list of edges, or node-link JSON") from None


def _finish(given: object, blame: str) -> str:
    from taut.strategies.compatibility import FINISHES

    return str(_one_of(FINISHES)(given, blame))


def _interval(given: object, blame: str) -> str:
    parse_interval(given, blame)
    return str(given).strip()


def _place(given: object, blame: str) -> str:
    host, port = parse_address(given, blame)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _link(given: object, blame: str) -> str:
    if not isinstance(given, str):
        raise Misuse(f"{blame} = {given!r}", "a rate with its unit", LINK_EXAMPLE)
    parse_link(given, f"{blame} = {given!r}")
    return given.strip()


def _engine(given: object, blame: str) -> str:
    from taut.plugins import ENGINES

    name = _text(given, blame)
    ENGINES.find(name)
    return name


def _transport(given: object, blame: str) -> str:
    from taut.plugins import TRANSPORTS

    name = _text(given, blame)
    if not TRANSPORTS.find(name).between_processes:
        raise Misuse(f"{blame} = {name!r}", "a transport between processes", "zmq is the default")
    return name


def _setting(default: Any, table: str, check: Check, help: str = "", *, agreed: bool = False, **option: str) -> Any:
    """Return a field of ``Settings``. ``help`` and ``option`` (``short``, ``metavar``, ``panel``) are those of its flag;
    ``agreed``: every worker of the run has the same value."""
    found = {"table": table, "check": check, "help": help, "agreed": agreed, "option": option}
    return field(default=default, metadata=found)


@dataclass(frozen=True)
class Settings:
    """A run's settings, resolved and checked. ``sources`` says where each came from.

    >>> settings = resolve({"workers": 4}, environ={"TAUT_SEED": "7"}, config_file=None, cwd="/nowhere")
    >>> settings.workers, settings.seed, settings.sources["seed"], settings.sources["codec"]
    (4, 7, 'TAUT_SEED', 'default')
    """

    strategy: str = _setting(
        "async", "run", _strategy, "When workers wait, and how they merge: async, sync, ssp:3, dpsgd ...", agreed=True
    )
    topology: str = _setting(
        "complete", "run", _topology, "Who is wired to whom: complete, ring, torus:3x4, star, file:PATH ...", agreed=True
    )
    codec: str = _setting(
        "tether",
        "run",
        _codec,
        "How updates are written down, with options: tether, threshold:tau=0.0078125, dense ...",
        agreed=True,
    )
    finish: str | None = _setting(  # None: as it suits the strategy
        None, "run", _finish, "Which model comes out: average, best (on validation), any, ensemble.", agreed=True
    )
    workers: int = _setting(1, "run", _whole(1, 65_536), "How many workers the run starts with.", agreed=True, short="-n")
    seed: int = _setting(0, "run", _whole(0, 2**62), "Of the order of the data.", agreed=True)
    threads: int | None = _setting(None, "run", _whole(1, 4096), "Torch threads per worker; default: cores / workers.")
    preload: tuple[str, ...] = _setting((), "run", _modules, "A module to import once for all workers; may be repeated.")
    engine: str = _setting("local", "run", _engine, "What starts the workers; default: local.", metavar="NAME")
    checkpoint_every: str | None = _setting(
        None, "run", _interval, "Write a checkpoint every 5m, 90s, 200steps or 1epoch; default: none."
    )
    keep_checkpoints: int = _setting(3, "run", _whole(1, 10_000), "How many checkpoints stay; default: 3.")
    patience_s: int = _setting(PATIENCE_S, "run", _whole(1, 30 * 86_400))
    dashboard: str | None = _setting(
        None,
        "run",
        _place,
        "Show the run in a browser, here or (with HOST) elsewhere; without a value: at any free port.",
        metavar="[HOST:]PORT",
        panel="network",
    )
    bind: str = _setting("127.0.0.1", "network", _text, "Address to listen on.")
    port: int = _setting(0, "network", _whole(0, 65_535), "Port to listen on; 0: any.")
    advertise: str | None = _setting(None, "network", _text, "Address that others reach this machine at.")
    transport: str = _setting("zmq", "network", _transport, "What carries messages; default: zmq.", metavar="NAME")
    link: str | None = _setting(
        None,
        "network",
        _link,
        "Limit each worker's links to the others, without root: 100mbit, or 100mbit,5ms.",
        metavar="RATE[,LATENCY]",
    )
    runs_dir: str = _setting("taut-runs", "output", _text, "Folder that holds the runs; default: taut-runs.")
    name: str | None = _setting(None, "output", _run_name, "The run's name.")
    log: str = _setting("warning", "output", _one_of(LOG_LEVELS), "taut's own log: debug, info, warning, error.")
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def threads_per_worker(self) -> int:
        """Return the torch threads of each worker: as set, or this machine's cores shared out."""
        return self.threads or max(1, cores() // self.workers)

    def fitted(self) -> Settings:
        """Fill in what suits the strategy where nothing was set. Commands that start a run call it first.

        Raises ``Misuse`` where strategy, topology, codec and the number of workers do not go together.

        >>> resolve({"strategy": "dpsgd"}, environ={}, cwd="/nowhere").fitted().codec
        'dense'
        """
        from taut.strategies.compatibility import check_limited, combine

        named = {key: getattr(self, key) if self._was_set(key) else None for key in ("topology", "codec", "finish")}
        chosen = combine(self.strategy, **named, workers=self.workers)
        if self.link is not None:
            check_limited(self.strategy)
        return replace(self, topology=chosen.topology, codec=chosen.codec, finish=chosen.finish)

    def _was_set(self, key: str) -> bool:
        return self.sources.get(key, "default") != "default"

    def shared(self) -> dict[str, object]:
        """Return the settings that every worker of the run must agree on; the supervisor sends them to each."""
        # A script may have wishes of its own; they yield to what was said explicitly.
        explicit = [key for key in AGREED if self._was_set(key)]
        shared = {**{key: getattr(self, key) for key in AGREED}, "explicit": explicit}
        if self.checkpoint_every is not None:
            shared |= {"checkpoint_every": self.checkpoint_every, "keep_checkpoints": self.keep_checkpoints}
        if self.link is not None:
            shared["link"] = self.link
        if self._was_set("patience_s"):
            shared["patience_s"] = self.patience_s
        return shared

    def describe(self) -> str:
        """Return one line: the settings that decide the result, and those that are no defaults, with their source."""
        words = []
        for name in FIELDS:
            value, source = getattr(self, name), self.sources.get(name, "default")
            if value is not None and (name in AGREED or source != "default"):
                text = ",".join(value) if isinstance(value, tuple) else value
                words.append(f"{name}={text}" + ("" if source == "default" else f" ({source})"))
        return "  ".join(words)


FIELDS = {setting.name: setting for setting in fields(Settings) if setting.name != "sources"}
AGREED = tuple(name for name, setting in FIELDS.items() if setting.metadata["agreed"])


def resolve(
    flags: Mapping[str, object],
    *,
    config_file: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: str | Path = ".",
    defaults: Mapping[str, object] | None = None,
) -> Settings:
    """Make settings from flags (None: not given), the environment, ``taut.toml`` and the defaults; the first wins.

    ``defaults`` replaces some defaults, for a command that needs others.
    """
    environ = os.environ if environ is None else environ
    found: dict[str, tuple[object, str, str]] = {}  # setting -> value, the name to blame, source
    for key, value in (defaults or {}).items():
        found[key] = (value, key, "default")
    for variable in ("MKL_NUM_THREADS", "OMP_NUM_THREADS"):  # as torch does: the second goes before the first
        first = environ.get(variable, "").partition(",")[0].strip()  # "4,2": 4, and 2 within each
        if first.isdecimal() and int(first):
            found["threads"] = (first, variable, variable)
    found.update(_from_file(config_file, Path(cwd)))
    for key in FIELDS:
        variable = f"TAUT_{key.upper()}"
        if environ.get(variable):
            found[key] = (environ[variable], variable, variable)
    for key, value in flags.items():
        if value is not None and value not in ([], ()):
            found[key] = (value, "--" + key.replace("_", "-"), "flag")
    values = {key: FIELDS[key].metadata["check"](value, blame) for key, (value, blame, _) in found.items()}
    sources = dict.fromkeys(FIELDS, "default") | {key: source for key, (_, _, source) in found.items()}
    return Settings(**values, sources=MappingProxyType(sources))


def _from_file(config_file: str | Path | None, cwd: Path) -> dict[str, tuple[object, str, str]]:
    path = Path(config_file) if config_file is not None else cwd / FILE_NAME
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        if config_file is None:
            return {}
        raise Misuse(f"--config {path}", "a file that exists") from None
    except OSError as error:
        raise Misuse(f"{path}", "a file that can be read", str(error.strerror)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misuse(f"{path}", "a TOML file", str(error)) from None
    known = sorted({setting.metadata["table"] for setting in FIELDS.values()})
    found: dict[str, tuple[object, str, str]] = {}
    for table, entries in tables.items():
        if table not in known or not isinstance(entries, dict):
            homes = {key: f"[{setting.metadata['table']}]" for key, setting in FIELDS.items()}
            remedy = f"{table} belongs into {homes[table]}" if table in homes else did_you_mean(table, known)
            raise Misuse(f"{path}: {table}", "one of the tables " + "[" + "], [".join(known) + "]", remedy)
        here = [key for key, setting in FIELDS.items() if setting.metadata["table"] == table]
        for key, value in entries.items():
            if key not in here:
                raise Misuse(f"{path}: [{table}] {key}", "one of " + ", ".join(here), did_you_mean(key, here))
            found[key] = (value, f"{path}: [{table}] {key}", path.name)
    return found


def other_launcher(environ: Mapping[str, str] | None = None) -> Misuse | None:
    """Return the error for a process that another launcher started as one of several; None where none did.

    >>> str(other_launcher({"WORLD_SIZE": "4", "RANK": "1"}))[:40]
    'a script started by torchrun as one of 4'
    >>> other_launcher({"WORLD_SIZE": "1", "RANK": "0"}), other_launcher({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"})
    (None, None)
    """
    environ = os.environ if environ is None else environ

    def size(name: str) -> int:
        return int(environ[name]) if environ.get(name, "").isdecimal() else 0

    # The script of a batch job has the number of tasks and is process 0, though srun did not start it.
    task = environ.get("SLURM_STEP_ID") or environ.get("SLURM_PROCID", "0") != "0"
    sizes = {
        "torchrun": size("WORLD_SIZE") if environ.get("RANK") or environ.get("TORCHELASTIC_RUN_ID") else 0,
        "srun": (size("SLURM_STEP_NUM_TASKS") or size("SLURM_NTASKS")) if task else 0,
        "mpirun": max(size("OMPI_COMM_WORLD_SIZE"), size("PMI_SIZE")),
    }
    found = next(((name, count) for name, count in sizes.items() if count > 1), None)
    if found is None:
        return None
    return Misuse(
        f"a script started by {found[0]} as one of {found[1]} processes",
        "taut's own launcher",
        f"type `taut run -n {found[1]} SCRIPT` on one machine; on several, `taut supervisor` on one of them and the "
        "`taut worker` command that it shows on all",
    )


def costs_file(environ: Mapping[str, str] | None = None) -> Path:
    """Return where ``taut codecs --measure`` keeps its result: ``$TAUT_COSTS``, or ``costs.json`` in the user's cache.

    >>> str(costs_file({"XDG_CACHE_HOME": "/cache"})), str(costs_file({"TAUT_COSTS": "mine.json"}))
    ('/cache/taut/costs.json', 'mine.json')
    """
    environ = os.environ if environ is None else environ
    if environ.get("TAUT_COSTS"):
        return Path(environ["TAUT_COSTS"])
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cache")
    return Path(cache) / "taut" / "costs.json"


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class WorkerEnvironment:
    """What a launcher tells the worker process it starts. The token comes as text or as its file's path."""

    supervisor: str
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    bind: str = "127.0.0.1"
    advertise: str | None = None
    announces: bool = False  # it was started by hand, and tells on standard error how it gets on

    def variables(self) -> dict[str, str]:
        """Return the environment variables from which ``worker_environment`` reads the same record."""
        named = {
            "TAUT_SUPERVISOR": self.supervisor,
            "TAUT_TOKEN": self.token,
            "TAUT_TOKEN_FILE": self.token_file,
            "TAUT_BIND": self.bind,
            "TAUT_ADVERTISE": self.advertise,
            "TAUT_ANNOUNCES": "1" if self.announces else None,
        }
        return {name: value for name, value in named.items() if value is not None}


def joining(address: str, token_file: str | None, environ: Mapping[str, str] | None = None) -> WorkerEnvironment:
    """Return the environment of a worker that joins ``address`` by hand; a named token file wins."""
    environ = os.environ if environ is None else environ
    known = {name: environ[name] for name in ("TAUT_TOKEN", "TAUT_TOKEN_FILE") if environ.get(name)}
    if token_file is not None:
        known = {"TAUT_TOKEN_FILE": token_file}
    if not known:
        raise Misuse(
            "no token",
            "the run's token",
            "give --token-file with a copy of the file that `taut supervisor` names, or set TAUT_TOKEN",
        )
    return WorkerEnvironment(
        supervisor=address,
        token=known.get("TAUT_TOKEN"),
        token_file=known.get("TAUT_TOKEN_FILE"),
        bind=environ.get("TAUT_BIND") or "",
        advertise=environ.get("TAUT_ADVERTISE") or None,
    )


def worker_environment(environ: Mapping[str, str] | None = None) -> WorkerEnvironment | None:
    """Return the launcher's settings; None without a launcher: the process is then a run of one worker."""
    environ = os.environ if environ is None else environ
    supervisor = environ.get("TAUT_SUPERVISOR")
    if not supervisor:
        return None
    token, token_file = environ.get("TAUT_TOKEN") or None, environ.get("TAUT_TOKEN_FILE") or None
    if token is None and token_file is None:
        raise Misuse(
            f"TAUT_SUPERVISOR = {supervisor!r} without a token",
            "the run's token beside the address",
            "set TAUT_TOKEN_FILE to the file that `taut supervisor` named, or TAUT_TOKEN to its text",
        )
    return WorkerEnvironment(
        supervisor=supervisor,
        token=token,
        token_file=token_file,
        bind=environ.get("TAUT_BIND") or "127.0.0.1",
        advertise=environ.get("TAUT_ADVERTISE") or None,
        announces=environ.get("TAUT_ANNOUNCES") == "1",
    )
