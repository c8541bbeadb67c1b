"""The beginning of a job's executable, in the Python that it brought along: ``taut run`` or another command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from taut.early_sigint import EarlyInterrupt

WITH_JOB = ("run", "worker")


def main() -> NoReturn:
    """Run the command of ``JOB PROGRAM WORDS...``."""
    job, *sys.argv = sys.argv[1:]
    with EarlyInterrupt():
        from taut.cli.main import main as command
    command(command_line(sys.argv[1:], job))


def command_line(words: Sequence[str], job: str) -> list[str]:
    """Return the words for ``taut``: options go before the job, the script's arguments, after ``--``, behind it.

    >>> command_line(["--workers", "4", "--", "--epochs", "2"], "job.taut")
    ['run', '--workers', '4', 'job.taut', '--epochs', '2']
    >>> command_line(["worker", "--join", "10.0.0.7:40123"], "job.taut")
    ['worker', '--join', '10.0.0.7:40123', 'job.taut']
    >>> command_line([], "job.taut"), command_line(["show", "--json"], "job.taut")
    (['run', 'job.taut'], ['show', '--json'])
    """
    first, rest = ("run", list(words)) if not words or words[0].startswith("-") else (words[0], list(words[1:]))
    if first not in WITH_JOB:
        return [first, *rest]
    at = rest.index("--") if "--" in rest else len(rest)
    return [first, *rest[:at], job, *rest[at + 1 :]]


if __name__ == "__main__":
    main()
