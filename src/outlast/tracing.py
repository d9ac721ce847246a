"""OpenTelemetry: a span for every enqueue and every attempt, if the program has set tracing up.

The trace context goes with the task, in its `meta`, as W3C `traceparent` and `tracestate`; so an
attempt belongs to the trace of whoever enqueued it, days later and on another machine. Nothing of
OpenTelemetry is imported before the program does: without a provider all this is one lookup.
Spans carry no payload and no message of an error: those may be secret.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from outlast.core.codec import dumps
from outlast.core.model import Json, Lease, NewTask, Outcome
from outlast.meter import FAILED

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

Attributes = dict[str, str | int]

TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
MAX_STATE: Final = 512
FIELDS: Final = ("traceparent", "tracestate")

# Names of the semantic conventions for messaging, which are still in development: here only.
SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
MESSAGE: Final = "messaging.message.id"
CONVERSATION: Final = "messaging.message.conversation_id"
BATCH: Final = "messaging.batch.message_count"
ERROR: Final = "error.type"
TYPE: Final = "outlast.task.type"
ATTEMPT: Final = "outlast.attempt"
OUTCOME: Final = "outlast.outcome"

_passed: ContextVar[Mapping[str, str] | None] = ContextVar("outlast_trace", default=None)
"""A context that came with a request to a server that traces nothing itself."""


def tracer() -> Tracer | None:
    """None when nobody traces."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider)):
        return None
    from outlast import __version__

    found: Tracer = provider.get_tracer("outlast", __version__)
    return found


# Enqueue -----------------------------------------------------------------------------------------


@contextmanager
def sending(tasks: Sequence[NewTask]) -> Iterator[Sequence[NewTask]]:
    """The tasks with the context to go with them, and a span around their being enqueued."""
    found = tracer()
    if found is None:
        passed = _passed.get()
        yield tasks if passed is None else [_with(task, passed) for task in tasks]
        return
    from opentelemetry import propagate
    from opentelemetry.trace import SpanKind

    queues = sorted({task.queue for task in tasks})
    queue = queues[0] if len(queues) == 1 else "(several)"
    told = {**_attributes("send", queue), **_of_batch(tasks)}
    with found.start_as_current_span(
        f"send {queue}",
        kind=SpanKind.PRODUCER,
        attributes=told,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        try:
            yield [_with(task, carrier) for task in tasks]
        except Exception as error:
            _fail(span, type(error).__name__)
            raise


def _of_batch(tasks: Sequence[NewTask]) -> Attributes:
    if len(tasks) > 1:
        return {BATCH: len(tasks)}
    [task] = tasks
    return {MESSAGE: task.id, TYPE: task.type, **_conversation(task.session_id)}


def _with(task: NewTask, carrier: Mapping[str, str]) -> NewTask:
    told = {name: carrier[name] for name in FIELDS if name in carrier}
    return replace(task, meta=dumps({**msgspec.json.decode(task.meta), **told}, "meta"))


# Attempts ----------------------------------------------------------------------------------------


class Running:
    """The span of an attempt that runs, current while it does."""

    __slots__ = ("_span", "_token")

    def __init__(self, found: Tracer, lease: Lease) -> None:
        from opentelemetry import context, propagate
        from opentelemetry.trace import Link, SpanKind, get_current_span, set_span_in_context

        parent = propagate.extract(_carried(lease.meta))
        origin = get_current_span(parent).get_span_context()
        self._span = found.start_span(
            f"process {lease.queue}",
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes={
                **_attributes("process", lease.queue),
                MESSAGE: lease.id,
                TYPE: lease.type,
                ATTEMPT: lease.number,
                **_conversation(lease.session_id),
            },
            links=[Link(origin)] if origin.is_valid else [],
        )
        self._token = context.attach(set_span_in_context(self._span, parent))

    def end(self, outcome: Outcome | None) -> None:
        """None: the lease was lost, and whatever came of it is refused."""
        from opentelemetry import context

        context.detach(self._token)
        verdict = "stalled" if outcome is None else outcome.verdict
        self._span.set_attribute(OUTCOME, verdict)
        if outcome is not None and verdict in FAILED:
            error = msgspec.json.decode(outcome.error or b"{}")
            _fail(self._span, str(error.get("type") or verdict))
        self._span.end()


def _carried(meta: Json) -> dict[str, str]:
    told = msgspec.json.decode(meta)
    return {name: told[name] for name in FIELDS if name in told}


# Requests ----------------------------------------------------------------------------------------


def accept(parent: str, state: str | None) -> None:
    """The context that a request brings, for what is enqueued in answering it."""
    if not TRACEPARENT.fullmatch(parent):
        return
    told = {"traceparent": parent}
    if state is not None and len(state) <= MAX_STATE:
        told["tracestate"] = state
    if tracer() is None:
        _passed.set(told)
        return
    from opentelemetry import context, propagate
    from opentelemetry.trace import get_current_span

    if not get_current_span().get_span_context().is_valid:  # else the framework has seen to it
        context.attach(propagate.extract(told))


# Spans -------------------------------------------------------------------------------------------


def _attributes(operation: str, queue: str) -> Attributes:
    return {
        SYSTEM: "outlast",
        OPERATION: operation,
        OPERATION_TYPE: operation,
        DESTINATION: queue,
    }


def _conversation(session_id: str | None) -> Attributes:
    return {} if session_id is None else {CONVERSATION: session_id}


def _fail(span: Span, kind: str) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute(ERROR, kind)
    span.set_status(StatusCode.ERROR)
