"""Steps and messages of a worker as traces of OpenTelemetry (``--report-to opentelemetry``).

Each step is a trace: a span ``step``, and in it one for each stretch of its time (``compute``, ``send``, ``wait`` ...)
and for each message that was sent or came meanwhile (``send Updates``, ``receive Receipt`` ...). The two ends of a
message have the same ``taut.message`` and a link to the same context, made of what is in it: nothing more crosses the
wire. Where the spans go, and which share of the steps is kept, is said by OpenTelemetry's own variables. Nothing is
imported where no run asks for it.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import msgspec

from taut.config.loggers import TRACES
from taut.errors import Misuse

EXPORTER = "opentelemetry.exporter.otlp.proto.http"
MOST = 4096  # stretches and messages of one step; of more, the last
CLOSE_MS = 5000  # for the last spans, at the end
Span = tuple[str, int, int, Mapping[str, Any]]  # name, begin and end in nanoseconds since 1970, attributes


def provider(run: str, instance: str) -> Any:
    """Return what makes the spans of ``instance`` (``worker-3``) and sends them to OTEL_EXPORTER_OTLP_ENDPOINT, in a
    thread of its own. Raise ``Misuse`` without the packages."""
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter.otlp") is None:
        remedy = "pip install 'taut[opentelemetry]', on every machine"
        raise Misuse(f"--report-to {TRACES} without its packages", "opentelemetry-sdk and its OTLP exporter", remedy)
    exporter = import_module(f"{EXPORTER}.trace_exporter").OTLPSpanExporter()
    resource = import_module("opentelemetry.sdk.resources").Resource.create(
        {"service.name": "taut", "service.instance.id": instance, "taut.run": run}
    )
    made = import_module("opentelemetry.sdk.trace").TracerProvider(resource=resource, shutdown_on_exit=False)
    made.add_span_processor(import_module("opentelemetry.sdk.trace.export").BatchSpanProcessor(exporter))
    return made


def step_tracer(settings: Mapping[str, Any], run: str, rank: int) -> StepTracer | None:
    """Return the tracer of a worker; None where the run's settings ask for none."""
    return StepTracer(provider(run, f"worker-{rank}"), rank, run) if settings.get("traces") else None


def message_id(run: str, sender: int, receiver: int, message: object) -> bytes:
    """Return 24 bytes that both ends of a message make alike.

    >>> from taut.core.messages import Receipt
    >>> message_id("owl", 0, 1, Receipt(4)) == message_id("owl", 0, 1, Receipt(4)) != message_id("owl", 1, 0, Receipt(4))
    True
    """
    hashed = hashlib.blake2b(f"{run} {sender} {receiver} ".encode(), digest_size=24)
    hashed.update(msgspec.msgpack.encode(message))
    return hashed.digest()


class StepTracer:
    """Makes the spans of worker ``rank``. ``charged`` and ``stepped`` come from the thread that trains; ``message`` may
    come from any."""

    def __init__(self, made: Any, rank: int, run: str) -> None:
        self._provider, self._rank, self._run = made, rank, run
        self._tracer = made.get_tracer("taut")
        self._stretches: deque[Span] = deque(maxlen=MOST)
        self._messages: deque[tuple[Span, int, object]] = deque(maxlen=MOST)  # with the other end, and the message
        self._steps = 0

    def charged(self, kind: str, seconds: float) -> None:
        """Note that the time up to now was spent on this kind of work."""
        now = time.time_ns()
        self._stretches.append((kind, now - round(seconds * 1e9), now, {}))

    def message(self, way: str, peer: int, message: object, nbytes: int, began_ns: int) -> None:
        """Note that a message was sent (``way``: "send") to another worker, or came from it ("receive")."""
        told = {"taut.peer": peer, "taut.bytes": nbytes}
        span = (f"{way} {type(message).__name__}", began_ns, time.time_ns(), told)
        self._messages.append((span, peer, message))

    def stepped(self) -> None:
        """Note that a step, and the exchange after it, are over: its spans are made."""
        if not self._stretches:
            return
        self._steps += 1
        first, last = self._stretches[0][1], self._stretches[-1][2]
        told = {"taut.worker": self._rank, "taut.step": self._steps}
        step = self._tracer.start_span("step", start_time=first, attributes=told)
        stretches, self._stretches = self._stretches, deque(maxlen=MOST)
        messages = [self._messages.popleft() for _ in range(len(self._messages))]
        if step.is_recording():
            context = import_module("opentelemetry.trace").set_span_in_context(step)
            for name, begin, end, attributes in stretches:
                self._tracer.start_span(name, context, attributes=attributes, start_time=begin).end(end)
            for span, peer, message in messages:
                self._message_span(context, span, peer, message)
        step.end(last)

    def _message_span(self, context: Any, span: Span, peer: int, message: object) -> None:
        name, begin, end, attributes = span
        ends = (self._rank, peer) if name.startswith("send") else (peer, self._rank)
        made, trace = message_id(self._run, *ends, message), import_module("opentelemetry.trace")
        linked = trace.SpanContext(int.from_bytes(made[:16], "big"), int.from_bytes(made[16:], "big"), is_remote=True)
        told = {**attributes, "taut.message": made[:8].hex()}
        self._tracer.start_span(name, context, attributes=told, links=[trace.Link(linked)], start_time=begin).end(end)

    def close(self) -> None:
        """Send what is left."""
        self._provider.force_flush(CLOSE_MS)
        self._provider.shutdown()
