"""A model of so many parameters that makes a few steps, and writes down when what happened (``OUT/RANK.json``)."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import time
from pathlib import Path

import torch

import taut

INPUTS, BATCH, STEPS = 2048, 4, 8


class Arrival(logging.Handler):
    """Keeps how long this worker took to fetch the run's state, which it logs."""

    seconds = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        found = re.search(r"the run's state was here after ([0-9.]+) s", record.getMessage())
        self.seconds = float(found[1]) if found else self.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parameters", type=int, default=8_600_000)
    parser.add_argument("--differ", action="store_true", help="another seed in every process")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(os.getpid() if args.differ else 0)
    model = torch.nn.Linear(INPUTS, args.parameters // INPUTS, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    arrival = Arrival()
    logging.getLogger("taut").addHandler(arrival)
    logging.getLogger("taut").setLevel(logging.INFO)
    x = torch.randn(BATCH * STEPS, INPUTS)
    stamps = {"made_s": time.monotonic()}
    with taut.join(model, optimizer) as worker:
        stamps["joined_s"] = time.monotonic()
        for inputs in worker.batches(x, batch_size=BATCH, epochs=1):
            worker.step(model(inputs).square().mean())
            stamps.setdefault("first_s", time.monotonic())
        stamps["last_s"] = time.monotonic()
        rank = worker.rank
    stamps["saved_s"] = time.monotonic()
    (args.out / f"{rank}.json").write_text(
        json.dumps({**stamps, "fetch_took_s": arrival.seconds, "nbytes": 4 * model.weight.numel()})
    )


if __name__ == "__main__":
    main()
