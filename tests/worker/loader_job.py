"""A training script for the tests: a data set that is read by processes of a DataLoader, under two workers. Its
argument is a folder for a file of each worker, with the samples that it trained on."""

import os
import sys

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import taut

torch.manual_seed(0)
X = torch.randn(192, 8)


class Rows(Dataset):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return X[index], index


loader = DataLoader(Rows(), 8, shuffle=True, num_workers=2, prefetch_factor=3)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

with taut.join(model, optimizer) as worker:
    seen = []
    for x, index in worker.batches(loader, epochs=3):
        worker.step(F.cross_entropy(model(x), (x.sum(1) > 0).long()))
        seen += index.tolist()
with open(os.path.join(sys.argv[1], f"seen-{worker.rank}"), "w") as file:
    file.write(" ".join(map(str, seen)))
worker.print("the main one is worker", worker.rank)
