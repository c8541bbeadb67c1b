"""taut: the plain loop, joined."""

import torch
from task import Participant, parser

import taut

me = Participant(parser(__doc__).parse_args())
with taut.join(me.model, me.optimizer()) as worker:
    for (indices,) in worker.batches((torch.arange(len(me.data)),), batch_size=me.task.batch, epochs=100_000):
        worker.step(me.loss(me.data.batch(indices)))
        me.stepped()
