"""The beginning of the ``taut`` command. The rest is imported inside, so that Ctrl-C is quiet from the first moment."""

from __future__ import annotations

from typing import NoReturn

from taut.early_sigint import EarlyInterrupt


def main() -> NoReturn:
    """Run the command line and exit."""
    with EarlyInterrupt():
        from taut.cli.main import main as command
    command()
