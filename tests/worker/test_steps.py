"""Durable steps: run once, remembered over attempts; waits that hold no worker."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from outlast import (
    Conflict,
    Context,
    Outlast,
    Permanent,
    SignalTimeout,
    SyncContext,
    TaskDead,
    Transient,
    approvals,
)
from outlast.core.model import Task, TaskQuery
from outlast.handle import Handle
from outlast.testing import testing

ran: Counter[str] = Counter()
"""How often the effects happened."""


@pytest.fixture
def app() -> Outlast:
    ran.clear()
    return Outlast("memory://")


@pytest.fixture
async def t(app: Outlast) -> AsyncIterator[testing]:
    async with testing(app) as t:
        yield t


async def effect(name: str) -> str:
    ran[name] += 1
    return name.upper()


def error_of(task: Task) -> dict[str, Any]:
    assert task.error is not None
    told: dict[str, Any] = json.loads(task.error)
    return told


async def again(t: testing, span: str = "10m") -> None:
    await t.advance(span)
    await t.run()


# steps -------------------------------------------------------------------------------------------


async def test_a_finished_step_is_not_run_again(app: Outlast, t: testing) -> None:
    @app.task
    async def order(ctx: Context) -> list[str]:
        first = await ctx.step("first", effect, "a")
        second = await ctx.step("second", effect, "b")
        if ctx.attempt == 1:
            raise Transient("not yet")
        return [first, second, await ctx.step("third", effect, "c")]

    handle = await order.enqueue()
    await t.run()
    assert await t.status(handle) == "retrying"
    await again(t)
    assert await handle.result(timeout=0) == ["A", "B", "C"]
    assert ran == {"a": 1, "b": 1, "c": 1}


async def test_a_failed_step_is_run_again(app: Outlast, t: testing) -> None:
    @app.task
    async def order(ctx: Context) -> str:
        async def shaky() -> str:
            ran["shaky"] += 1
            if ran["shaky"] < 3:
                raise Transient("no")
            return "done"

        return await ctx.step("shaky", shaky)

    handle = await order.enqueue()
    for _ in range(3):
        await again(t)
    assert await handle.result(timeout=0) == "done"
    assert ran["shaky"] == 3


@dataclass
class Page:
    url: str
    words: tuple[int, ...]


async def test_a_result_has_its_type_at_once_and_later(app: Outlast, t: testing) -> None:
    seen: list[object] = []

    async def fetch(url: str) -> Page:
        return Page(url, (1, 2))

    @app.task
    async def order(ctx: Context) -> None:
        seen.append(await ctx.step("page", fetch, "x"))
        seen.append(await ctx.step("plain", lambda: (1, 2)))
        if ctx.attempt == 1:
            raise Transient("again")

    await order.enqueue()
    await t.run()
    await again(t)
    page = Page("x", (1, 2))
    assert seen == [page, [1, 2], page, [1, 2]]


async def test_steps_side_by_side_may_come_in_any_order(app: Outlast, t: testing) -> None:
    @app.task
    async def order(ctx: Context) -> list[str]:
        async def slow() -> str:
            await asyncio.sleep(0.01)
            if ctx.attempt == 1:
                raise Transient("the slow one fails")
            return await effect("slow")

        return list(
            await asyncio.gather(ctx.step("slow", slow), ctx.step("quick", effect, "quick"))
        )

    handle = await order.enqueue()
    await t.run()
    await again(t)
    assert await handle.result(timeout=0) == ["SLOW", "QUICK"]
    assert ran == {"slow": 1, "quick": 1}


async def test_a_plain_function_does_not_hold_the_loop(app: Outlast, t: testing) -> None:
    here = threading.get_ident()

    def blocking() -> bool:
        return threading.get_ident() == here

    @app.task
    async def order(ctx: Context) -> bool:
        return await ctx.step("blocking", blocking)

    handle = await order.enqueue()
    await t.run()
    assert await handle.result(timeout=0) is False


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("twice", "there twice"),
        ("name", "no name for a step"),
        ("large", "The result of the step 'page 7' has 2,000,002 bytes; the most is 1,048,576"),
        ("other", "The result of the step 'page 7' does not fit its annotation"),
    ],
)
async def test_what_cannot_be_is_refused(app: Outlast, t: testing, kind: str, words: str) -> None:
    @app.task
    async def order(ctx: Context) -> None:
        if kind == "twice":
            await ctx.step("a", effect, "a")
            await ctx.step("a", effect, "a")
        elif kind == "name":
            await ctx.step(":sleep:1", effect, "a")
        elif kind == "other":
            await ctx.step("page 7", misfit)
        else:
            await ctx.step("page 7", lambda: "x" * 2_000_000)

    def misfit() -> int:
        return "x"  # type: ignore[return-value]  # code is not always checked

    handle = await order.enqueue()
    await t.run()
    task = await handle.refresh()
    assert task.state == "dead"
    assert words in error_of(task)["message"]


# code that changes -------------------------------------------------------------------------------


async def test_changed_code_is_met_with_an_error(app: Outlast, t: testing) -> None:
    names = ["old", "last"]

    @app.task
    async def order(ctx: Context) -> None:
        for name in names:
            await ctx.step(name, effect, name)
        if ctx.number == 1:
            raise Transient("deploy now")

    handle = await order.enqueue()
    await t.run()
    names[:] = ["new", "last"]
    await again(t)
    task = await handle.refresh()
    assert (task.state, error_of(task)["code"]) == ("dead", "steps_changed")
    assert "began the step 'new'" in error_of(task)["message"]
    assert "'old'" in error_of(task)["message"]
    names[:] = ["old", "last", "new"]  # what comes behind the stored ones is no change
    await handle.retry()
    await t.run()
    assert (await handle.refresh()).state == "completed"
    assert ran == {"old": 1, "last": 1, "new": 1}


async def test_a_change_has_two_ways(app: Outlast, t: testing) -> None:
    deployed = False

    @app.task
    async def order(ctx: Context) -> str:
        if deployed and await ctx.changed("two models"):
            way = await ctx.step("new", effect, "new")
        else:
            way = await ctx.step("old", effect, "old")
        await ctx.step("last", effect, "last")
        if ctx.attempt == 1:
            raise Transient("again")
        return way

    before = await order.enqueue()
    await t.run()
    deployed = True
    after = await order.enqueue()
    await t.run()
    await again(t)
    assert await before.result(timeout=0) == "OLD"
    assert await after.result(timeout=0) == "NEW"


async def test_a_step_may_be_retired(app: Outlast, t: testing) -> None:
    @app.task
    async def order(ctx: Context) -> None:
        if ctx.attempt == 1:
            await ctx.step("old", effect, "old")
            raise Transient("again")
        ctx.retired("old")
        await ctx.step("new", effect, "new")

    handle = await order.enqueue()
    await t.run()
    await again(t)
    assert await t.status(handle) == "completed"


# waiting -----------------------------------------------------------------------------------------


async def test_a_sleep_holds_no_worker(app: Outlast, t: testing) -> None:
    @app.task(max_attempts=1)
    async def order(ctx: Context) -> int:
        await ctx.step("before", effect, "before")
        await ctx.sleep("1h")
        await ctx.sleep("1h")
        await ctx.step("after", effect, "after")
        return ctx.attempt

    handle = await order.enqueue()
    await t.run()
    task = await handle.refresh()
    assert (task.status, task.worker) == ("scheduled", None)
    await again(t, "59m")
    assert ran == {"before": 1}
    await again(t, "2m")
    assert await t.status(handle) == "scheduled"
    await again(t, "1h")
    assert await handle.result(timeout=0) == 1
    assert ran == {"before": 1, "after": 1}


async def test_signals_come_early_late_and_in_order(app: Outlast, t: testing) -> None:
    @app.task
    async def order(ctx: Context) -> list[object]:
        return [await ctx.wait_for("go"), await ctx.wait_for("go"), await ctx.wait_for("stop")]

    handle = await order.enqueue()
    await handle.signal("go", 1)
    await t.run()
    task = await handle.refresh()
    assert (task.status, task.parked) == ("blocked", "signal:go")
    await handle.signal("stop", 3)
    await t.run()
    assert await t.status(handle) == "blocked"
    await handle.signal("go", {"n": 2})
    await t.run()
    assert await handle.result(timeout=0) == [1, {"n": 2}, 3]


async def test_a_wait_ends_in_time_and_that_is_remembered(app: Outlast, t: testing) -> None:
    @app.task
    async def order(ctx: Context) -> list[object]:
        try:
            answer = await ctx.wait_for("answer", timeout="1h")
        except SignalTimeout:
            answer = "late"
        if ctx.attempt == 1:
            raise Transient("again")
        return [answer, await ctx.wait_for("answer", timeout="1h")]

    handle = await order.enqueue()
    await t.run()
    await again(t, "61m")  # it was too late, and then it failed
    await handle.signal("answer", "for the second wait")
    await again(t)
    assert await handle.result(timeout=0) == ["late", "for the second wait"]


# calls -------------------------------------------------------------------------------------------


async def children(t: testing, parent: Handle[Any]) -> list[Task]:
    page = await t.app.engine.tasks(TaskQuery.of(parent_id=parent.id))
    return list(page.items)


async def test_a_call_gives_the_result_of_a_child(app: Outlast, t: testing) -> None:
    @app.task
    async def double(n: int) -> int:
        ran["double"] += 1
        return 2 * n

    @app.task(max_attempts=2)
    async def order(ctx: Context) -> int:
        result = await ctx.call(double, 21)
        if ctx.attempt == 1:
            raise Transient("again")
        return result

    handle = await order.options(session_id="s-1", priority="high").enqueue()
    await t.run()
    await again(t)
    assert await handle.result(timeout=0) == 42
    assert ran["double"] == 1
    [child] = await children(t, handle)
    assert (child.session_id, child.priority) == ("s-1", 1)


async def test_a_call_of_one_that_dies(app: Outlast, t: testing) -> None:
    @app.task
    async def dies() -> int:
        raise Permanent("never")

    @app.task
    async def order(ctx: Context) -> str:
        try:
            await ctx.call(dies)
        except TaskDead as dead:
            return str(dead)
        return "?"

    handle = await order.enqueue()
    await t.run()
    assert "Permanent: never" in await handle.result(timeout=0)


async def test_many_calls_at_once(app: Outlast, t: testing) -> None:
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    @app.task(max_attempts=1)
    async def order(ctx: Context) -> list[int]:
        return list(await ctx.gather(*(ctx.call(double, n) for n in range(20))))

    handle = await order.enqueue()
    await t.run()
    assert await handle.result(timeout=0) == [2 * n for n in range(20)]
    assert len(await children(t, handle)) == 20
    assert (await handle.refresh()).number == 2  # all were spawned in the first attempt


async def test_branches_wait_on_different_things(app: Outlast, t: testing) -> None:
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    @app.task
    async def order(ctx: Context) -> list[object]:
        async def branch() -> str:
            await ctx.sleep("1h")
            return await ctx.step("slept", effect, "slept")

        return await ctx.gather(ctx.call(double, 1), branch(), ctx.wait_for("go"))

    handle = await order.enqueue()
    await t.run()
    await handle.signal("go", "went")
    await again(t, "61m")
    assert await handle.result(timeout=0) == [2, "SLEPT", "went"]


# plain functions ---------------------------------------------------------------------------------


async def test_a_plain_handler_has_steps_too(app: Outlast, t: testing) -> None:
    def count(name: str) -> str:
        ran[name] += 1
        return name.upper()

    @app.task
    def double(n: int) -> int:
        return 2 * n

    @app.task
    def order(ctx: SyncContext) -> list[object]:
        first = ctx.step("first", count, "a")
        ctx.sleep("1m")
        if ctx.attempt == 1:
            raise Transient("again")
        doubled = ctx.gather(lambda: ctx.call(double, 1), lambda: ctx.call(double, 2))
        return [first, ctx.wait_for("go"), *doubled, ctx.changed("x")]

    handle = await order.enqueue()
    await handle.signal("go", "went")
    await t.run()
    assert await t.status(handle) == "scheduled"
    await again(t, "2m")
    await again(t)
    assert await handle.result(timeout=0) == ["A", "went", 2, 4, True]
    assert ran == {"a": 1}


async def test_a_stale_attempt_stores_nothing(app: Outlast, t: testing) -> None:
    """The step of an attempt that has lost its lease is refused, and the attempt ends."""

    @app.task
    async def order(ctx: Context) -> str:
        if ctx.number == 1:
            [worker] = await app.engine.workers()
            await app.engine.sweep(gone=[worker.id])
            return await ctx.step("first", effect, "stale")
        return await ctx.step("first", effect, "fresh")

    handle = await order.enqueue()
    await t.run()
    await again(t)
    assert await handle.result(timeout=0) == "FRESH"


# undoing -----------------------------------------------------------------------------------------


def shop(app: Outlast, end: str) -> Any:
    """An order of three steps, of which the last does not come to an end."""

    @app.task
    async def refund(name: str) -> None:
        ran[f"refund {name}"] += 1
        happened.append(f"refund {name}")

    async def pay(name: str) -> str:
        ran[name] += 1
        if name == "c" and end == "fails":
            raise Permanent("no money left")
        return name

    @app.task
    async def order(ctx: Context) -> str:
        for name in "ab":
            await ctx.step(name, pay, name, undo=refund)
        if end == "waits":
            await ctx.wait_for("go")
        return await ctx.step("c", pay, "c", undo=refund)

    happened.clear()
    return order


happened: list[str] = []


async def test_steps_are_undone_in_reverse_when_the_task_dies(app: Outlast, t: testing) -> None:
    handle = await shop(app, "fails").enqueue()
    await t.run()
    assert await t.status(handle) == "dead"
    # The third had begun, so it counts: its undo must bear that it never happened.
    assert happened == ["refund c", "refund b", "refund a"]


async def test_steps_of_a_cancelled_task_are_undone(app: Outlast, t: testing) -> None:
    handle = await shop(app, "waits").enqueue()
    await t.run()
    assert happened == []
    await handle.cancel()
    await t.run()
    assert happened == ["refund b", "refund a"]


async def test_nothing_is_undone_when_all_is_well(app: Outlast, t: testing) -> None:
    handle = await shop(app, "completes").enqueue()
    await t.run()
    assert await handle.result(timeout=0) == "c"
    assert happened == []
    assert {(task.state, task.reason) for task in await children(t, handle)} == {
        ("cancelled", "not needed"), ("completed", None),
    }  # fmt: skip


# asking people -----------------------------------------------------------------------------------


async def test_a_person_is_asked_and_answers(app: Outlast, t: testing) -> None:
    @app.task
    async def agent(ctx: Context) -> list[object]:
        first = await ctx.ask("Delete it?", action={"delete": "a.txt"}, timeout="1h")
        return [first, await ctx.ask("Sure?", timeout="1h", default=False)]

    handle = await agent.enqueue()
    await t.run()
    task = await handle.refresh()
    assert (task.status, task.parked) == ("blocked", "signal:answer:1")
    told = json.loads(task.progress or b"{}")
    assert told["message"] == "Delete it?"
    assert told["data"]["question"]["action"] == {"delete": "a.txt"}
    [event] = [event for event in await t.events(handle) if event.kind == "question"]
    assert event.data["signal"] == "answer:1"
    await handle.signal("answer:1", "yes")
    await t.run()
    await again(t, "61m")
    assert await handle.result(timeout=0) == ["yes", False]


async def test_an_answer_that_comes_too_late_is_refused(app: Outlast, t: testing) -> None:
    """Also when no worker was there to see the deadline pass: it would be taken for given."""

    @app.task
    async def agent(ctx: Context) -> list[object]:
        return [await ctx.ask(f"{n}?", timeout="1h", default="no") for n in range(2)]

    handle = await agent.enqueue()
    await t.run()
    app.engine.skew_ms += 3_660_000  # and nobody sweeps
    with pytest.raises(Conflict, match="the deadline was"):
        await approvals.respond(app, handle.id, b'"yes"')
    await t.run()
    await approvals.respond(app, handle.id, b'"yes"')
    with pytest.raises(Conflict, match="asks nothing now"):
        await approvals.respond(app, handle.id, b'"twice"')
    await t.run()
    assert await handle.result(timeout=0) == ["no", "yes"]
