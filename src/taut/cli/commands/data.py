"""``taut data``: public data sets, fetched and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from taut.cli.examples import examples
from taut.cli.options import Json, Quiet
from taut.cli.output.console import notes, print_json, results, status
from taut.quantities import size

data = typer.Typer(
    help="Fetch public data sets, for the examples and for scripts of your own.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _names() -> list[str]:
    from taut.data.catalogue import CATALOGUE

    return list(CATALOGUE)


@data.command("get", epilog=examples("data get"))
def get(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="As `taut data list` shows it.", autocompletion=_names)],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Where to put it.", show_default="data/NAME")
    ] = None,
    mirror: Annotated[
        str, typer.Option("--from", metavar="URL", help="A server that has the files, instead of the usual ones.")
    ] = "",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fetch a data set. Files whose checksum is right already are not fetched again.

    A file that is cut off or has another checksum is not kept. Without internet the command says what to copy where.
    """
    from taut.data.catalogue import find
    from taut.data.download import get as fetch

    wanted = find(name)
    folder = Path("data") / name if to is None else to
    with status(f"fetching {name}", quiet or as_json) as progress:
        fetched = fetch(wanted, folder, mirror, progress)
    files = [file.name for file in wanted.files]
    if as_json:
        print_json({"name": name, "folder": folder, "files": files, "nbytes": wanted.nbytes, "fetched_nbytes": fetched})
    elif not quiet:
        how = f"{size(fetched)} fetched" if fetched else "all there already"
        count = "1 file" if len(files) == 1 else f"{len(files)} files"
        text = f"{folder}: {count}, {size(wanted.nbytes)}, checksums right; {how}"
        notes().print(text, markup=False, soft_wrap=True)


@data.command("list", epilog=examples("data list"))
def list_(*, as_json: Json = False) -> None:
    """List the data sets that can be fetched."""
    from taut.data.catalogue import CATALOGUE

    if as_json:
        records = [{"name": each.name, "what": each.what, "nbytes": each.nbytes} for each in CATALOGUE.values()]
        print_json({"data_sets": records})
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for column in ("name", "size", "what"):
        table.add_column(column, justify="right" if column == "size" else "left")
    for each in CATALOGUE.values():
        table.add_row(each.name, size(each.nbytes), each.what)
    results().print(table)
