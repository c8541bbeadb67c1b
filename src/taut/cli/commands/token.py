"""``taut token``: further tokens of a run that is going, and their end."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import asdict
from rich.table import Table

from taut.cli.commands.drain import giver, going
from taut.cli.examples import examples
from taut.cli.options import Given, Json, RunName, run_flag, with_flags
from taut.cli.output.console import notes, print_json, results

if TYPE_CHECKING:
    from taut.supervisor.control import TokenLine
    from taut.supervisor.storage.previous_run import PreviousRun

token = typer.Typer(
    help="Issue, list and revoke the tokens with which workers join a run.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@token.command("new", epilog=examples("token new"))
@with_flags("runs_dir config")
def new(
    run: RunName,
    name: Annotated[str, typer.Option(help="By which it can be revoked; made up where none is given.")] = "",
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it is good for: 90s, 30m, 2h. Default: for ever.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it; default: token-NAME in the run's folder.")
    ] = None,
    *,
    given: Given,
    as_json: Json = False,
) -> None:
    """Make one more token for a run. It is written to a file that only you can read, and shown nowhere."""
    from taut.quantities import parse_duration
    from taut.supervisor.control import IssueToken, order
    from taut.transport.keys import write_token_file

    lasts_s = None if expires is None else parse_duration(expires, f"--expires {expires}")
    found, folder = _going(given, run)
    answer = order(found, IssueToken(name, lasts_s, f"by {giver()}"))
    (line,) = answer.tokens
    path = out if out is not None else folder / f"token-{line.name}"
    write_token_file(path, answer.token)
    if as_json:
        print_json({"run": found.run, "file": str(path), "address": found.address, **_record(line)})
        return
    notes().print(f"token file: {path} ({_expiry(line)}; whoever has it may join)", markup=False, soft_wrap=True)
    join = f"taut worker --join {found.address} --token-file {path} SCRIPT"
    notes().print(f"on another machine: {join}", markup=False, soft_wrap=True)


@token.command("keys", epilog=examples("token keys"))
def keys(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write them; it is made if it is not there.")],
) -> None:
    """Make the keys of a run that does not exist yet: DIR/keys is for `taut supervisor --keys`, DIR/token for workers.

    For places where both get their files before they start, such as a Secret of Kubernetes. Only you can read the files.
    """
    from taut.errors import Misuse
    from taut.supervisor.prepare import TOKEN_FILE, write_keys
    from taut.supervisor.storage.previous_run import KEYS_FILE
    from taut.transport.keys import RunKeys

    for name in (KEYS_FILE, TOKEN_FILE):
        if (folder / name).exists():
            raise Misuse(f"{folder / name}", "a folder without keys", "keys are not overwritten: name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    write_keys(folder, RunKeys.generate())
    text = f"wrote {folder / KEYS_FILE} and {folder / TOKEN_FILE} (whoever has the latter may join)"
    notes().print(text, markup=False, soft_wrap=True)


@token.command("list", epilog=examples("token list"))
@with_flags("runs_dir config")
def list_(run: RunName, given: Given, as_json: Json = False) -> None:
    """Name a run's tokens, and say until when each is good. The tokens themselves are not shown."""
    from taut.supervisor.control import ListTokens, order

    found, _ = _going(given, run)
    answer = order(found, ListTokens())
    if as_json:
        print_json({"run": found.run, "tokens": [_record(line) for line in answer.tokens]})
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for column in ("token", "good", "workers"):
        table.add_column(column, justify="right" if column == "workers" else "left")
    for line in answer.tokens:
        table.add_row(line.name, _expiry(line), str(line.workers))
    results().print(table)


@token.command("revoke", epilog=examples("token revoke"))
@with_flags("runs_dir config")
def revoke(
    run: RunName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="As `taut token list` shows it.")],
    expel: Annotated[bool, run_flag("--expel", help="Also expel the workers that came with it.")] = False,
    *,
    given: Given,
    as_json: Json = False,
) -> None:
    """Nobody can join with this token any more. Workers that came with it stay, unless --expel."""
    from taut.supervisor.control import RevokeToken, order

    found, _ = _going(given, run)
    answer = order(found, RevokeToken(name, expel, f"by {giver()}"))
    if as_json:
        print_json({"run": found.run, "said": answer.said, **_record(answer.tokens[0])})
    else:
        notes().print(f"{found.run}: {answer.said}", markup=False)


def _going(given: Given, run: str) -> tuple[PreviousRun, Path]:
    folder = given.settings().runs_dir
    found = going(folder, run)
    return found, Path(folder) / found.run


def _expiry(line: TokenLine) -> str:
    if line.revoked:
        return "revoked"
    if line.expires_at is None:
        return "for ever"
    return f"{'expired' if line.expired else 'until'} {datetime.fromtimestamp(line.expires_at):%Y-%m-%d %H:%M:%S}"


def _record(line: TokenLine) -> dict[str, object]:
    fields = asdict(line)
    return {"token": fields.pop("name"), **fields}
