"""The flags that describe machines and a network, for every command that simulates."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from taut.simulator.models.cost_file import Known
    from taut.simulator.scenario import Scenario

machine_flag = partial(typer.Option, rich_help_panel="Machines and network")


@dataclass(frozen=True)
class Machines:
    """The machines and the network of a simulation, as flags describe them."""

    link: Annotated[
        list[str] | None,
        machine_flag(
            help="Cables: 1gbit,200us for all; 3:10mbit,20ms,loss=0.001 for one worker; 0-1:100mbit for a pair."
        ),
    ] = None
    shared: Annotated[
        list[str] | None, machine_flag(help="A bottleneck: 0..7:1gbit (their uplink), all:10gbit (a switch).")
    ] = None
    per_host: Annotated[int, machine_flag(help="So many workers share a host and its cable.")] = 1
    step: Annotated[str | None, machine_flag(help="A step's computing, such as 30ms. Default: measured.")] = None
    speed: Annotated[
        str | None, machine_flag(help="How steps vary: constant, lognormal:0.3, uniform:0.2, exponential.")
    ] = None
    spread: Annotated[float, machine_flag(help="How machines differ (sigma of a lognormal).")] = 0.0
    straggler: Annotated[list[str] | None, machine_flag(help="1x4: worker 1 is 4 times slower.")] = None
    fail: Annotated[list[str] | None, machine_flag(help="2@30s: worker 2 dies.")] = None
    pause: Annotated[list[str] | None, machine_flag(help="1@5s+3s: worker 1 stands still for 3 s.")] = None
    join: Annotated[list[str] | None, machine_flag(help="2@10s: two more workers join.")] = None
    costs: Annotated[
        Path | None, machine_flag(help="A file of costs (JSON); default: what `taut codecs --measure` found.")
    ] = None

    @property
    def step_s(self) -> float | None:
        from taut.quantities import parse_duration

        return None if self.step is None else parse_duration(self.step)

    def scenario(self, **given: Any) -> Scenario:
        """Return a scenario of these machines; a step takes what was said, or the default."""
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
        """Return the costs of exchanging, and their source: the named file, a measurement here, or taut's own figures."""
        from taut.config import costs_file
        from taut.simulator.models.cost_file import Known, known_costs
        from taut.simulator.models.costs import Costs

        return known_costs(costs_file()) if self.costs is None else Known(Costs.read(self.costs)[0], str(self.costs))

    def words(self) -> list[str]:
        """Return the flags that differ from their defaults, as they are written on the command line."""
        words: list[str] = []
        for each in fields(self):
            value = getattr(self, each.name)
            if value != each.default:
                for one in value if isinstance(value, list) else [value]:
                    words += [f"--{each.name.replace('_', '-')}", str(one)]
        return words
