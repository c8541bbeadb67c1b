"""One worker in a script, alone too; and what another launcher's process is told."""

from __future__ import annotations

import pytest
import torch

import taut
from taut.errors import Misuse, Stopping
from taut.worker.joining.script_worker import script_end


def join() -> taut.TorchWorker:
    model = torch.nn.Linear(2, 1)
    return taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_a_second_join_waits_for_the_end_of_the_first() -> None:
    with join(), pytest.raises(Misuse, match=r"taut\.join\(model, \[optimizer_g, optimizer_d\]\)"):
        join()
    join().close()
    with pytest.raises(ZeroDivisionError), join():
        raise ZeroDivisionError
    join().close()


def test_the_end_of_a_script_that_is_alone_is_its_own() -> None:
    worker = join()
    with pytest.raises(Stopping), script_end():
        raise Stopping
    assert not worker.closed
    worker.close()
