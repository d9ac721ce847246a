"""Parts that run side by side keep apart over attempts; waits end once, in time or too late."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from outlast import Context, Outlast, SignalTimeout, SyncContext, TaskDead, Transient
from outlast.core.model import Forget, Task, TaskQuery
from outlast.testing import testing

ran: Counter[str] = Counter()


@pytest.fixture
def app() -> Outlast:
    ran.clear()
    return Outlast("memory://")


@pytest.fixture
async def t(app: Outlast) -> AsyncIterator[testing]:
    async with testing(app) as t:
        yield t


async def again(t: testing, span: str = "10m") -> None:
    await t.advance(span)
    await t.run()


async def effect(name: str) -> str:
    ran[name] += 1
    return name.upper()


async def error_of(t: testing, task: Task) -> dict[str, object]:
    told: dict[str, object] = json.loads(task.error or b"{}")
    return told


# branches ----------------------------------------------------------------------------------------


async def test_branches_keep_their_calls_whichever_is_faster(app: Outlast, t: testing) -> None:
    """The first branch has a step before its call: run, it comes second; replayed, first."""

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    @app.task
    async def order(ctx: Context) -> list[object]:
        async def slow() -> int:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return 1

        async def first() -> int:
            return await ctx.call(double, await ctx.step("slow", slow))

        async def second() -> int:
            return await ctx.call(double, 100)

        return await ctx.gather(first(), second())

    handle = await order.enqueue()
    await t.run()
    assert await handle.result(timeout=0) == [2, 200]


async def test_branches_keep_their_sleeps_and_signals(app: Outlast, t: testing) -> None:
    @app.task
    async def order(ctx: Context) -> list[object]:
        async def first() -> object:
            await ctx.step("before", effect, "before")
            await ctx.sleep("2h")
            got = await ctx.wait_for("go")
            return [await ctx.step("first", effect, "first"), got]

        async def second() -> object:
            await ctx.sleep("1h")
            got = await ctx.wait_for("go")
            return [await ctx.step("second", effect, "second"), got]

        return await ctx.gather(first(), second())

    handle = await order.enqueue()
    await t.run()
    await again(t, "61m")
    await handle.signal("go", 1)  # the second is the only one that waits for it now
    await t.run()
    assert ran == {"before": 1, "second": 1}
    await again(t, "61m")
    await handle.signal("go", 2)
    await t.run()
    assert await handle.result(timeout=0) == [["FIRST", 2], ["SECOND", 1]]


async def test_a_sleep_beside_a_signal_that_never_comes(app: Outlast, t: testing) -> None:
    @app.task
    async def order(ctx: Context) -> None:
        async def slept() -> str:
            await ctx.sleep("1h")
            return await ctx.step("slept", effect, "slept")

        await ctx.gather(ctx.wait_for("never"), slept())

    await order.enqueue()
    await t.run()
    await again(t, "61m")
    assert ran == {"slept": 1}


async def test_branches_within_branches_and_none_at_all(app: Outlast, t: testing) -> None:
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    @app.task
    async def order(ctx: Context) -> list[object]:
        async def inner(n: int) -> list[int]:
            return await ctx.gather(*(ctx.call(double, 10 * n + m) for m in range(n)))

        return [await ctx.gather(), *await ctx.gather(*(inner(n) for n in range(3)))]

    handle = await order.enqueue()
    await t.run()
    assert await handle.result(timeout=0) == [[], [], [20], [40, 42]]


async def test_a_plain_handler_has_the_same_branches(app: Outlast, t: testing) -> None:
    @app.task
    def double(n: int) -> int:
        return 2 * n

    @app.task
    def order(ctx: SyncContext) -> list[object]:
        def first() -> object:
            return [ctx.call(double, 1), ctx.wait_for("go")]

        def second() -> object:
            return [ctx.call(double, 2), ctx.wait_for("go"), ctx.ask("Well?")]

        return ctx.gather(first, second)

    handle = await order.enqueue()
    await t.run()
    await handle.signal("go", "a")
    await t.run()
    await handle.signal("go", "b")
    await t.run()
    await handle.signal("answer:1.1.1", "yes")
    await t.run()
    assert await handle.result(timeout=0) == [[2, "a"], [4, "b", "yes"]]


async def test_every_question_of_a_gather_is_asked(app: Outlast, t: testing) -> None:
    @app.task
    async def agent(ctx: Context) -> list[object]:
        return await ctx.gather(ctx.ask("One?"), ctx.ask("Two?", timeout="1h", default="no"))

    handle = await agent.enqueue()
    await t.run()
    asked = [event.data["signal"] for event in await t.events(handle) if event.kind == "question"]
    assert asked == ["answer:1.0.1", "answer:1.1.1"]

    async def shown() -> str:
        told = json.loads((await t.task(handle)).progress or b"{}")
        return str(told["data"]["question"]["question"])

    assert await shown() == "One?"
    await handle.signal("answer:1.0.1", "yes")
    await t.run()
    assert await shown() == "Two?"
    await again(t, "61m")
    assert await handle.result(timeout=0) == ["yes", "no"]


async def test_a_failing_branch_leaves_nobody_behind(app: Outlast, t: testing) -> None:
    @app.task
    async def dies() -> None:
        raise ValueError("no")

    @app.task
    async def fine() -> int:
        return 1

    @app.task(max_attempts=1)
    async def order(ctx: Context) -> None:
        await ctx.gather(ctx.call(dies.options(max_attempts=1)), ctx.call(fine))

    handle = await order.enqueue()
    await t.run()
    with pytest.raises(TaskDead):
        await handle.result(timeout=0)
    found = (await app.engine.tasks(TaskQuery.of(parent_id=handle.id))).items
    assert {task.state for task in found} == {"dead", "completed"}


# waits -------------------------------------------------------------------------------------------


async def test_a_wait_of_no_time_is_over_at_once(app: Outlast, t: testing) -> None:
    @app.task
    async def order(ctx: Context) -> str:
        try:
            return str(await ctx.wait_for("go", timeout=0))
        except SignalTimeout:
            return "late"

    handle = await order.enqueue()
    await t.run()
    await again(t, "1s")
    assert await handle.result(timeout=0) == "late"


async def test_a_signal_behind_the_deadline_is_for_the_next_wait(app: Outlast, t: testing) -> None:
    """Also when nobody was there to see the deadline pass before the signal came."""

    @app.task
    async def order(ctx: Context) -> list[object]:
        first = await ctx.ask("Delete?", timeout="1h", default="no")
        return [first, await ctx.wait_for("answer:1")]

    handle = await order.enqueue()
    await t.run()
    app.engine.skew_ms += 2 * 3_600_000
    await handle.signal("answer:1", "yes")
    await t.run()
    assert await handle.result(timeout=0) == ["no", "yes"]


async def test_what_a_wait_got_stays_what_it_got(app: Outlast, t: testing) -> None:
    """A redriven task has its inbox still; each signal is for the wait that had it."""

    @app.task(max_attempts=1)
    async def order(ctx: Context) -> list[object]:
        got = [await ctx.wait_for("go"), await ctx.wait_for("go", timeout="1h")]
        if ctx.number < 3:
            raise Transient("once more")
        return got

    handle = await order.enqueue()
    await handle.signal("go", 1)
    await handle.signal("go", 2)
    await t.run()
    for n in (3, 4):
        await handle.retry()
        await handle.signal("go", n)
        await t.run()
    assert await handle.result(timeout=0) == [1, 2]


# calls -------------------------------------------------------------------------------------------


async def test_a_result_as_large_as_may_be_comes_through_a_call(app: Outlast, t: testing) -> None:
    most = 1_048_576 - 2

    @app.task
    async def large() -> str:
        return "x" * most

    @app.task
    async def order(ctx: Context) -> int:
        return len(await ctx.call(large))

    handle = await order.enqueue()
    await t.run()
    assert await handle.result(timeout=0) == most


async def test_a_child_that_was_deleted_is_an_error_that_says_so(app: Outlast, t: testing) -> None:
    @app.task
    async def child() -> int:
        return 1

    @app.task
    async def order(ctx: Context) -> None:
        await ctx.call(child.options(delay="1h"))

    handle = await order.enqueue()
    await t.run()
    [task] = (await app.engine.tasks(TaskQuery.of(parent_id=handle.id))).items
    await app.engine.alter([task.id], Forget())
    await t.run()
    told = await error_of(t, await t.task(handle))
    assert "was deleted before its result was read" in str(told["message"])


async def test_a_call_is_of_a_task_of_its_own(app: Outlast, t: testing) -> None:
    @app.task
    async def child() -> int:
        return 1

    await child.options(delay="1h", unique_key="one").enqueue()

    @app.task
    async def order(ctx: Context) -> None:
        await ctx.call(child.options(unique_key="one"))

    handle = await order.enqueue()
    await t.run()
    assert "leave it out" in str((await error_of(t, await t.task(handle)))["message"])


async def test_what_a_cancelled_task_has_called_is_cancelled_with_it(
    app: Outlast, t: testing
) -> None:
    @app.task
    async def leaf() -> int:
        return 1

    @app.task
    async def middle(ctx: Context) -> int:
        return await ctx.call(leaf.options(delay="1h")) + 1

    @app.task
    async def top(ctx: Context) -> int:
        return await ctx.call(middle) + 1

    handle = await top.enqueue()
    await t.run()
    assert await handle.cancel()
    states = await app.engine.count(TaskQuery(), by=("type", "status"))
    assert {count.by for count in states} == {
        ("top", "cancelled"), ("middle", "cancelled"), ("leaf", "cancelled"),
    }  # fmt: skip
    await handle.retry()  # and comes back with it
    await again(t, "2h")
    assert await handle.result(timeout=0) == 3


# code that changes -------------------------------------------------------------------------------


async def test_the_loops_own_tasks_raise_no_false_alarm(app: Outlast, t: testing) -> None:
    """One branch has come to something new while the other has not asked for its stored step."""

    @app.task
    async def order(ctx: Context) -> None:
        async def late() -> None:
            for _ in range(10 * ctx.number):
                await asyncio.sleep(0)
            await ctx.step("stored", effect, "stored")

        async def early() -> None:
            if ctx.number == 1:
                for _ in range(30):
                    await asyncio.sleep(0)
                raise Transient("once more")
            await ctx.step("new", effect, "new")

        done = await asyncio.gather(late(), early(), return_exceptions=True)
        for error in filter(None, done):
            raise error

    handle = await order.enqueue()
    await t.run()
    await again(t)
    assert await t.status(handle) == "completed"
    assert ran == {"stored": 1, "new": 1}


async def test_a_step_may_lose_its_undo_or_be_retired_with_it(app: Outlast, t: testing) -> None:
    @app.task
    async def hush(name: str) -> None: ...

    @app.task
    async def order(ctx: Context) -> None:
        if ctx.attempt == 1:
            await ctx.step("kept", effect, "kept", undo=hush)
            await ctx.step("gone", effect, "gone", undo=hush)
            await ctx.changed("over")
            raise Transient("deploy now")
        await ctx.step("kept", effect, "kept")
        ctx.retired("gone", "over")
        await ctx.step("new", effect, "new")

    handle = await order.enqueue()
    await t.run()
    await again(t)
    assert await t.status(handle) == "completed"


async def test_the_old_way_is_remembered_too(app: Outlast, t: testing) -> None:
    deployed = False

    @app.task(max_attempts=9)
    async def order(ctx: Context) -> list[object]:
        if ctx.number > 2:
            await ctx.step("stored", effect, "stored")  # asked for only later
        way = "new" if deployed and await ctx.changed("x") else "old"
        if ctx.number <= 2:
            await ctx.step("stored", effect, "stored")
        if ctx.number < 4:
            raise Transient("again")
        return [way]

    handle = await order.enqueue()
    await t.run()
    deployed = True
    for _ in range(3):
        await again(t, "2h")
    assert await handle.result(timeout=0) == ["old"]
