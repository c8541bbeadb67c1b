"""Flags: those of settings, made from ``config.Settings``, and those that several commands share, each declared once; and
their completion when Tab is pressed: names of strategies, codecs, topologies and runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial, wraps
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from taut.config import FIELDS, Settings, resolve
from taut.errors import TautError
from taut.supervisor.storage.store_writer import FILE


def starting(incomplete: str, names: Iterable[str]) -> list[str]:
    """Return the names that begin as the incomplete word does; of a list with commas, complete its last member.

    >>> starting("s", ["sync", "ssp", "async"]), starting("async,s", ["sync", "async"])
    (['ssp', 'sync'], ['async,sync'])
    """
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in sorted(names) if name.startswith(last)]


def _registered(module: str, names: str = "REGISTRY") -> Callable[[str], list[str]]:
    """Return a function that offers the names in ``module``; the module is imported when Tab is pressed."""
    return lambda incomplete: starting(incomplete, getattr(import_module(module), names))


complete_strategy = _registered("taut.strategies.registry")
complete_codec = _registered("taut.codecs.registry")
complete_topology = _registered("taut.topologies.registry")
complete_finish = _registered("taut.core.finishes", "FINISHES")


def complete_run(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the runs in the folder of runs, and ``latest``."""
    given = context.params
    try:
        folder = Path(resolve({"runs_dir": given.get("runs_dir")}, config_file=given.get("config")).runs_dir)
    except TautError:  # of a settings file: the command itself will say it
        return []
    return starting(incomplete, ["latest", *(path.parent.name for path in folder.glob(f"*/{FILE}"))])


RUN, NETWORK, OUTPUT = "What is run", "Network", "Output"
PANELS = {
    "run": RUN,
    "network": NETWORK,
    "output": OUTPUT,
    "ssh": "Other machines, by ssh",
    "ray": "Ray (with --engine ray)",
}
COMPLETIONS = {
    "strategy": complete_strategy,
    "topology": complete_topology,
    "codec": complete_codec,
    "finish": complete_finish,
}
run_flag = partial(typer.Option, rich_help_panel=RUN)
network_flag = partial(typer.Option, rich_help_panel=NETWORK)
output_flag = partial(typer.Option, rich_help_panel=OUTPUT)
PASS_ON = {"allow_interspersed_args": False}  # everything after SCRIPT belongs to the script

Start = Annotated[str | None, run_flag(help="zygote (fork from one warm process) or spawn (fresh processes).")]
Config = Annotated[Path | None, output_flag(help="Settings file; default: taut.toml, where it exists.")]
Json = Annotated[bool, output_flag("--json", help="Print one JSON object, and nothing else.")]
Quiet = Annotated[bool, output_flag("--quiet", "-q", help="No progress and no summary.")]
Verbose = Annotated[bool, output_flag("--verbose", "-v", help="Show all workers' output, as --logs all does.")]
Logs = Annotated[
    str | None,
    output_flag(
        metavar="all|none|RANK",
        help="Whose output to show while it trains; default: worker 0's. All of it is in the run's folder.",
    ),
]
RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="Its name, the end of its name, or: latest.", autocompletion=complete_run)
]
Script = Annotated[
    Path, typer.Argument(metavar="SCRIPT", help="The training script, or a job of taut pack.", show_default=False)
]
Module = Annotated[bool, run_flag("-m", help="SCRIPT is a module, as for python -m.", show_default=False)]
ScriptArgs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ARGS]...", help="Whatever follows SCRIPT is the script's.", show_default=False),
]


RequireSignature = Annotated[
    Path | None,
    run_flag(
        "--require-signature",
        metavar="FILE",
        help="Run only a job that a key of FILE signed; see taut pack.",
    ),
]


@dataclass(frozen=True)
class Given:
    """The settings that the user gave a command as flags (None: not given), and the settings file."""

    flags: Mapping[str, Any]
    config: Path | None = None

    def settings(self, **defaults: object) -> Settings:
        """Resolve the settings; ``defaults`` are this command's own."""
        return resolve(self.flags, config_file=self.config, defaults=defaults)


def with_flags(names: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a flag for each member of the groups among its parameters.

    The group ``Given`` has the settings ``names``, with ``config`` for the settings file; the command's own parameters
    may be named between them, where the help is to show them there. Any other dataclass has its fields.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        settings = [name for name in names.split() if name not in own]
        groups: dict[str, tuple[Callable[..., object], list[str]]] = {}
        shown: dict[str, Parameter] = {}

        def add(name: str) -> None:
            kind: Any = own[name].annotation if name in own else None
            if kind is Given:
                groups[name] = _given, settings
                for each in names.split():
                    add(each)
            elif isinstance(kind, type) and is_dataclass(kind):
                found = _field_flags(kind)
                groups[name] = kind, list(found)
                shown.update(found)
            elif name not in shown:
                shown[name] = own[name].replace(kind=Parameter.KEYWORD_ONLY) if name in own else _setting_flag(name)

        for name in own:
            add(name)

        @wraps(command)
        def called(**values: object) -> None:
            made = {
                name: make(**{each: values.pop(each) for each in members}) for name, (make, members) in groups.items()
            }
            command(**values, **made)

        called.__signature__ = inspect.Signature(list(shown.values()))  # type: ignore[attr-defined]
        called.__annotations__ = {name: flag.annotation for name, flag in shown.items()}
        return called

    return decorate


def _given(config: Path | None = None, **flags: object) -> Given:
    return Given(flags, config)


def _setting_flag(name: str) -> Parameter:
    """Return the parameter for a setting, with the type, the help text and the panel that ``Settings`` states."""
    if name == "config":
        return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Config)
    setting, option = FIELDS[name], FIELDS[name].metadata["option"]
    text = str(setting.type).removesuffix(" | None")
    kind: Any = {"int": int, "str": str, "tuple[str, ...]": list[str]}[text]
    info = typer.Option(
        *([f"--{name}", option["short"]] if "short" in option else []),
        help=setting.metadata["help"],
        metavar=option.get("metavar"),
        autocompletion=COMPLETIONS.get(name),
        rich_help_panel=PANELS[option.get("panel", setting.metadata["table"])],
    )
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, info])


def _field_flags(record: Any) -> dict[str, Parameter]:
    types = get_type_hints(record, include_extras=True)
    return {
        each.name: Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=types[each.name])
        for each in fields(record)
    }
