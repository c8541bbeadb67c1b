"""``taut codecs``: what can be put after ``--codec``, what each says of itself, and what it costs here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from taut.cli.launch import check_script
from taut.cli.options import Json, complete_codec, output_flag
from taut.cli.output.console import print_json, results, status
from taut.errors import Misuse

if TYPE_CHECKING:
    from taut.cli.codec_measurement import Progress
    from taut.cli.output.codec_tables import Listed

measuring_flag = partial(typer.Option, rich_help_panel="What is measured")
LEAST, MOST = 64, 1 << 28  # elements
CHECKPOINT = ".safetensors"


class CodecsCommand(TyperCommand):
    """The parser of ``taut codecs``: words after a script belong to the script; after a codec, flags may follow.
    ``--script`` may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--script" in args[: _script_at(args)]:
            args.remove("--script")
        at = _script_at(args)
        if at < len(args):
            args = [*args[:at], "--", *args[at:]]
        return super().parse_args(ctx, args)


def _script_at(args: Sequence[str]) -> int:
    """Return the index of the script among the arguments; their number where there is none."""
    return next((at for at, word in enumerate(args) if _is_script(word)), len(args))


def _is_script(word: str) -> bool:
    return word.endswith(".py") and not word.startswith("-")


def codecs(
    *,
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CODEC | SCRIPT [ARGS]]",
            help="Codecs as they are written (topk:density=0.001), or a training script to measure on.",
            autocompletion=complete_codec,
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        str | None, measuring_flag(help="These alone, as in --only topk,int8.", autocompletion=complete_codec)
    ] = None,
    checkpoint: Annotated[
        list[Path] | None,
        measuring_flag(
            help="Measure on the update in this safetensors file: its gradients or moments, else its weights. "
            "Given twice: on the difference."
        ),
    ] = None,
    size: Annotated[
        str | None, measuring_flag(help="Elements of the made-up update, or at most of your own: 25M, 100k.")
    ] = None,
    steps: Annotated[int, measuring_flag(help="Of SCRIPT.")] = 30,
    measure: Annotated[
        bool, measuring_flag("--measure", help="Keep what codecs cost here for `taut simulate` and `taut advise`.")
    ] = False,
    no_measure: Annotated[bool, measuring_flag("--no-measure", help="Only what codecs say of themselves.")] = False,
    as_json: Json = False,
    quiet: Annotated[bool, output_flag("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """List the codecs, with bits, error and speed as measured on this machine; or tell all about one.

    With SCRIPT, or with --checkpoint, they are measured on your own updates: SCRIPT is run as one worker for
    some steps, and stopped.
    """
    words = list(what or ())
    script = Path(words[0]) if words and _is_script(words[0]) else None
    files = list(checkpoint or ()) + [Path(word) for word in words if script is None and word.endswith(CHECKPOINT)]
    given = [] if script else [word for word in words if not word.endswith(CHECKPOINT)]
    specs = chosen(given, only)
    elements = None if size is None else parse_size(size)
    _check(script, files, measure, no_measure, steps)
    from taut.cli.output.codec_tables import listed

    on, rows, kept = "", listed(specs, (), None), None
    with status("measuring ", quiet or as_json) as progress:
        if measure:
            from taut.cli.codec_measurement import keep

            on, rows, kept = keep(specs, elements, progress)
        elif not no_measure:
            on, rows = _measure(specs, script, words[1:], files, elements, steps=steps, progress=progress)
    if as_json:
        print_json(_record(on, rows) | ({"file": kept} if kept else {}))
        return
    _show(rows, on, alone=len(given) == 1 and only is None and not measure)
    if kept is not None:
        results().print(f"written to {kept}: `taut simulate` and `taut advise` read it", soft_wrap=True, markup=False)


def chosen(given: Sequence[str], only: str | None) -> list[str]:
    """Return the codecs that were named, each checked; all codecs where none was named."""
    from taut.codecs import REGISTRY, parse
    from taut.comparison.runs.listing import split_all

    named = [*given, *(split_all([only], REGISTRY) if only else ())]
    if only is not None and not named:
        raise Misuse(f"--only {only!r}", "codecs, as in --only topk,int8")
    for word in named:
        parse(word)
    return list(dict.fromkeys(named)) or list(REGISTRY)


def parse_size(text: str) -> int:
    """Read a number of elements.

    >>> parse_size("25M"), parse_size("1.5k"), parse_size("65536")
    (25000000, 1500, 65536)
    """
    factors = {"k": 1e3, "m": 1e6, "g": 1e9}
    word = text.strip().lower()
    factor = factors.get(word[-1:], 1.0)
    try:
        value = float(word[:-1] if factor != 1.0 else word) * factor
    except ValueError:
        value = 0.0
    if not LEAST <= value <= MOST:
        raise Misuse(f"--size {text}", f"from {LEAST} elements to {MOST >> 20}M", "as in --size 25M")
    return round(value)


def _check(script: Path | None, files: Sequence[Path], measure: bool, no_measure: bool, steps: int) -> None:
    if script is not None:
        check_script(script)
    own = str(script) if script is not None else f"--checkpoint {files[0]}" if files else ""
    if script is not None and files:
        raise Misuse(f"{script} and {files[0]}", "a script or checkpoints", "drop one of them")
    if measure and no_measure:
        raise Misuse("--measure and --no-measure", "one of them")
    if measure and own:
        raise Misuse(
            f"--measure with {own}", "made-up updates", "`taut probe SCRIPT` finds what `taut advise` needs of a script"
        )
    if no_measure and own:
        raise Misuse(f"--no-measure with {own}", "one of them")
    if steps < 2:
        raise Misuse(f"--steps {steps}", "at least 2, of which the later half counts")


def _measure(
    specs: Sequence[str],
    script: Path | None,
    args: Sequence[str],
    files: Sequence[Path],
    elements: int | None,
    *,
    steps: int,
    progress: Progress,
) -> tuple[str, list[Listed]]:
    from taut.cli.codec_measurement import MADE_UP, MOST_OWN, on_checkpoints, on_made_up, on_script, with_dense
    from taut.cli.output.codec_tables import listed

    wanted = with_dense(specs)
    if script is not None:
        on, found = on_script(wanted, script, args, steps, elements or MOST_OWN, progress)
    elif files:
        on, found = on_checkpoints(wanted, files, elements or MOST_OWN, progress)
    else:
        on, found = on_made_up(wanted, elements or MADE_UP, progress)
    return on, listed(specs, found[: len(specs)], found[wanted.index("dense")])


def _record(on: str, rows: Sequence[Listed]) -> dict[str, Any]:
    from taut.cli.output.codec_tables import record
    from taut.simulator.models.cost_file import origin

    return {"measured_on": on or None, "machine": origin() if on else None, "codecs": [record(row) for row in rows]}


def _show(rows: Sequence[Listed], on: str, *, alone: bool) -> None:
    from taut.cli.output.codec_tables import MEASURED_LEGEND, STATED_LEGEND, measured_table, show_one, stated_table

    console = results()
    if alone:
        show_one(console, rows[0])
    else:
        console.print(stated_table(rows, wide=console.width > 90))
        console.print(STATED_LEGEND, style="dim", markup=False)
    if on:
        console.print(f"\nmeasured here on {on}:", markup=False)
        console.print(measured_table(rows))
        console.print(MEASURED_LEGEND, style="dim", markup=False)
    if not alone:
        console.print("for example: taut run --workers 4 --codec topk:density=0.001 SCRIPT", markup=False)
