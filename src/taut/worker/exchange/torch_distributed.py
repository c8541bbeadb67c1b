"""`sync:schedule=gloo` and `nccl`: torch.distributed does the all-reduce, where the group stays as it is.

The worker of the lowest rank opens a store and tells the others where, through the run's own encrypted channels; then
they connect to each other as torch.distributed does: **in the clear, on ports of its choosing**. Nobody can join, and if
anybody leaves, all the others end with ``PeerLost``. The group is ours alone: a script may use torch.distributed too.
"""

from __future__ import annotations

import datetime
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from taut.core.events import Heard, Tell
from taut.core.messages import Note
from taut.errors import Misuse, PeerLost
from taut.strategies.allreduce.group import OWN_NUMBERS
from taut.worker.exchange.turns import Turn

if TYPE_CHECKING:
    import torch

    from taut.worker.exchange.gradients import GradientExchange

PATIENCE = datetime.timedelta(minutes=5)  # torch's own default is 30: too long to look at a worker that stands still
RENDEZVOUS = "rendezvous"


def _card(device: torch.device) -> str:
    """Return what tells this GPU from all others; nothing where torch cannot say."""
    import torch

    unique = getattr(torch.cuda.get_device_properties(device), "uuid", "")
    return f"{socket.gethostname()} {unique}" if unique else ""


def check_cards(store: Any, index: int, members: Sequence[int], card: str) -> None:
    """Tell the others our ``card``, and raise ``Misuse`` where two members have the same: NCCL refuses that in the first
    all-reduce, as a connection that broke."""
    store.set(f"card-{index}", card)
    seen: dict[str, int] = {}
    for other, member in enumerate(members):
        theirs = store.get(f"card-{other}").decode(errors="replace")
        first = seen.setdefault(theirs, member)
        if theirs and first != member:
            given = f"sync: schedule=nccl with workers {first} and {member} on the same GPU"
            raise Misuse(given, "a GPU for each worker", "--devices auto deals them out; or take schedule=gloo or ring")


class TorchDistributedGroup:
    """The group of the worker whose ``exchange`` this is. Turns are all-reduces of one buffer: samples * gradients, then
    what ``Group`` and ``Sync`` send with them."""

    _members: tuple[int, ...] = ()
    _store_at: tuple[str, int] | None = None
    _group: Any = None

    def __init__(self, exchange: GradientExchange) -> None:
        self._exchange, self._method, self._comm = exchange, exchange.method, exchange.comm
        self._params, self._local, self._watch = exchange.replica.params, exchange.local, exchange.watch
        exchange.phase_protocol.on_deliver = self.deliver

    def connect(self) -> None:
        """Connect to the others, the method having started."""
        state = self._exchange.method_state
        membership = state.buckets[0].machine.membership
        self._members = membership.members
        extra = state.head_length + len(self._local.present)
        self._buffer = self._new_buffer(self._params.size + OWN_NUMBERS + extra)
        if membership.rank == self._members[0]:
            store = self._open_store()
        else:
            self._comm.wait(lambda _: self._store_at is not None, self._exchange.catch_up, needs_supervisor=False)
            assert self._store_at is not None
            store = self._store(*self._store_at, False)
        self._group = self._connect(store, self._members.index(membership.rank))

    # ---------------------------------------------------------------------------------------------- rendezvous

    @property
    def _host(self) -> str:
        return self._comm.transport.address.removeprefix("tcp://").rpartition(":")[0].strip("[]")

    def _open_store(self) -> Any:
        store = self._store(self._host, 0, True)
        for other in self._members[1:]:
            self._comm.post(Tell(other, Note(RENDEZVOUS, store.port), self._host.encode()))
        return store

    def _store(self, host: str, port: int, opens: bool) -> Any:
        from torch import distributed

        kinds: Any = distributed
        return kinds.TCPStore(host, port, len(self._members), opens, PATIENCE, wait_for_workers=False)

    def _connect(self, store: Any, index: int) -> Any:
        from torch import distributed

        kinds: Any = distributed
        try:
            if self._method.backend == "gloo":
                options = kinds.ProcessGroupGloo._Options()
                # The interface that the run uses, not the one that the host's name happens to resolve to.
                options._devices = [kinds.ProcessGroupGloo.create_device(hostname=self._host)]
                options._timeout = PATIENCE
                return kinds.ProcessGroupGloo(store, index, len(self._members), options)
            check_cards(store, index, self._members, _card(self._params.tensor.device))
            options = kinds.ProcessGroupNCCL.Options()
            options._timeout = PATIENCE
            return kinds.ProcessGroupNCCL(store, index, len(self._members), options)
        except RuntimeError as error:
            raise self._lost(error) from error

    def _new_buffer(self, size: int) -> torch.Tensor:
        import torch

        device, backend = self._params.tensor.device, self._method.backend
        if backend == "nccl" and device.type != "cuda":
            raise Misuse(
                f"sync: schedule=nccl with a model on {device}", "a model on a GPU", "take schedule=gloo or ring"
            )
        if backend == "nccl" and not torch.distributed.is_nccl_available():
            given = f"sync: schedule=nccl with torch {torch.__version__}, which was built without NCCL"
            raise Misuse(given, "a torch that has it", "take schedule=gloo or ring")
        return torch.zeros(size, device=device if backend == "nccl" else "cpu")

    def deliver(self, item: Heard) -> None:
        """Take the store's address; hand all other messages to the method. From any thread."""
        if item.note.kind != RENDEZVOUS:
            self._exchange.deliver(item)
            return
        try:
            self._store_at = item.payload.decode("ascii"), item.note.round
        except UnicodeDecodeError:
            self._comm.rejections.add(item.sender, "a rendezvous whose address is no text")

    def check_members(self) -> None:
        """Raise ``PeerLost`` if the members are no longer those that connected."""
        exchange = self._exchange
        if (
            self._members
            and self._comm.status.roster is not None
            and not exchange.driver.finished
            and self._comm.dispatcher.membership(exchange.shape, exchange.phase_protocol.phase).members != self._members
        ):
            raise self._lost("the members changed")

    def _lost(self, why: object) -> PeerLost:
        return PeerLost(
            f"the group of {self._method.backend} broke ({why}): it can neither lose nor admit a worker; "
            "take --strategy sync:schedule=ring, which can lose them"
        )

    # -------------------------------------------------------------------------------------------------- a turn

    def turn(self, samples: int) -> Turn:
        """Average the gradients with those of the others."""
        yield from ()
        driver, state = self._exchange.driver, self._exchange.method_state
        if driver.finished:
            return
        driver.turns += 1
        self._exchange.catch_up()
        numbers = [samples, state.draining, 1.0, *state.head(samples), *self._fill(samples)]
        size = self._params.size
        self._buffer[size:] = self._buffer.new_tensor(numbers)
        self._watch.charge("merge")
        try:
            self._group.allreduce([self._buffer]).wait()
            total, ending, contributors, *extra = self._buffer[size:].tolist()
        except RuntimeError as error:
            raise self._lost(str(error).splitlines()[0]) from error
        self._watch.charge("wait")
        length = state.head_length
        state.agree(extra[:length], total, round(contributors))
        state.rounds += 1
        self._put_back(total, extra[length:])
        driver.finished = driver.finished or ending == contributors
        driver.gathered = driver.micro_batches = 0
        self._watch.charge("merge")

    def _parts(self) -> list[tuple[torch.nn.Parameter, torch.Tensor]]:
        return list(self._params.views(self._buffer))

    def _fill(self, samples: int) -> list[float]:
        """Write the weighted gradients to the buffer; return which parameters had one."""
        present = []
        for number, (parameter, part) in enumerate(self._parts()):
            gradient = parameter.grad if self._local.wishes[self._local.owners[number]].steps else None
            present.append(float(gradient is not None))
            if gradient is None:
                part.zero_()
            else:
                part.copy_(gradient.to_dense() if gradient.is_sparse else gradient).mul_(samples * self._local.scale)
        return present

    def _put_back(self, total: float, present: list[float]) -> None:
        self._buffer[: self._params.size] /= total or 1.0
        self._local.put_back(self._buffer, present if total else [0.0] * len(present))
