"""Train the linear module for some epochs, with validation between them, as a worker."""

import argparse
from pathlib import Path

import lightning
from linear_module import QUIET, Linear, loader

from taut.lightning import TautStrategy

parser = argparse.ArgumentParser()
parser.add_argument("--told", required=True)
parser.add_argument("--clip", default="norm")
args = parser.parse_args()

model, strategy = Linear(), TautStrategy()
given = {"gradient_clip_val": 5.0, "gradient_clip_algorithm": args.clip, "num_sanity_val_steps": 0}
trainer = lightning.Trainer(strategy=strategy, max_epochs=8, **given, **QUIET)
trainer.fit(model, loader(), loader())
with Path(args.told).open("a") as file:
    weights = [*model.layer.bias.tolist(), *model.layer.weight.flatten().tolist()]
    seen = f"{sum(model.seen)} {strategy.worker.samples} {trainer.global_step}"
    file.write(f"{strategy.worker.rank} {seen} {float(trainer.callback_metrics['off'])} {' '.join(map(repr, weights))}\n")
