"""Train the linear model for some epochs as a worker."""

import argparse
from pathlib import Path

from linear_model import DATA, Linear, arguments, sgd

from taut.hf import TautTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--told", required=True)
parser.add_argument("--best", action="store_true")
args = parser.parse_args()

model = Linear()
settings = {"num_train_epochs": 8, "max_grad_norm": 5.0, "lr_scheduler_type": "constant_with_warmup"}
if args.best:
    settings |= {"load_best_model_at_end": True, "save_strategy": "epoch", "eval_strategy": "epoch"}
trainer = TautTrainer(
    model, arguments("trainer", **settings), train_dataset=DATA, eval_dataset=DATA[:8], optimizers=sgd(model)
)
trainer.train()
worker = trainer.worker
with Path(args.told).open("a") as file:
    weights = [*model.layer.bias.tolist(), *model.layer.weight.flatten().tolist()]
    file.write(f"{worker.rank} {sum(model.seen)} {worker.samples} {trainer.state.epoch} {' '.join(map(repr, weights))}\n")
