"""A run's settings: each is stated once, here, with its default, its check, and the help text of its flag."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from taut.config import checks
from taut.config.checks import Check
from taut.config.environment import cores
from taut.config.loggers import TRACES, check_loggers
from taut.core.finishes import FINISHES
from taut.errors import Misuse
from taut.specs import did_you_mean

LOG_LEVELS = ("debug", "info", "warning", "error")
FILE_NAME = "taut.toml"
ONE_MACHINE = "processes that `taut run` starts on one machine"  # an island's
PATIENCE_S = 120  # for a supervisor that is gone, or for workers that the run needs, where the user says nothing else


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
        "async",
        "run",
        checks.strategy,
        "When workers wait, and how they merge: async, sync, ssp:3, dpsgd ...",
        agreed=True,
    )
    topology: str = _setting(
        "complete",
        "run",
        checks.topology,
        "Who is wired to whom: complete, ring, torus:3x4, star, file:PATH ...",
        agreed=True,
    )
    codec: str = _setting(
        "tether",
        "run",
        checks.codec,
        "How updates are written down, with options: tether, threshold:tau=0.0078125, dense ...",
        agreed=True,
    )
    finish: str | None = _setting(  # None: as it suits the strategy
        None, "run", checks.finish, f"Which model comes out: {', '.join(FINISHES)}.", agreed=True
    )
    workers: int = _setting(
        1, "run", checks.whole(1, 65_536), "How many workers the run starts with.", agreed=True, short="-n"
    )
    island: int = _setting(
        1, "run", checks.whole(1, 1024), "How many processes hold one model together; --workers counts all processes."
    )
    clients: int | None = _setting(
        None,
        "run",
        checks.whole(1, 10_000_000),
        "How many clients the workers train in turn, under fedavg: for scripts with worker.rounds.",
    )
    seed: int = _setting(0, "run", checks.whole(0, 2**62), "Of the order of the data.", agreed=True)
    scale_lr: str | None = _setting(
        None,
        "run",
        checks.scale_lr,
        "Scale learning rates when workers join or leave: by workers / N (linear), or its root; default N: --workers.",
        agreed=True,
        metavar="linear|sqrt[:N]",
    )
    threads: int | None = _setting(
        None, "run", checks.whole(1, 4096), "Torch threads per worker; default: cores / workers."
    )
    preload: tuple[str, ...] = _setting(
        (), "run", checks.modules, "A module to import once for all workers; may be repeated."
    )
    engine: str = _setting("local", "run", checks.engine, "What starts the workers; default: local.", metavar="NAME")
    devices: str | None = _setting(
        None,
        "run",
        checks.devices,
        "A device for each worker: auto (a GPU each), cpu, or GPUs in turn: 0,1; default: as SCRIPT chooses.",
        metavar="auto|cpu|0,1",
    )
    checkpoint_every: str | None = _setting(
        None, "run", checks.interval, "Write a checkpoint every 5m, 90s, 200steps or 1epoch; default: none."
    )
    keep_checkpoints: int = _setting(3, "run", checks.whole(1, 10_000), "How many checkpoints stay; default: 3.")
    validate_every: str | None = _setting(
        None,
        "run",
        checks.evaluation_interval,
        "Call SCRIPT's validate function every 30s, 200steps or 1epoch, on one worker; default: at the end alone.",
        metavar="INTERVAL",
    )
    stop_early: str | None = _setting(
        None,
        "run",
        checks.early_stop,
        "End the run when so many evaluations in turn were not better than the best (by more than DELTA).",
        metavar="PATIENCE[:DELTA]",
    )
    patience_s: int = _setting(PATIENCE_S, "run", checks.whole(1, 30 * 86_400))
    dashboard: str | None = _setting(
        None,
        "run",
        checks.address,
        "Show the run in a browser, here or (with HOST) elsewhere; without a value: at any free port.",
        metavar="[HOST:]PORT",
        panel="network",
    )
    report_to: str | None = _setting(
        None,
        "run",
        check_loggers,
        "Report to tensorboard, mlflow, wandb or opentelemetry while the run goes; several with commas.",
        metavar="NAMES",
    )
    bind: str = _setting("127.0.0.1", "network", checks.text, "Address to listen on.")
    port: int = _setting(0, "network", checks.whole(0, 65_535), "Port to listen on; 0: any.")
    advertise: str | None = _setting(None, "network", checks.text, "Address that others reach this machine at.")
    transport: str = _setting("zmq", "network", checks.transport, "What carries messages; default: zmq.", metavar="NAME")
    link: str | None = _setting(
        None,
        "network",
        checks.link,
        "Limit each worker's links to the others, without root: 100mbit, or 100mbit,5ms.",
        metavar="RATE[,LATENCY]",
    )
    ray_address: str | None = _setting(
        None,
        "ray",
        checks.text,
        "The Ray cluster: HOST:PORT, auto (this machine's), local (a new one); default: RAY_ADDRESS, else local.",
        metavar="ADDRESS",
    )
    ray_resources: str = _setting(
        "CPU=1",
        "ray",
        checks.resources,
        "What each worker takes of its node: CPU=1, GPU=1,CPU=4 ...",
        metavar="NAME=N,...",
    )
    ray_placement: str = _setting(
        "PACK",
        "ray",
        checks.one_of(("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")),
        "PACK puts workers on few nodes, SPREAD on many.",
    )
    ray_wait_s: int = _setting(
        0,
        "ray",
        checks.whole(0, 30 * 86_400),
        "Seconds to wait for a cluster that grows; default: it must be large enough.",
    )
    hosts: str | None = _setting(
        None,
        "ssh",
        checks.hosts,
        "Machines to train on, reached by ssh, each with its number of workers, or a TOML file about them.",
        metavar="a,b:2|FILE.toml",
    )
    same_file: tuple[str, ...] = _setting(
        (), "ssh", checks.paths, "A file that must be the same on every host; may be repeated.", metavar="PATH"
    )
    ssh_command: str = _setting("ssh", "ssh", checks.text, "The ssh program, with options; default: ssh.", metavar="TEXT")
    ssh_python: str = _setting("python3", "ssh", checks.text, "Python on the hosts; default: python3.", metavar="PATH")
    runs_dir: str = _setting("taut-runs", "output", checks.text, "Folder that holds the runs; default: taut-runs.")
    name: str | None = _setting(None, "output", checks.run_name, "The run's name.")
    log: str = _setting("warning", "output", checks.one_of(LOG_LEVELS), "taut's own log: debug, info, warning, error.")
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def threads_per_worker(self) -> int:
        """Return the torch threads of each worker: as set, or this machine's cores shared out."""
        return self.threads or max(1, cores() // self.processes)

    @property
    def processes(self) -> int:
        """Return how many processes are started: an island's are one worker."""
        return self.workers * self.island

    def grouped(self) -> Settings:
        """Return these settings with ``workers`` as the number of islands, no longer of processes.

        >>> resolve({"workers": 6, "island": 2}, environ={}, cwd="/nowhere").grouped().workers
        3
        """
        if self.workers % self.island:
            given = f"--workers {self.workers} --island {self.island}"
            up = -(-self.workers // self.island) * self.island
            raise Misuse(given, f"a number of processes that {self.island} divides", f"--workers {up}")
        if self.island > 1 and self.validate_every is not None:
            given = f"--validate-every {self.validate_every} with --island"
            raise Misuse(given, "a model that one process holds", "leave it out: the model is validated at the end")
        if self.island > 1 and self.engine != "local":
            other = f"--hosts {self.hosts}" if self.hosts else f"--engine {self.engine}"
            raise Misuse(f"--island {self.island} {other}", ONE_MACHINE, "leave one of the two out")
        if self.island > 1 and self.finish == "ensemble":
            raise Misuse("--finish ensemble with --island", "one model, which is joined from its parts")
        if self.island > 1 and any(each.isdecimal() for each in (self.devices or "").split(",")):
            expected = "processes on the processor: those of an island exchange by gloo, in host memory"
            remedy = "--devices cpu; or leave --island out, for a worker on each GPU"
            raise Misuse(f"--island {self.island} --devices {self.devices}", expected, remedy)
        return replace(self, workers=self.workers // self.island)

    def without_islands(self) -> Settings:
        """Return these settings, for a run whose workers are one process each. Raise ``Misuse`` where islands are set."""
        if self.island > 1:
            remedy = f"`taut run --island {self.island} SCRIPT`, or leave island out"
            raise Misuse(f"island {self.island} ({self.sources.get('island')})", ONE_MACHINE, remedy)
        return self

    def fitted(self) -> Settings:
        """Fill in what suits the strategy where nothing was set. Commands that start a run call it first.

        Raises ``Misuse`` where strategy, topology, codec and the number of workers do not go together.

        >>> resolve({"strategy": "dpsgd"}, environ={}, cwd="/nowhere").fitted().codec
        'dense'
        >>> resolve({"clients": 100}, environ={}, cwd="/nowhere").fitted().strategy
        'fedavg:clients=100'
        """
        from taut.strategies.compatibility import check_limited, check_rate_scaling, combine, with_clients

        if self.clients is not None:
            strategy = with_clients(self.strategy if self._was_set("strategy") else "fedavg", self.clients)
            return replace(self, strategy=strategy, clients=None).fitted()
        named = {key: getattr(self, key) if self._was_set(key) else None for key in ("topology", "codec", "finish")}
        chosen = combine(self.strategy, **named, workers=self.workers)
        if self.link is not None:
            check_limited(self.strategy)
        if self.stop_early is not None and self.validate_every is None:
            given, remedy = f"--stop-early {self.stop_early} without --validate-every", "such as --validate-every 30s"
            raise Misuse(given, "how often to evaluate", remedy)
        scaling = self.scale_lr and check_rate_scaling(self.scale_lr, self.strategy, self.workers)
        return replace(self, topology=chosen.topology, codec=chosen.codec, finish=chosen.finish, scale_lr=scaling)

    def _was_set(self, key: str) -> bool:
        return self.sources.get(key, "default") != "default"

    def shared(self) -> dict[str, object]:
        """Return the settings that every worker of the run must agree on; the supervisor sends them to each."""
        # A script may have wishes of its own; they yield to what was said explicitly.
        explicit = [key for key in AGREED if self._was_set(key)]
        shared = {**{key: getattr(self, key) for key in AGREED}, "explicit": explicit}
        if self.checkpoint_every is not None:
            shared |= {"checkpoint_every": self.checkpoint_every, "keep_checkpoints": self.keep_checkpoints}
        for key in ("link", "validate_every", "stop_early"):
            if getattr(self, key) is not None:
                shared[key] = getattr(self, key)
        if self.island > 1:
            shared["island"] = self.island
        if self._was_set("patience_s"):
            shared["patience_s"] = self.patience_s
        if self.report_to is not None and TRACES in self.report_to.split(","):
            shared["traces"] = True
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
