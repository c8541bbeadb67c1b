"""Ctrl-C in a place where Python forgets it is raised again at the next step."""

import os
import signal

import pytest
import torch

import taut
from taut.worker.ctrl_c import CtrlC


class Swallowing:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):  # somewhere in here the interrupt is raised, and forgotten
            pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_a_destructor_swallowed_comes_back():
    ctrl_c = CtrlC()
    try:
        thing = Swallowing()
        del thing
        with pytest.raises(KeyboardInterrupt):
            ctrl_c.check()
        ctrl_c.check()  # once
    finally:
        ctrl_c.close()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_users_is_left_alone():
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        ctrl_c = CtrlC()
        os.kill(os.getpid(), signal.SIGINT)
        ctrl_c.check()
        ctrl_c.close()
        assert seen == [1]
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_worker_alone_leaves_the_signal_as_it_is():
    model = torch.nn.Linear(1, 1)
    with taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1)):
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
