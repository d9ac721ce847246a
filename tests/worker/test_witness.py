"""What a worker counts and logs of its attempts: what was recorded, once, and nothing secret."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest

from outlast import Again, Context, Permanent, Transient
from outlast.app import Outlast
from outlast.core.ids import new_fence
from outlast.core.model import Lease, NewTask, Outcome, Turn
from outlast.core.totals import Totals, labels_of, name_of, size
from outlast.meter import MAX_SERIES, Meter
from outlast.tasklog import JsonLines
from outlast.worker import Worker
from outlast.worker.witness import Witness

from .conftest import until, working


async def counts(app: Outlast) -> dict[str, int]:
    """The fleet's counts, of a test that has one type in one queue."""
    told = {}
    for name, n in (await app.publisher.fleet(app.engine)).counts.items():
        metric, labels = labels_of(name)
        told[" ".join((metric, *labels[2:]))] = n
    return told


async def spreads(app: Outlast) -> dict[str, int]:
    found: Totals = await app.publisher.fleet(app.engine)
    return {labels_of(name)[0]: size(spread) for name, spread in found.spreads.items()}


async def test_tasks_and_attempts_are_counted(app: Outlast) -> None:
    @app.task(retry="1ms")
    async def flaky(ctx: Context) -> None:
        if ctx.attempt < 3:
            raise Transient("not yet")

    async with app, working(Worker(app)):
        handle = await flaky.options(session_id="s").enqueue()
        await handle.result(timeout=30)
        await until(lambda: "ended completed" in counted(app))
        assert await counts(app) == {
            "enqueued": 1,
            "attempts failed": 2,
            "retried": 2,
            "attempts succeeded": 1,
            "ended completed": 1,
            "notices_due": 1,
        }
        assert await spreads(app) == {"wait": 3, "run": 3}


async def test_every_outcome_has_its_count(app: Outlast) -> None:
    started = asyncio.Event()

    @app.task
    async def doomed() -> None:
        raise Permanent("no")

    @app.task(timeout="20ms", max_attempts=1)
    async def slow() -> None:
        await asyncio.sleep(60)

    @app.task
    async def patient(ctx: Context) -> Again | None:
        return Again(after="1ms") if ctx.number == 1 else None

    @app.task
    async def endless() -> None:
        started.set()
        await asyncio.sleep(60)

    async with app, working(Worker(app)):
        handles = [await t.enqueue() for t in (doomed, slow, patient, endless)]
        await asyncio.wait_for(started.wait(), 60)
        await handles[3].cancel()
        wanted = {
            "attempts failed", "attempts timed_out", "ended dead", "attempts waiting",
            "attempts succeeded", "ended completed", "attempts cancelled", "ended cancelled",
        }  # fmt: skip
        await until(lambda: wanted <= counted(app))


def counted(app: Outlast) -> set[str]:
    """What there is a count of, by what it is of; types and queues left out."""
    names = map(labels_of, app.meter.totals().counts)
    return {" ".join((metric, *labels[2:])) for metric, labels in names}


async def test_an_attempt_that_was_lost_is_not_counted(app: Outlast) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    @app.task
    async def held() -> None:
        begun.set()
        await gate.wait()

    async with app, working(Worker(app)) as worker:
        await held.enqueue()
        await asyncio.wait_for(begun.wait(), 60)
        begun.clear()
        # Its lease is taken away: another turn says that the worker has left.
        await app.engine.exchange(Turn(token=new_fence(), worker=worker.id, leaving=True))
        await asyncio.wait_for(begun.wait(), 60)  # the second attempt
        gate.set()
        await until(lambda: "ended completed" in counted(app))
        assert await counts(app) == {"enqueued": 1, "attempts succeeded": 1, "ended completed": 1}


def test_an_end_that_is_refused_is_counted_as_that_alone() -> None:
    meter = Meter()
    witness = Witness(meter)
    for task_id in ("kept", "stale"):
        witness.ended(lease(task_id), now=1_000, run_s=0.1)
    ends = [Outcome(id=task_id, fence=7, state="completed") for task_id in ("kept", "stale")]
    witness.stored(ends, [("stale", 7)])
    told = meter.totals()
    assert told.counts["refused"] == 1
    assert told.counts[name_of("attempts", "t", "q", "succeeded")] == 1
    assert size(told.spreads[name_of("run", "t", "q")]) == 1
    witness.stored(ends, [])  # it was told already
    assert meter.totals() == told


def test_children_are_counted_as_enqueued() -> None:
    meter = Meter()
    child = NewTask(id="c", type="child", queue="q")
    Witness(meter).stored([Outcome(id="p", fence=7, spawn=(child, child))], [])
    assert meter.totals().counts == {name_of("enqueued", "child", "q"): 2}


def test_no_more_series_than_can_be_borne() -> None:
    meter = Meter()
    for n in range(MAX_SERIES + 50):
        meter.tally("t", f"queue-of-user-{n}").enqueued += 1
    counts = meter.totals().counts
    assert len(counts) == MAX_SERIES + 1
    assert counts[name_of("enqueued", "t", "other")] == 50


def lease(task_id: str) -> Lease:
    return Lease(
        id=task_id,
        fence=7,
        type="t",
        queue="q",
        lane="primary",
        payload=b"{}",
        attempt=1,
        number=1,
        max_attempts=4,
        losses=0,
        priority=2,
        timeout_ms=None,
        run_at=0,
        created_at=0,
    )


# Logs --------------------------------------------------------------------------------------------


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "outlast.tasks"):
        yield caplog


def told(lines: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    """The lines of the tasks' log, as JSON tells them."""
    return [json.loads(JsonLines().format(r)) for r in lines.records if r.name == "outlast.tasks"]


async def test_the_life_of_a_task_is_in_the_log(
    app: Outlast, lines: pytest.LogCaptureFixture
) -> None:
    @app.task(retry="1ms", max_attempts=2)
    async def flaky(card: str) -> None:
        raise Transient(f"no funds on {card}")

    worker = Worker(app, queues={"money": None})
    async with app, working(worker):
        handle = await flaky.options(session_id="s", queue="money").enqueue("4111-canary")
        here = worker.id.rpartition(".")[0]
        await until(lambda: bool(told(lines)) and told(lines)[-1]["event"] == "failed")
    life = told(lines)
    assert [line["event"] for line in life] == [
        "created", "processing", "retrying", "processing", "failed",
    ]  # fmt: skip
    assert [line["level"] for line in life] == ["info", "info", "warning", "info", "error"]
    for line in life:
        assert line["task_id"] == handle.id
        assert (line["type"], line["queue"], line["session_id"]) == ("flaky", "money", "s")
        assert "canary" not in json.dumps(line)
    assert [line.get("attempt") for line in life] == [None, 1, 1, 2, 2]
    assert life[-1]["error_code"] == life[2]["error_code"]
    assert isinstance(life[-1]["duration_ms"], int)
    assert life[1]["worker"] == here
    assert life[0]["message"] == f"Task created: task_id={handle.id}, type=flaky, session=s"


async def test_a_task_that_was_there_is_not_created_again(
    app: Outlast, lines: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def once() -> None: ...

    async with app:
        for _ in range(2):
            await once.options(unique_key="k").enqueue()
        assert (await counts(app)) == {"enqueued": 1}
    assert [line["event"] for line in told(lines)] == ["created"]


def test_json_lines_carry_what_came_with_them() -> None:
    record = logging.getLogger("x").makeRecord(
        "x", logging.WARNING, "f", 1, "%s is %d", ("a", 1), None, extra={"odd": {1, 2}, "n": 3}
    )
    line = json.loads(JsonLines().format(record))
    assert (line["message"], line["level"], line["logger"], line["n"]) == (
        "a is 1",
        "warning",
        "x",
        3,
    )
    assert line["timestamp"].endswith("+00:00")


def test_json_lines_carry_the_traceback() -> None:
    try:
        raise ValueError("here")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.getLogger("x").makeRecord("x", 40, "f", 1, "oh", (), info)
    formatted = JsonLines().format(record)
    assert "\n" not in formatted
    assert "ValueError: here" in json.loads(formatted)["exception"]
