"""The bound: processes that know nothing of each other."""

from task import Participant, parser

me = Participant(parser(__doc__).parse_args())
optimizer = me.optimizer()
for batch in me.batches():
    me.loss(batch).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    me.stepped()
