"""How good is the model that comes out, and at how many bytes? Used by ``cluster.py``.

Synchronous SGD over p workers is one process with p times the batch, so that is what is compared with.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from processes import Made, plain_run, taut_run
from report import Row, row


def weights(made: Made) -> dict[str, Any]:
    import torch
    from safetensors.torch import load_file

    if made.outcome:
        return dict(load_file(made.outcome["model"]))
    return dict(torch.load(made.folder / "model.pt"))


def mnist_accuracy(made: Made, data: Path) -> float:
    """In percent, of the model file, on the test set."""
    import torch

    from jobs.mnist import load, network

    model = network(0)
    model.load_state_dict(weights(made))
    x, y = load(data, "t10k")
    with torch.no_grad():
        return 100.0 * (model(x).argmax(1) == y).float().mean().item()


def text_loss(made: Made, data: Path) -> float:
    from jobs.shakespeare import Text, network, validation_loss

    text = Text(data)
    model = network(text, 0)
    model.load_state_dict(weights(made))
    return validation_loss(model, text)


def byte_rows(name: str, made: list[Made], *, at_least: float | None = None) -> list[Row]:
    """Return the least compression of these runs: against a ring all-reduce, and against dense updates that every worker
    sends to every peer. The bar is on the second, p / 2 times as many bytes: what this exchange is without a codec."""
    ring = min(one.outcome["compression"] for one in made)
    peers = min(one.outcome["compression"] * len(one.outcome["workers"]) / 2 for one in made)
    return [
        row(f"{name}: bytes of a dense ring all-reduce / bytes sent", ring, "x"),
        row(f"{name}: bytes of dense updates to every peer / bytes sent", peers, "x", at_least=at_least),
    ]


def of_runs(name: str, made: list[Made], *, compression: float | None) -> list[Row]:
    """Return what holds for any run: the bytes and the hash law."""
    same = all(one.outcome["replicas_identical"] for one in made)
    return [
        *byte_rows(name, made, at_least=compression),
        row(f"{name}: replicas identical", float(same), "", at_least=1.0),
    ]


def mnist(data: Path, folder: Path, seeds: range, workers: int, codecs: list[str]) -> list[Row]:
    """Two passes over MNIST."""
    accuracy: dict[str, list[float]] = {codec: [] for codec in ("synchronous", *codecs)}
    made: dict[str, list[Made]] = {codec: [] for codec in codecs}
    for seed in seeds:
        args = ["--data", str(data), "--epochs", "2", "--seed", str(seed)]
        one = plain_run("mnist.py", [*args, "--batch", str(64 * workers)], folder / "sync", processes=1)
        accuracy["synchronous"].append(mnist_accuracy(one, data))
        for codec in codecs:
            options = ["--codec", codec, "--seed", str(seed)]
            one = taut_run("mnist.py", args, folder / codec.partition(":")[0], workers=workers, options=options)
            made[codec].append(one)
            accuracy[codec].append(mnist_accuracy(one, data))
    mean = {codec: statistics.mean(values) for codec, values in accuracy.items()}
    rows = [row(f"mnist x{workers} synchronous: accuracy", mean["synchronous"], "%")]
    for codec in codecs:
        name, bar = f"mnist x{workers} {codec}", codec.startswith("tether")
        behind = mean["synchronous"] - mean[codec]
        rows.append(row(f"{name}: accuracy", mean[codec], "%"))
        rows.append(row(f"{name}: behind synchronous", behind, "points", at_most=0.3 if bar else None))
        rows += of_runs(name, made[codec], compression=100.0 if bar else None)
    return rows


def shakespeare(data: Path, folder: Path, seeds: range, workers: int = 4) -> list[Row]:
    """400 steps of 4 x 16 windows with AdamW."""
    losses: dict[str, list[float]] = {"synchronous": [], "tether": []}
    made: list[Made] = []
    for seed in seeds:
        args = ["--data", str(data), "--seed", str(seed)]
        sync = plain_run("shakespeare.py", [*args, "--batch", str(16 * workers)], folder / "lm-sync", processes=1)
        made.append(taut_run("shakespeare.py", args, folder / "lm", workers=workers, options=["--seed", str(seed)]))
        losses["synchronous"].append(text_loss(sync, data))
        losses["tether"].append(text_loss(made[-1], data))
    mean = {name: statistics.mean(values) for name, values in losses.items()}
    name = f"transformer x{workers} tether"
    return [
        row(f"transformer x{workers} synchronous: loss", mean["synchronous"], "nats"),
        row(f"{name}: loss", mean["tether"], "nats"),
        row(f"{name}: above synchronous", mean["tether"] - mean["synchronous"], "nats", at_most=0.05),
        *of_runs(name, made, compression=20.0),
    ]
