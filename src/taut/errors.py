"""Every exception taut raises, in one tree.

Misuse (``Misuse``) is the caller's to mend: the message quotes what was given, what was expected and what to try;
commands turn it into exit code 2. Everything else is a failure of the run: exit code 1.
"""

from __future__ import annotations

from collections.abc import Collection


class TautError(Exception):
    """The root. Catch it to catch all of taut's own errors; you never get a bare one."""

    exit_code = 1


class Misuse(TautError, ValueError):
    """A value, a flag or a call that cannot work. You get it before anything was sent or written, never for a fault
    of the network."""

    exit_code = 2

    def __init__(self, given: object, expected: str, remedy: str = "") -> None:
        self.given, self.expected, self.remedy = given, expected, remedy
        super().__init__(f"{given}: expected {expected}" + (f"; {remedy}" if remedy else ""))


class MalformedMessage(TautError):
    """Bytes from the network that are not a valid message. The sender is at fault; nothing of it was applied."""


class NetworkError(TautError):
    """The network, or somebody on it, failed. You get one of the classes below."""


class PeerLost(NetworkError):
    """A worker that was needed is gone. Asynchronous training does not raise it: it goes on without the peer."""


class SupervisorLost(NetworkError):
    """The supervisor stopped answering while this worker could not go on without it (no data lease left)."""


class Refused(NetworkError):
    """The supervisor did not admit this worker: another model, another version, a wrong token. Nothing was shared. The
    exit code is that of ``Misuse``, since the mistake is yours to mend."""

    exit_code = 2


class Expelled(NetworkError):
    """The cluster went on without this worker (it was silent for too long, or its updates were broken)."""


class GivenUp(Expelled):
    """The supervisor evicted this worker because it was silent, and would take it back. You do not get this error: the
    worker rejoins by itself, and where that is refused you get ``Expelled``. ``without``: the ranks whose updates the
    worker does not bring along."""

    def __init__(self, message: str, without: Collection[int] = ()) -> None:
        self.without = without
        super().__init__(message)


class NonFiniteLoss(TautError):
    """The loss is NaN or infinite. You get it before the step's update is sent: the others' models are untouched."""


class NonFiniteUpdate(TautError):
    """A gradient was NaN or infinite, and so would be the update. You get it before the update is sent: the others'
    models are untouched. ``element``: its index in the flat vector of all parameters. (``tether`` and ``threshold`` never
    send such a number; there you get ``NonFiniteLoss`` at the next step.)"""

    def __init__(self, message: str, element: int) -> None:
        self.element = element
        super().__init__(message)


class RunFailed(TautError):
    """The run as a whole ended without a model, or with a worker whose script failed."""


class FinishFailed(TautError):
    """Your own ``validate`` or ``recalibrate`` raised at the end of the run. The model was saved all the same; the
    function's error is the cause of this one."""


class StorageFailed(TautError):
    """A file could not be written (disk full, no permission). What was there before is still there, whole."""


class Superseded(TautError):
    """Another supervisor has taken over this run while this one was away (stopped, or taken for dead). This one ends
    without touching the run, which goes on under the other."""


class ReplicasDiffer(TautError):
    """After the drain the replicas were not identical although their strategy and codec promise it. Where messages of a
    worker were refused, that one is broken or hostile; where none was, it is a bug in taut."""


class Stopping(BaseException):
    """Raised out of ``worker.step`` when the run is being stopped and the script's own loop would go on.

    ``taut.join`` catches it at the end of its block; a script never needs to. It is no ``Exception``, so that a
    training loop's ``except Exception`` does not swallow it."""
