"""``taut topology``: who would be wired to whom, and what that costs and gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from taut.cli.options import Json, complete_topology, output_flag
from taut.cli.output.console import notes, print_json, results
from taut.config import read_graph
from taut.errors import Misuse, StorageFailed
from taut.plugins import TOPOLOGIES
from taut.quantities import size
from taut.topologies import Graph, Shape, check, parse, spec
from taut.topologies.shapes.edge_list import resolve

MOST_WORKERS = 10_000
MOST_MEASURED = 1_000  # workers: the diameter and the spectral gap of more take minutes
MOST_ROWS = 32
MOST_DRAWN, MOST_LINES = 300, 3_000  # workers and edges in a picture that one can still see something in
MOST_ROUNDS, SHOWN_ROUNDS = 1_000, 16
NAMES = f"{', '.join(TOPOLOGIES.own)}, as in torus:3x4; or file:PATH."


def topology(
    shape: Annotated[
        str, typer.Argument(metavar="SHAPE", help=NAMES, show_default=False, autocompletion=complete_topology)
    ],
    workers: Annotated[int, typer.Option("--workers", "-n", help="How many workers.", show_default=False)],
    parameters: Annotated[int, typer.Option(help="Of the model: a message is 4 bytes for each.")] = 1_000_000,
    codec_bytes: Annotated[int | None, typer.Option(help="Bytes of a message, where a codec makes it smaller.")] = None,
    mixing: Annotated[
        str | None, typer.Option(help="metropolis or uniform weights; default: uniform where directed.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="How many rounds to look at, where the shape varies.")] = None,
    draw: Annotated[Path | None, output_flag(help="A picture: FILE.png or FILE.svg.")] = None,
    as_json: Json = False,
) -> None:
    """Show a topology: neighbours, diameter, spectral gap, traffic. Nothing is run."""
    _within("--workers", workers, 1, MOST_WORKERS)
    _within("--parameters", parameters, 1, 10**13)
    _within("--codec-bytes", codec_bytes, 1, 10**14)
    _within("--rounds", rounds, 1, MOST_ROUNDS)
    kind = _picture_kind(draw)
    chosen = check(parse(resolve(shape, read_graph)), workers)
    message_nbytes = codec_bytes if codec_bytes is not None else 4 * parameters
    if draw is not None:
        _check_drawable(chosen, workers)
    report = measure(chosen, workers, message_nbytes, mixing, rounds)
    if draw is not None:
        _save(draw, kind, report)
    if as_json:
        print_json(as_object(report))
    else:
        _print(report)
        if draw is not None:
            notes().print(f"drawn: {escape(str(draw))}", soft_wrap=True)


@dataclass(frozen=True)
class ShapeReport:
    """The properties of a shape over some workers."""

    shape: Shape
    graphs: list[Graph]  # one, or one for each round
    union: Graph
    mixing: str
    message_nbytes: int
    diameter: int | None
    spectral_gap: float | None
    disagreement_left: float | None

    @property
    def messages(self) -> float:
        return sum(graph.messages() for graph in self.graphs) / len(self.graphs)

    @property
    def most_sent(self) -> float:
        """Return the messages per step of the worker that sends the most."""
        return max(sum(len(g.outward(rank)) for g in self.graphs) for rank in self.union.members) / len(self.graphs)


def measure(shape: Shape, workers: int, message_nbytes: int, mixing: str | None, rounds: int | None) -> ShapeReport:
    """Measure a shape; what would take too long for so many workers is None."""
    from taut.topologies.mixing import disagreement_left

    if rounds is not None and not shape.varies:
        remedy = "leave it out, or try one-peer or matcha"
        raise Misuse(f"--rounds {rounds} for {spec(shape)}", "a shape that varies", remedy)
    number = (rounds or shape.period(workers) or SHOWN_ROUNDS) if shape.varies else 1
    graphs = [shape.wire(range(workers), round) for round in range(number)]
    union = shape.union(range(workers))
    kind = mixing or ("uniform" if union.directed else "metropolis")
    graphs[0].weights(kind)  # says what is wrong with the kind, however many workers there are
    left, gap, diameter = None, None, None
    if workers <= MOST_MEASURED:
        left = disagreement_left([graph.matrix(kind) for graph in graphs])
        gap = 1.0 - left ** (1 / number) if shape.varies else union.spectral_gap(kind)
        diameter = union.diameter()
    return ShapeReport(shape, graphs, union, kind, message_nbytes, diameter, gap, left)


def as_object(report: ShapeReport) -> dict[str, Any]:
    """Return the report for JSON."""
    union, varies = report.union, report.shape.varies
    return {
        "topology": spec(report.shape),
        "workers": len(union.members),
        "directed": union.directed,
        "varies": varies,
        "edges": len(union.edges),
        **{name: getattr(report, name) for name in ("diameter", "mixing", "spectral_gap", "disagreement_left")},
        "messages_per_step": report.messages,
        "message_bytes": report.message_nbytes,
        "bytes_per_step": report.messages * report.message_nbytes,
        "most_bytes_sent_by_one_per_step": report.most_sent * report.message_nbytes,
        "neighbours": {rank: union.neighbours(rank) for rank in union.members},
        "sends_to": {rank: union.outward(rank) for rank in union.members},
        "rounds": [sorted(graph.edges) for graph in report.graphs] if varies else None,
    }


def _print(report: ShapeReport) -> None:
    console, union = results(), report.union
    edges = f"{len(union.edges)} {'directed edges' if union.directed else 'edges'}"
    edges += ", some in each round" if report.shape.varies else ""
    console.print(f"[bold]{_title(report.shape)}[/], {len(union.members)} workers, {edges}", soft_wrap=True)
    for label, text in _figures(report):
        console.print(f"{label:<15}{text}", soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, width=min(80, console.width))
    table.add_column("worker", justify="right")
    if report.shape.varies:
        table.add_column("sends to, round by round" if union.directed else "exchanges with, round by round", ratio=1)
    else:
        table.add_column("sends to" if union.directed else "neighbours", ratio=1)
        if union.directed:
            table.add_column("hears from", ratio=1)
    for rank in union.members[:MOST_ROWS]:
        table.add_row(str(rank), *_cells(report, rank))
    console.print(table)
    if len(union.members) > MOST_ROWS:
        console.print(f"... and {len(union.members) - MOST_ROWS} more: --json has them all")


def _figures(report: ShapeReport) -> list[tuple[str, str]]:
    varies, unknown = report.shape.varies, f"not worked out for more than {MOST_MEASURED} workers"
    gap = unknown if report.spectral_gap is None else f"{report.spectral_gap:.4g} with {report.mixing} weights"
    nbytes = report.message_nbytes
    mean, consensus = "", []
    if varies:
        mean = ", the mean of these rounds"
        left = unknown if report.disagreement_left is None else f"{report.disagreement_left:.2g} of the disagreement left"
        gap += ", per round"
        consensus = [(f"{len(report.graphs)} rounds", left)]
    return [
        ("diameter", unknown if report.diameter is None else str(report.diameter)),
        ("spectral gap", gap),
        *consensus,
        ("messages", f"{report.messages:g} per step of {size(nbytes)} each{mean}"),
        ("traffic", f"{size(report.messages * nbytes)} per step; at most {size(report.most_sent * nbytes)} sent by one"),
    ]


def _title(shape: Shape) -> str:
    written = spec(shape)
    return written if len(written) <= 36 else f"{written[:32]} ..."


def _cells(report: ShapeReport, rank: int) -> list[str]:
    if report.shape.varies:
        shown = [", ".join(map(str, graph.outward(rank))) or "-" for graph in report.graphs[:SHOWN_ROUNDS]]
        return [" | ".join(shown) + (" ..." if len(report.graphs) > SHOWN_ROUNDS else "")]
    columns = [report.union.outward(rank)] + ([report.union.inward(rank)] if report.union.directed else [])
    return [", ".join(map(str, others[:24])) + (" ..." if len(others) > 24 else "") for others in columns]


def _within(flag: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise Misuse(f"{flag} {value}", f"a whole number from {least} to {most}")


def _picture_kind(path: Path | None) -> str:
    kind = path.suffix[1:].lower() if path else "png"
    if kind not in ("png", "svg"):
        raise Misuse(f"--draw {path}", "a name that ends in .png or .svg")
    return kind


def _check_drawable(shape: Shape, workers: int) -> None:
    edges = workers * (workers - 1) // 2 if shape.name == "complete" else len(shape.union(range(workers)).edges)
    if workers > MOST_DRAWN or edges > MOST_LINES:
        raise Misuse(
            f"--draw of {workers} workers and {edges} edges",
            f"at most {MOST_DRAWN} workers and {MOST_LINES} edges",
            "a smaller number of workers shows the same shape",
        )


def _save(path: Path, kind: str, report: ShapeReport) -> None:
    try:
        from taut.topologies.draw import draw

        title = f"{_title(report.shape)}, {len(report.union.members)} workers"
        if report.diameter is not None and report.spectral_gap is not None:
            title += f"\ndiameter {report.diameter}, spectral gap {report.spectral_gap:.3g}"
        picture = draw(report.shape, report.graphs[:SHOWN_ROUNDS], title, kind)
    except ImportError:
        raise Misuse(f"--draw {path}", "matplotlib to be installed", "pip install 'taut[demo]'") from None
    try:
        path.write_bytes(picture)
    except OSError as error:
        raise StorageFailed(f"{path} could not be written: {error.strerror or error}") from None
