"""The loggers of ``--report-to``: their names, modules, and the packages that they need."""

from __future__ import annotations

from importlib.util import find_spec

from taut.errors import Misuse
from taut.specs import did_you_mean

TRACES = "opentelemetry"  # it gets spans of every worker
LOGGERS = {  # name: the package that it needs
    "tensorboard": "tensorboard",
    "mlflow": "mlflow",
    "wandb": "wandb",
    TRACES: "opentelemetry.exporter",
}


def check_loggers(given: object, blame: str) -> str:
    """Return a list of loggers in its written form; raise ``Misuse`` for an unknown one, or without its package.

    >>> check_loggers("wand", "report")
    Traceback (most recent call last):
    taut.errors.Misuse: report = 'wand': expected some of tensorboard, mlflow, wandb, opentelemetry; did you mean 'wandb'?
    """
    words = given if isinstance(given, list) else str(given).split(",")
    names = list(dict.fromkeys(str(word).strip() for word in words))
    for name in names:
        if name not in LOGGERS:
            raise Misuse(f"{blame} = {name!r}", f"some of {', '.join(LOGGERS)}", did_you_mean(name, LOGGERS))
        if not _has(LOGGERS[name]):
            raise Misuse(f"{blame} = {name!r} without {LOGGERS[name]}", LOGGERS[name], f"pip install 'taut[{name}]'")
    return ",".join(names)


def _has(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # not even what it is a part of
        return False
