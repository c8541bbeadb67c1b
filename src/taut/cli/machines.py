"""The flags that describe machines and a network, for every command that simulates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from taut.simulator.models.cost_file import Known
    from taut.simulator.scenario import Scenario

MACHINES = "Machines and network"

Link = Annotated[
    list[str] | None,
    typer.Option(
        help="Cables: 1gbit,200us for all; 3:10mbit,20ms,loss=0.001 for one worker; 0-1:100mbit for a pair.",
        rich_help_panel=MACHINES,
    ),
]
SharedLink = Annotated[
    list[str] | None,
    typer.Option(
        "--shared", help="A bottleneck: 0..7:1gbit (their uplink), all:10gbit (a switch).", rich_help_panel=MACHINES
    ),
]
PerHost = Annotated[int, typer.Option(help="So many workers share a host and its cable.", rich_help_panel=MACHINES)]
Step = Annotated[
    str | None,
    typer.Option("--step", help="A step's computing, such as 30ms. Default: measured.", rich_help_panel=MACHINES),
]
Speed = Annotated[
    str | None,
    typer.Option(help="How steps vary: constant, lognormal:0.3, uniform:0.2, exponential.", rich_help_panel=MACHINES),
]
Spread = Annotated[float, typer.Option(help="How machines differ (sigma of a lognormal).", rich_help_panel=MACHINES)]
Straggler = Annotated[
    list[str] | None,
    typer.Option(help="1x4: worker 1 is 4 times slower.", rich_help_panel=MACHINES),
]
FailAt = Annotated[list[str] | None, typer.Option("--fail", help="2@30s: worker 2 dies.", rich_help_panel=MACHINES)]
PauseAt = Annotated[
    list[str] | None, typer.Option("--pause", help="1@5s+3s: worker 1 stands still for 3 s.", rich_help_panel=MACHINES)
]
JoinAt = Annotated[
    list[str] | None, typer.Option("--join", help="2@10s: two more workers join.", rich_help_panel=MACHINES)
]
CostsFile = Annotated[
    Path | None,
    typer.Option(
        "--costs", help="A file of costs (JSON); default: what `taut codecs --measure` found.", rich_help_panel=MACHINES
    ),
]


@dataclass(frozen=True)
class Machines:
    """The flags that describe machines and network, for every command that simulates."""

    link: list[str] | None = None
    shared: list[str] | None = None
    per_host: int = 1
    step: str | None = None
    speed: str | None = None
    spread: float = 0.0
    straggler: list[str] | None = None
    fail: list[str] | None = None
    pause: list[str] | None = None
    join: list[str] | None = None
    costs: Path | None = None

    @property
    def step_s(self) -> float | None:
        from taut.simulator.flags import parse_duration

        return None if self.step is None else parse_duration(self.step)

    def scenario(self, **given: Any) -> Scenario:
        """A scenario of these machines; a step takes what was said, or the default."""
        from taut.simulator.flags import parse_fault_words, parse_links, parse_shared, parse_speed, parse_straggler
        from taut.simulator.models.speeds import Speeds
        from taut.simulator.scenario import Scenario

        links = parse_links(self.link or [])
        links = replace(links, shared=tuple(parse_shared(one) for one in self.shared or ()), per_host=self.per_host)
        speeds = Speeds(
            draw=parse_speed(self.speed or "constant"),
            spread=self.spread,
            stragglers=dict(parse_straggler(one) for one in self.straggler or ()),
        )
        if self.step_s is not None:
            speeds = replace(speeds, step_s=self.step_s)
        faults = parse_fault_words(self.fail or (), self.pause or (), self.join or ())
        return Scenario(links=links, speeds=speeds, faults=faults, costs=self.known_costs().costs, **given)

    def known_costs(self) -> Known:
        """What exchanging costs, and whence: the file that was named, what was measured here, or taut's own figures."""
        from taut.config import costs_file
        from taut.simulator.models.cost_file import Known, known_costs
        from taut.simulator.models.costs import Costs

        return known_costs(costs_file()) if self.costs is None else Known(Costs.read(self.costs), str(self.costs))
