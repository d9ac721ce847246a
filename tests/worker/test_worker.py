"""The worker's turns: what it runs, how it hands it back, and how it stops."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import os
import threading
import time

import pytest

from outlast.app import Outlast
from outlast.context import Again, Context
from outlast.core.errors import BadInput, EngineDown, LeaseLost, Permanent, Transient
from outlast.core.ids import new_id
from outlast.core.model import Cancel, EventQuery, NewTask, TaskQuery, Turn
from outlast.core.retry import Retry
from outlast.handle import Handle
from outlast.worker import Worker

from .conftest import until, working

DEEP = bool(os.environ.get("OUTLAST_TEST_DEEP"))
"""Judge by the clock, too: on a machine that does nothing else."""


async def record(app: Outlast, handle: Handle[object]):  # type: ignore[no-untyped-def]
    [task] = (await app.engine.tasks(TaskQuery.of(id=handle.id))).items
    return task


async def verdicts(app: Outlast, handle: Handle[object]) -> list[str]:
    return [a["outcome"] for a in json.loads((await record(app, handle)).attempts)]


async def events(app: Outlast, handle: Handle[object], kind: str) -> list[dict[str, object]]:
    page = await app.engine.events(EventQuery(task_id=handle.id, limit=1000))
    return [json.loads(event.data) for event in page.items if event.kind == kind]


# running -----------------------------------------------------------------------------------------


async def test_async_and_plain_functions_run_to_their_results(app: Outlast) -> None:
    here = threading.get_ident()

    @app.task
    async def double(n: int) -> int:
        return n * 2

    @app.task
    def elsewhere(word: str) -> list[object]:
        return [word, threading.get_ident() != here]

    async with app:
        doubled = [await double.enqueue(n) for n in range(5)]
        told = await elsewhere.enqueue("hi")
        await Worker(app).drain()
        assert [await h.result(timeout=30) for h in doubled] == [0, 2, 4, 6, 8]
        assert await told.result(timeout=30) == ["hi", True]


async def test_a_thousand_at_once_in_one_worker(app: Outlast) -> None:
    inside, most = 0, 0
    everyone = asyncio.Event()

    @app.task
    async def meet() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if inside == 1000:
            everyone.set()
        await everyone.wait()
        inside -= 1

    async with app:
        await app.enqueue([meet.call() for _ in range(1000)])
        await asyncio.wait_for(Worker(app, concurrency=1000).drain(), 60)
    assert most == 1000


async def test_concurrency_and_the_ceiling_of_a_queue_are_kept(app: Outlast) -> None:
    inside: dict[str, int] = {"narrow": 0, "wide": 0}
    most: dict[str, int] = {"narrow": 0, "wide": 0, "all": 0}

    async def count(where: str) -> None:
        inside[where] += 1
        most[where] = max(most[where], inside[where])
        most["all"] = max(most["all"], sum(inside.values()))
        await asyncio.sleep(0.005)
        inside[where] -= 1

    @app.task(queue="narrow")
    async def narrow() -> None:
        await count("narrow")

    @app.task(queue="wide")
    async def wide() -> None:
        await count("wide")

    async with app:
        await app.enqueue([narrow.call() for _ in range(30)])
        await app.enqueue([wide.call() for _ in range(30)])
        worker = Worker(app, queues={"narrow": 2, "wide": None}, concurrency=6)
        await worker.drain()
        done = await app.engine.count(TaskQuery.of(status="completed"))
        assert done[0].n == 60
    assert most == {"narrow": 2, "wide": most["wide"], "all": 6}
    assert most["wide"] > 2


async def test_threads_are_bounded_and_claimed_only_as_far_as_they_reach(app: Outlast) -> None:
    inside = most = 0
    lock, three = threading.Lock(), threading.Barrier(3)

    @app.task
    def count() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        three.wait(30)
        with lock:
            inside -= 1

    async with app:
        await app.enqueue([count.call() for _ in range(21)])
        worker = Worker(app, threads=3)
        held = []
        async with working(worker):
            while not (await app.engine.count(TaskQuery.of(status="completed"))):
                held += [w.running for w in await app.engine.workers()]
            await until(lambda: _all_done(app, 21))
    assert most == 3
    assert max(held, default=0) <= 3


async def _all_done(app: Outlast, n: int) -> bool:
    counts = await app.engine.count(TaskQuery.of(status="completed"))
    return bool(counts) and counts[0].n == n


async def test_the_context_tells_who_and_carries_progress_and_chunks(app: Outlast) -> None:
    @app.task
    async def story(ctx: Context, words: int) -> list[object]:
        await ctx.progress(50, "half", words=words)
        for n in range(words):
            await ctx.emit(f"word {n}")
        await ctx.emit({"n": 3})
        key = ctx.idempotency_key
        return [ctx.task_id, ctx.type, ctx.attempt, ctx.session_id, ctx.user_id, key, ctx.cancelled]

    @app.task
    def threaded(ctx: Context) -> None:
        ctx.progress(10)
        for n in range(600):  # more than may wait at once
            ctx.emit(n)

    @app.task
    async def floods(ctx: Context) -> None:
        for n in range(600):
            await ctx.emit(n)

    async with app:
        told = await story.options(session_id="s", user_id="u").enqueue(3)
        streams = [await threaded.enqueue(), await floods.enqueue()]
        await Worker(app).drain()
        result = await told.result(timeout=30)
        assert result[:5] == [told.id, "story", 1, "s", "u"]
        assert str(told.id) in str(result[5])
        assert result[6] is False
        progress = json.loads((await record(app, told)).progress)
        assert (progress["percent"], progress["message"]) == (50, "half")
        assert progress["data"] == {"words": 3}
        assert progress["elapsed_ms"] >= 0
        chunks = [event["chunk"] for event in await events(app, told, "chunk")]
        assert chunks == ["word 0", "word 1", "word 2", {"n": 3}]
        for stream in streams:
            chunks = [event["chunk"] for event in await events(app, stream, "chunk")]
            assert chunks == list(range(600))


async def test_the_last_progress_is_logged_though_the_end_follows_at_once(app: Outlast) -> None:
    @app.task
    async def ends(ctx: Context) -> None:
        await ctx.progress(1)
        await ctx.progress(100)

    async with app:
        handle = await ends.enqueue()
        await Worker(app).drain()
        [event] = await events(app, handle, "progress")
        assert event["progress"]["percent"] == 100  # type: ignore[index]


async def test_a_wrong_percentage_is_refused(app: Outlast) -> None:
    @app.task(max_attempts=1)
    async def wrong(ctx: Context) -> None:
        await ctx.progress(101)

    async with app:
        handle = await wrong.enqueue()
        await Worker(app).drain()
        assert (await record(app, handle)).status == "dead"


async def test_context_variables_of_one_handler_are_not_seen_by_the_next(app: Outlast) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")

    @app.task
    async def enter(name: str) -> str:
        seen = tenant.get()
        tenant.set(name)
        return seen

    async with app:
        handles = await app.enqueue([enter.call(f"t{n}") for n in range(4)])
        await Worker(app).drain()
        assert [await h.result(timeout=30) for h in handles] == ["nobody"] * 4


async def test_an_unknown_type_is_given_back_at_no_cost(app: Outlast) -> None:
    async with app:
        await app.engine.enqueue([NewTask(id=(task_id := new_id()), type="nobody-knows")])
        await Worker(app).drain()
        [task] = (await app.engine.tasks(TaskQuery.of(id=task_id))).items
        assert (task.status, task.attempt) == ("scheduled", 0)


async def test_work_that_work_makes_is_drained_too(app: Outlast) -> None:
    done: list[int] = []

    @app.task
    async def countdown(n: int) -> None:
        done.append(n)
        if n:
            await countdown.enqueue(n - 1)

    async with app:
        await countdown.enqueue(5)
        await Worker(app).drain()
    assert done == [5, 4, 3, 2, 1, 0]


# failing -----------------------------------------------------------------------------------------


async def test_failures_are_retried_until_the_budget_is_spent(app: Outlast) -> None:
    calls: list[int] = []

    @app.task(max_attempts=3, retry=Retry("1s", jitter=0))
    async def fails(ctx: Context) -> None:
        calls.append(ctx.attempt)
        raise ValueError("no luck")

    async with app:
        handle = await fails.enqueue()
        for _ in range(3):
            await Worker(app).drain()
            app.engine.skew_ms += 1_001
        task = await record(app, handle)
        assert (task.status, task.reason) == ("dead", "attempts")
        assert json.loads(task.error)["message"] == "no luck"
        assert calls == [1, 2, 3]
        assert await verdicts(app, handle) == ["failed"] * 3


@pytest.mark.parametrize("error", [Permanent("no"), BadInput("no")])
async def test_permanent_errors_kill_at_once(app: Outlast, error: Exception) -> None:
    @app.task
    async def fails() -> None:
        raise error

    async with app:
        handle = await fails.enqueue()
        await Worker(app).drain()
        task = await record(app, handle)
        assert (task.status, task.reason, task.attempt) == ("dead", "permanent", 1)


@pytest.mark.parametrize("what", ["too large", "no JSON"])
async def test_a_result_that_cannot_be_kept_kills_with_a_clear_error(
    app: Outlast, what: str
) -> None:
    @app.task
    async def gives() -> object:
        return "x" * 2_000_000 if what == "too large" else object()

    async with app:
        handle = await gives.enqueue()
        await Worker(app).drain()
        task = await record(app, handle)
        assert task.status == "dead"
        assert ("1,048,576" if what == "too large" else "no JSON form") in task.error.decode()


async def test_exiting_or_cancelling_itself_is_a_failure_and_no_end_of_the_worker(
    app: Outlast,
) -> None:
    @app.task(max_attempts=1)
    async def exits() -> None:
        raise SystemExit(3)

    @app.task(max_attempts=1)
    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    @app.task(max_attempts=1)
    async def interrupts() -> None:
        raise KeyboardInterrupt

    @app.task(max_attempts=1)
    async def closes() -> None:
        raise GeneratorExit

    @app.task(max_attempts=1)
    def exits_in_thread() -> None:
        raise SystemExit(3)

    @app.task
    async def fine() -> int:
        return 1

    async with app:
        tasks = (exits, cancels_itself, interrupts, closes, exits_in_thread)
        bad = [await task.enqueue() for task in tasks]
        good = await fine.enqueue()
        await Worker(app).drain()
        assert await good.result(timeout=30) == 1
        for handle in bad:
            assert await verdicts(app, handle) == ["failed"]


async def test_what_was_claimed_ahead_is_given_back_when_no_seat_comes_free(app: Outlast) -> None:
    """A stream of short tasks is claimed beyond the seats; long ones behind them are for others."""
    gate = asyncio.Event()
    running: list[int] = []

    @app.task
    async def short() -> None: ...

    @app.task
    async def long(n: int) -> None:
        running.append(n)
        await gate.wait()

    async with app:
        await app.enqueue([short.call() for _ in range(2_000)])
        longs = await app.enqueue([long.call(n) for n in range(2_000)])
        async with working(Worker(app, concurrency=100)):
            await until(lambda: len(running) == 100)

            async def only_the_running_are_leased() -> bool:
                counts = await app.engine.count(TaskQuery.of(type="long"), ["status"])
                return {c.by[0]: c.n for c in counts} == {"running": 100, "ready": 1_900}

            await until(only_the_running_are_leased)
            assert len(running) == 100
            gate.set()
            await until(lambda: len(running) == 2_000)
        for handle in longs[::97]:
            task = await record(app, handle)
            assert task.attempt == 1
            assert task.number <= 3, "what was given back was claimed ahead again and again"


async def test_again_parks_on_time_and_costs_no_attempt(app: Outlast) -> None:
    @app.task(max_attempts=1)
    async def poll(ctx: Context) -> int | Again:
        return ctx.number if ctx.number == 3 else Again(after="30s")

    async with app:
        handle = await poll.enqueue()
        await Worker(app).drain()
        task = await record(app, handle)
        assert (task.status, task.lane, task.attempt) == ("scheduled", "primary", 0)
        for _ in range(2):
            app.engine.skew_ms += 30_001
            await Worker(app).drain()
        assert await handle.result(timeout=30) == 3
        assert await verdicts(app, handle) == ["waiting", "waiting", "succeeded"]


async def test_a_429_pauses_the_limit_for_everyone_and_costs_no_attempt(app: Outlast) -> None:
    calls = 0

    @app.task(max_attempts=1, limits=["service"])
    async def ask() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Transient("slow down", status=429, after="30s")

    async with app:
        first = await ask.enqueue()
        await Worker(app, concurrency=1).drain()
        second = await ask.enqueue()
        await Worker(app).drain()
        assert calls == 1
        statuses = [(await record(app, h)).status for h in (first, second)]
        assert statuses == ["throttled", "throttled"]
        app.engine.skew_ms += 40_000
        await Worker(app).drain()
        assert [(await record(app, h)).status for h in (first, second)] == ["completed"] * 2


# timeouts ----------------------------------------------------------------------------------------


async def test_an_attempt_that_takes_too_long_is_stopped(app: Outlast) -> None:
    stopped = asyncio.Event()

    @app.task(timeout="100ms", retry=Retry("1s", jitter=0, timeout_factor=2))
    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with app:
        handle = await hangs.enqueue()
        await asyncio.wait_for(Worker(app).drain(), 60)
        task = await record(app, handle)
        assert stopped.is_set()
        assert (task.status, task.timeout_ms) == ("retrying", 200)
        assert await verdicts(app, handle) == ["timed_out"]


async def test_code_that_ignores_its_timeout_is_recorded_without_it(
    app: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.worker.runner.PATIENCE_S", 0.1)
    go_on = threading.Event()

    @app.task(timeout="100ms", max_attempts=1)
    def stubborn() -> str:
        go_on.wait(10)
        return "too late"

    async with app:
        async with working(Worker(app)):
            handle = await stubborn.enqueue()
            await until(lambda: _status_is(app, handle, "dead"))
            go_on.set()
        task = await record(app, handle)
        assert (task.status, task.reason, task.result) == ("dead", "timeout", None)


async def _status_is(app: Outlast, handle: Handle[object], status: str) -> bool:
    return (await record(app, handle)).status == status


# cancelling --------------------------------------------------------------------------------------


async def test_cancelling_reaches_a_running_attempt_within_a_second(app: Outlast) -> None:
    begun, felt = asyncio.Event(), asyncio.Event()

    @app.task
    async def waits() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            felt.set()
            raise

    async with app, working(Worker(app)):
        handle = await waits.enqueue()
        await begun.wait()
        since = time.monotonic()
        await app.engine.alter([handle.id], Cancel("changed my mind"))
        await asyncio.wait_for(felt.wait(), 60)
        assert not DEEP or time.monotonic() - since < 1.5
        await until(lambda: _status_is(app, handle, "cancelled"))
        assert (await record(app, handle)).reason == "changed my mind"


async def test_a_handler_that_swallows_the_cancellation_is_cancelled_anyway(app: Outlast) -> None:
    begun = asyncio.Event()

    @app.task
    async def swallows() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "I did it"
        return "never"

    async with app, working(Worker(app)):
        handle = await swallows.enqueue()
        await begun.wait()
        await app.engine.alter([handle.id], Cancel())
        await until(lambda: _status_is(app, handle, "cancelled"))
        assert (await record(app, handle)).result is None


async def test_a_handler_in_a_thread_sees_the_flag(app: Outlast) -> None:
    begun = threading.Event()

    @app.task
    def looks(ctx: Context) -> None:
        begun.set()
        while not ctx.cancelled:
            time.sleep(0.005)

    async with app, working(Worker(app)):
        handle = await looks.enqueue()
        await until(begun.is_set)
        await app.engine.alter([handle.id], Cancel())
        await until(lambda: _status_is(app, handle, "cancelled"))


# leases ------------------------------------------------------------------------------------------


async def test_an_evicted_worker_stops_its_attempts_and_goes_on_as_another(app: Outlast) -> None:
    begun: list[int] = []
    stopped = asyncio.Event()

    @app.task
    async def runs(ctx: Context) -> str:
        begun.append(ctx.number)
        if ctx.number == 1:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
        return "second"

    worker = Worker(app)
    async with app, working(worker):
        first_id = worker.id
        handle = await runs.enqueue()
        await until(lambda: begun == [1])
        await app.engine.sweep(gone=[first_id])
        await asyncio.wait_for(stopped.wait(), 60)
        assert await handle.result(timeout=30) == "second"
        assert worker.id != first_id
        assert await verdicts(app, handle) == ["stalled", "succeeded"]


async def test_the_outcome_of_a_lost_attempt_changes_nothing(app: Outlast) -> None:
    begun, go_on = threading.Event(), threading.Event()
    ended: list[BaseException] = []

    @app.task
    def runs(ctx: Context) -> str:
        if ctx.number == 2:
            return "second"
        begun.set()
        go_on.wait(10)
        try:
            ctx.emit("from the grave")
        except LeaseLost as lost:
            ended.append(lost)
        return "stale"

    worker = Worker(app)
    async with app:
        async with working(worker):
            handle = await runs.enqueue()
            await until(begun.is_set)
            await app.engine.sweep(gone=[worker.id])
            assert await handle.result(timeout=30) == "second"
            go_on.set()
            await until(lambda: bool(ended))
        assert await handle.result(timeout=30) == "second"
        assert await events(app, handle, "chunk") == []
        assert await verdicts(app, handle) == ["stalled", "succeeded"]


async def test_a_lost_reply_neither_loses_leases_nor_repeats_outcomes(
    app: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third exchange is committed and its answer thrown away."""
    ran: list[int] = []

    @app.task
    async def once(n: int) -> int:
        ran.append(n)
        return n

    async with app:
        exchange, calls = app.engine.exchange, 0

        async def unsteady(turn: Turn):  # type: ignore[no-untyped-def]
            nonlocal calls
            calls += 1
            deal = await exchange(turn)
            if calls % 3 == 0:
                raise ConnectionError("the reply was lost")
            return deal

        monkeypatch.setattr(app.engine, "exchange", unsteady)
        handles = await app.enqueue([once.call(n) for n in range(40)])
        await Worker(app, concurrency=5).drain()
        assert sorted(ran) == list(range(40))
        assert [await h.result(timeout=30) for h in handles] == list(range(40))


async def test_an_outcome_that_the_engine_cannot_store_does_not_hold_up_the_others(
    app: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    async def gives(n: int) -> int:
        return n

    async with app:
        exchange = app.engine.exchange

        async def picky(turn: Turn):  # type: ignore[no-untyped-def]
            if any(outcome.result == b"7" for outcome in turn.outcomes):
                raise RuntimeError("seven is not storable")
            return await exchange(turn)

        monkeypatch.setattr(app.engine, "exchange", picky)
        handles = await app.enqueue([gives.call(n) for n in range(20)])
        await Worker(app).drain()
        statuses = [(await record(app, handle)).status for handle in handles]
        assert statuses == ["completed"] * 7 + ["dead"] + ["completed"] * 12
        task = await record(app, handles[7])
        assert task.reason == "unrecordable"
        assert "seven is not storable" in task.error.decode()


async def test_a_link_that_comes_and_goes_is_not_blamed_on_an_outcome(
    app: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times a turn with an outcome is cut off, and whatever else is asked gets through."""

    @app.task
    async def gives(n: int) -> int:
        return n

    async with app:
        exchange, cut = app.engine.exchange, 0

        async def unsteady(turn: Turn):  # type: ignore[no-untyped-def]
            nonlocal cut
            if turn.outcomes and cut < 3:
                cut += 1
                raise EngineDown("the connection broke")
            return await exchange(turn)

        monkeypatch.setattr(app.engine, "exchange", unsteady)
        handle = await gives.enqueue(1)
        await Worker(app).drain()
        assert cut == 3
        assert await handle.result(timeout=30) == 1


async def test_without_an_answer_for_most_of_the_lease_attempts_are_halted(
    app: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    @app.task
    async def runs(ctx: Context) -> int:
        begun.set()
        if ctx.number > 1:
            return ctx.number
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return 0

    async with app:
        exchange = app.engine.exchange
        away = False

        async def partitioned(turn: Turn):  # type: ignore[no-untyped-def]
            if away:
                raise ConnectionError("no route to the engine")
            return await exchange(turn)

        monkeypatch.setattr(app.engine, "exchange", partitioned)
        # As under a supervisor: the pulse's own engine would still get through.
        worker = Worker(app, lease_ms=2_000, beat_ms=600, identify=lambda _id: None)
        async with working(worker):
            handle = await runs.enqueue()
            await begun.wait()
            since = time.monotonic()
            away = True
            try:
                await asyncio.wait_for(stopped.wait(), 60)
            finally:
                away = False
            assert time.monotonic() - since > 1.0, "not at the first trouble"
            assert await handle.result(timeout=30) == 2


# stopping ----------------------------------------------------------------------------------------


async def test_stop_lets_attempts_end_and_claims_nothing_more(app: Outlast) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def waits() -> str:
        begun.set()
        await go_on.wait()
        return "done"

    async with app:
        worker = Worker(app, concurrency=1)
        running = asyncio.create_task(worker.run())
        first = await waits.enqueue()
        await asyncio.wait_for(begun.wait(), 60)
        second = await waits.enqueue()
        worker.stop()
        go_on.set()
        await asyncio.wait_for(running, 60)
        assert await first.result(timeout=30) == "done"
        assert (await record(app, second)).status == "ready"
        assert await app.engine.workers() == []


@pytest.mark.parametrize("how", ["grace", "now", "cancelled"])
async def test_what_does_not_end_in_time_is_released_at_no_cost(app: Outlast, how: str) -> None:
    begun = asyncio.Event()

    @app.task
    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with app:
        worker = Worker(app, grace_ms=50 if how == "grace" else 60_000)
        running = asyncio.create_task(worker.run())
        handle = await waits.enqueue()
        await asyncio.wait_for(begun.wait(), 60)
        if how == "cancelled":
            running.cancel()
        elif how == "now":
            worker.stop_now()
        else:
            worker.stop()
        [ended] = await asyncio.wait_for(asyncio.gather(running, return_exceptions=True), 60)
        assert isinstance(ended, asyncio.CancelledError) == (how == "cancelled")
        task = await record(app, handle)
        assert (task.status, task.attempt, task.losses) == ("ready", 0, 0)
        assert await verdicts(app, handle) == ["released"]


# waking ------------------------------------------------------------------------------------------


async def test_an_idle_worker_starts_new_work_by_push(app: Outlast) -> None:
    started: dict[str, float] = {}

    @app.task
    async def stamp(ctx: Context) -> None:
        started[ctx.task_id] = time.monotonic()

    worker = Worker(app, lease_ms=600_000, beat_ms=300_000)
    worker._poll_s = 300.0  # by polling it would not
    async with app, working(worker):
        delays = []
        for _ in range(20):
            since = time.monotonic()
            handle = await stamp.enqueue()
            await until(lambda: handle.id in started)  # noqa: B023  # awaited within the round
            delays.append(started[handle.id] - since)
        assert not DEEP or sorted(delays)[10] < 0.1


async def test_a_due_task_starts_when_it_is_due(app: Outlast) -> None:
    started = asyncio.Event()

    @app.task
    async def stamp() -> None:
        started.set()

    worker = Worker(app, lease_ms=600_000, beat_ms=300_000)
    worker._poll_s = 300.0
    async with app, working(worker):
        since = time.monotonic()
        await stamp.options(delay="300ms").enqueue()
        await asyncio.wait_for(started.wait(), 60)
        took_s = time.monotonic() - since
        assert took_s >= 0.29
        assert not DEEP or took_s < 0.8


async def test_a_held_loop_is_reported_with_its_stack(
    app: Outlast, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def holds_the_loop() -> None:
        time.sleep(1.6)  # noqa: ASYNC251  # that is the point

    with caplog.at_level(logging.WARNING, "outlast.worker"):
        async with app, working(Worker(app)):
            handle = await holds_the_loop.enqueue()
            await handle.result(timeout=30)
    said = [r.getMessage() for r in caplog.records]
    held = [words for words in said if "event loop has been held" in words]
    # A machine that is held up itself may add one of its own.
    assert any("holds_the_loop" in words for words in held), held


async def test_how_an_attempt_failed_is_logged_as_plain_text(
    app: Outlast, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def hostile() -> None:
        raise type("\x1b[31mRed", (Permanent,), {})("\x1b[2Jgone")

    with caplog.at_level(logging.WARNING, "outlast.worker"):
        async with app, working(Worker(app)):
            await hostile.enqueue()
            await until(lambda: "failed in attempt 1" in caplog.text)
    assert r"\x1b[31mRed: \x1b[2Jgone" in caplog.text
    assert "\x1b" not in caplog.text


def test_a_beat_too_slow_for_its_lease_is_refused() -> None:
    with pytest.raises(BadInput, match="twice per lease"):
        Worker(Outlast("memory://"), lease_ms=1_000, beat_ms=900)
