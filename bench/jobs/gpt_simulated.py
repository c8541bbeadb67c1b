"""A simulation of ``gpt.py``: how long it takes, and how much of that the observer takes. Prints one line of JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from taut.simulator.scenario import Scenario
from taut.simulator.script.connection import VirtualConnector
from taut.simulator.script.observer import Observer
from taut.simulator.script.run import simulate_script


def main() -> None:
    size, strategy, workers, steps = sys.argv[1:]
    stepped, observing = Observer.stepped, list[float]()

    def timed(observer: Observer, connector: VirtualConnector) -> None:
        began_s = time.perf_counter()
        stepped(observer, connector)
        observing.append(time.perf_counter() - began_s)

    Observer.stepped = timed  # type: ignore[method-assign]
    script = str(Path(__file__).with_name("gpt.py"))
    scenario = Scenario(int(workers), strategy, steps=int(steps), script=script, args=("--size", size))
    began_s = time.perf_counter()
    result = simulate_script(scenario)
    took_s = time.perf_counter() - began_s
    made = sum(each.steps for each in result.workers.values())
    print(json.dumps({"took_s": took_s, "observing_s": sum(observing), "steps": made, "error": result.error}))


if __name__ == "__main__":
    main()
