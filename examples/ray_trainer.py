"""Train a function on a Ray cluster, and find the results where Ray Train puts them.

    python examples/ray_trainer.py --workers 2                              # a cluster is started for it
    RAY_ADDRESS=10.0.0.7:6379 python examples/ray_trainer.py --workers 16   # one that runs already

Needs Ray and scikit-learn (pip install 'taut[ray,demo]').
"""

import argparse

import ray.train

from taut.ray import Trainer


def train(config):
    """Runs in every worker's actor."""
    import torch
    from sklearn.datasets import load_digits
    from torch import nn
    from torch.nn import functional

    import taut

    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(labels)
    shuffled = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    test, rest = shuffled[:360], shuffled[360:]
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)

    def accuracy(model):
        return (model(x[test]).argmax(dim=1) == y[test]).float().mean()

    with taut.join(model, optimizer, validate=accuracy) as worker:
        for inputs, targets in worker.batches((x[rest], y[rest]), batch_size=32, epochs=config["epochs"]):
            worker.step(functional.cross_entropy(model(inputs), targets))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--storage", help="folder for results; default: ~/ray_results")
    options = parser.parse_args()
    result = Trainer(
        train,
        config={"lr": 0.05, "epochs": options.epochs},
        workers=options.workers,
        run_config=ray.train.RunConfig(storage_path=options.storage),
    ).fit()
    print(f"{100 * result.metrics['score']:.1f}% of the test samples right, {result.metrics['samples']} samples trained")
    print(f"model: {result.checkpoint.path}/model.safetensors")
