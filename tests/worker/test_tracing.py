"""OpenTelemetry with its real SDK: from enqueue to every attempt, in the loop and in threads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from outlast import Again, Context, Transient
from outlast.app import Outlast
from outlast.core.errors import BadInput
from outlast.core.ids import new_id
from outlast.worker import Worker

from .conftest import until, working


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """A program that traces, for the length of a test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def told(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


async def test_attempts_belong_to_the_trace_of_the_enqueue(
    app: Outlast, spans: InMemorySpanExporter
) -> None:
    @app.task(retry="1ms")
    async def flaky(ctx: Context) -> None:
        with trace.get_tracer("mine").start_as_current_span("inside"):
            if ctx.attempt == 1:
                raise Transient("canary: not yet")

    async with app, working(Worker(app)):
        with trace.get_tracer("mine").start_as_current_span("request"):
            handle = await flaky.options(session_id="s").enqueue()
        await handle.result(timeout=30)
        await until(lambda: len(named(spans, "process default")) == 2)
    [request], [send] = named(spans, "request"), named(spans, "send default")
    first, second = named(spans, "process default")
    assert send.kind is SpanKind.PRODUCER
    assert send.parent is not None and send.parent.span_id == ids(request)[1]
    assert told(send) == {
        "messaging.system": "outlast",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "default",
        "messaging.message.id": handle.id,
        "messaging.message.conversation_id": "s",
        "outlast.task.type": "flaky",
    }
    for number, attempt in enumerate((first, second), 1):
        assert attempt.kind is SpanKind.CONSUMER
        assert attempt.parent is not None and attempt.parent.span_id == ids(send)[1]
        assert ids(attempt)[0] == ids(request)[0]
        assert [link.context.span_id for link in attempt.links] == [ids(send)[1]]
        assert told(attempt)["messaging.operation.name"] == "process"
        assert told(attempt)["outlast.attempt"] == number
    assert (told(first)["outlast.outcome"], told(first)["error.type"]) == ("failed", "Transient")
    assert first.status.status_code is StatusCode.ERROR
    assert told(second)["outlast.outcome"] == "succeeded"
    assert "error.type" not in told(second)
    inside = [span.parent.span_id for span in named(spans, "inside") if span.parent]
    assert inside == [ids(first)[1], ids(second)[1]]
    mine = (send, first, second)
    assert not any("canary" in span.to_json() for span in mine)


async def test_handlers_in_threads_and_their_children_are_in_the_trace(
    app: Outlast, spans: InMemorySpanExporter
) -> None:
    @app.task
    def inner() -> int:
        with trace.get_tracer("mine").start_as_current_span("inside"):
            return 1

    @app.task
    async def outer() -> None:
        await inner.options(queue="second").enqueue()

    async with app, working(Worker(app, queues={"default": None, "second": None})):
        await outer.enqueue()
        await until(lambda: len(named(spans, "process second")) == 1)
    [process], [send] = named(spans, "process default"), named(spans, "send second")
    [last], [inside] = named(spans, "process second"), named(spans, "inside")
    assert send.parent is not None and send.parent.span_id == ids(process)[1]
    assert inside.parent is not None and inside.parent.span_id == ids(last)[1]
    assert len({ids(span)[0] for span in (process, send, last, inside)}) == 1


async def test_outcomes_are_told(app: Outlast, spans: InMemorySpanExporter) -> None:
    @app.task
    async def patient(ctx: Context) -> Again | None:
        return Again() if ctx.number == 1 else None

    @app.task(timeout="20ms", max_attempts=1)
    async def slow() -> None:
        await asyncio.sleep(60)

    async with app, working(Worker(app)):
        await patient.enqueue()
        await slow.enqueue()
        await until(lambda: len(named(spans, "process default")) == 3)
    found = sorted(
        (str(told(span)["outlast.task.type"]), str(told(span)["outlast.outcome"]))
        for span in named(spans, "process default")
    )
    assert found == [("patient", "succeeded"), ("patient", "waiting"), ("slow", "timed_out")]


async def test_a_batch_is_one_span(app: Outlast, spans: InMemorySpanExporter) -> None:
    @app.task
    async def noop(n: int) -> None: ...

    async with app:
        await app.enqueue([noop.call(n) for n in range(3)])
        await app.enqueue([noop.call(1), noop.options(queue="b").call(2)])
    [send], [mixed] = named(spans, "send default"), named(spans, "send (several)")
    assert told(send)["messaging.batch.message_count"] == 3
    assert told(mixed)["messaging.batch.message_count"] == 2


async def test_an_enqueue_that_fails_says_so(app: Outlast, spans: InMemorySpanExporter) -> None:
    @app.task
    async def noop() -> None: ...

    async with app:
        with pytest.raises(BadInput):
            await noop.options(after=[new_id()]).enqueue()
    [send] = named(spans, "send default")
    assert told(send)["error.type"] == "BadInput"
    assert send.status.status_code is StatusCode.ERROR


async def test_nobody_who_traces_nothing_stores_anything(app: Outlast) -> None:
    @app.task
    async def noop() -> None: ...

    async with app:
        handle = await noop.enqueue()
        assert (await handle.refresh()).meta == b"{}"


def test_nothing_is_imported_for_those_who_do_not_trace() -> None:
    code = (
        "import sys, outlast, outlast.worker\n"
        "from outlast import tracing\n"
        "assert tracing.tracer() is None\n"
        "print([m for m in sys.modules if m.startswith('opentelemetry')])"
    )
    done = subprocess.run(  # noqa: S603  # ourselves
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
