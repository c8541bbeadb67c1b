"""``order="sequential"``: samples come in their order, in long stretches, and ``follows`` says where one goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from scripts import ran

import taut
from taut.errors import Misuse
from taut.simulator.faults import Fail, Fault

BODY = """
t = torch.arange(512)
seen, breaks, last = [], 0, None
with taut.join(model, optimizer) as worker:
    stream = worker.batches((t, x, y), batch_size=4, epochs=2, order="sequential", {options})
    for number, (i, inputs, targets) in enumerate(stream):
        assert (i[1:] == i[:-1] + 1).all()
        assert not stream.follows or int(i[0]) == last + 1
        breaks, last = breaks + (not stream.follows), int(i[-1])
        seen += i.tolist()
        worker.step(F.cross_entropy(model(inputs), targets))
report(breaks=breaks, batches=number + 1, seen=len(seen))
"""


@pytest.mark.parametrize(("how", "faults"), [("sync", ()), ("async", ()), ("async", (Fail(1, 0.3),))])
def test_stretches_are_long_and_their_begins_are_told(how: str, faults: tuple[Fault, ...], tmp_path: Path) -> None:
    through_a_loader = "collate_fn=torch.utils.data.default_collate" if faults else ""
    found = ran(tmp_path, BODY.format(options=through_a_loader), how, faults=faults)
    assert ("silent" in found.error) if faults else (found.error == "")
    told = [each for each in found.told if each]  # a worker that failed has told nothing
    assert len(told) == 2 - len(faults)
    before = 4 * 30 if faults else 0  # samples at most that the dead worker trained on, in 0.3 s
    assert 1024 - before <= sum(each["seen"] for each in told) <= 1024
    for each in told:
        assert each["breaks"] <= each["batches"] / 8, "a hidden state would begin anew too often"
        assert faults or 0.4 <= each["seen"] / 1024 <= 0.6, "workers of one speed have equal shares"


def test_alone_each_pass_is_one_stretch() -> None:
    model = torch.nn.Linear(1, 1)
    with taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1)) as worker:
        stream = worker.batches(torch.arange(10), batch_size=3, epochs=2, order="sequential")
        found = [(batch.tolist(), stream.follows) for batch in stream]
        assert found == 2 * [([0, 1, 2], False), ([3, 4, 5], True), ([6, 7, 8], True), ([9], True)]
        with pytest.raises(Misuse, match="'sequential', or nothing"):
            worker.batches(torch.arange(10), batch_size=3, order="in order")  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="shuffle=True with order='sequential'"):
            worker.batches(torch.arange(10), batch_size=3, order="sequential", shuffle=True)
        with pytest.raises(Misuse, match="global_batch=4 with order='sequential'"):
            worker.batches(torch.arange(10), global_batch=4, order="sequential")
        with pytest.raises(Misuse, match="follows in another order"):
            _ = worker.batches(torch.arange(10), batch_size=3).follows
