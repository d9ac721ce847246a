"""Undoing, whatever comes in between: cancels, deaths, redrives, deletions, other programs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from outlast import Conflict, Context, Outlast, Permanent, TaskCancelled, TaskDead, ops, saga
from outlast.core.model import Cancel, Forget, Redrive, Task, TaskQuery
from outlast.handle import Handle
from outlast.testing import testing
from outlast.worker import Worker
from outlast.workflow import Workflow

ran: list[str] = []
broken: set[str] = set()


@pytest.fixture
def app() -> Outlast:
    ran.clear()
    broken.clear()
    app = Outlast("memory://")

    async def do(name: str) -> str:
        ran.append(name)
        if name in broken:
            raise Permanent(f"{name} is broken")
        return name

    @app.task
    async def hush(name: str) -> None:
        await do(f"hush {name}")

    @app.task
    async def say(name: str) -> str:
        return await do(name)

    @app.task
    async def say_later(ctx: Context, name: str) -> str:
        ran.append(name)
        await ctx.wait_for("go")
        return name

    @app.task
    async def join(parts: list[Any]) -> str:
        return "+".join(map(str, parts))

    @app.task
    async def order(ctx: Context, names: list[str], wait: bool = False) -> str:
        for name in names:
            await ctx.step(name, do, name, undo=hush)
        if wait:
            await ctx.wait_for("go")
        return "all"

    return app


@pytest.fixture
async def t(app: Outlast) -> AsyncIterator[testing]:
    async with testing(app) as t:
        yield t


async def status(app: Outlast, flow: Workflow) -> str:
    return (await saga.view(app, flow.id)).status


async def one(app: Outlast, **equal: object) -> Task:
    [task] = (await app.engine.tasks(TaskQuery.of(**equal))).items
    return task


def message(task: Task) -> str:
    return str(json.loads(task.error or b"{}").get("message"))


async def bulk(t: testing, action: str, **equal: object) -> int:
    return await ops.bulk(t.app, action, TaskQuery.of(**equal))


# the steps of one task ---------------------------------------------------------------------------


async def test_a_task_whose_steps_were_undone_is_not_taken_up_again(
    app: Outlast, t: testing
) -> None:
    broken.add("b")
    handle = await app.handlers["order"].enqueue(["a", "b"])
    await t.run()
    undone = ["a", "b", "hush b", "hush a"]
    assert ran == undone
    broken.clear()
    with pytest.raises(Conflict, match="its steps were undone"):
        await handle.retry()
    with pytest.raises(Conflict, match="its steps were undone"):
        await ops.retry(app, handle.id)
    assert await bulk(t, "retry", status="dead") == 0
    await app.engine.alter([handle.id], Redrive())  # past all of them
    await t.run()
    assert ran == undone
    assert json.loads((await t.task(handle)).error or b"{}")["code"] == "undone"


async def test_a_redrive_before_the_undoing_has_begun(app: Outlast, t: testing) -> None:
    """Whoever looks first wins; either the task goes on, or it is undone whole."""
    handle = await app.handlers["order"].enqueue(["a", "b"], wait=True)
    await t.run()
    await app.engine.alter([handle.id], Cancel())
    await app.engine.alter([handle.id], Redrive())
    await handle.signal("go")
    await t.run()
    task = await t.task(handle)
    if task.state == "completed":
        assert ran == ["a", "b"]
    else:
        assert ran == ["a", "b", "hush b", "hush a"]


@pytest.mark.parametrize("way", ["one", "bulk"])
async def test_however_it_is_cancelled_its_steps_are_undone(
    app: Outlast, t: testing, way: str
) -> None:
    handle = await app.handlers["order"].options(session_id="s").enqueue(["a", "b"], wait=True)
    await t.run()
    if way == "one":
        await ops.cancel(app, handle.id)
    else:  # which meets the held undos, and the task that decides about them, as well
        assert await bulk(t, "cancel", status="blocked") == 1
    await t.run()
    assert ran == ["a", "b", "hush b", "hush a"]


async def test_undoing_is_neither_cancelled_nor_deleted(app: Outlast, t: testing) -> None:
    handle = await app.handlers["order"].enqueue(["a"], wait=True)
    await t.run()
    decider = await one(app, type="outlast.undo")
    with pytest.raises(Conflict, match="which is not cancelled"):
        await ops.cancel(app, decider.id)
    with pytest.raises(Conflict, match="it undoes"):
        await ops.forget(app, decider.id)
    with pytest.raises(Conflict, match="are to be undone"):
        await ops.forget(app, handle.id)
    assert await bulk(t, "delete", status=("blocked", "ready")) == 0
    await app.engine.alter([handle.id], Forget())  # past all of them
    await t.run()
    assert "was deleted before it was known how it ended" in message(await one(app, id=decider.id))


async def test_undoing_goes_on_from_where_it_failed_and_twice(app: Outlast, t: testing) -> None:
    broken.update({"c", "hush b", "hush a"})
    handle = await app.handlers["order"].enqueue(["a", "b", "c"])
    await t.run()
    decider = await one(app, type="outlast.undo")
    assert ran == ["a", "b", "c", "hush c", "hush b"]
    assert "Mend what it needs" in message(decider)
    broken.discard("hush b")
    await ops.retry(app, decider.id)
    await t.run()
    assert ran[5:] == ["hush b", "hush a"]
    broken.clear()
    await ops.retry(app, decider.id)
    await t.run()
    assert ran[7:] == ["hush a"]
    assert (await one(app, id=decider.id)).state == "completed"
    assert (await t.task(handle)).state == "dead"


async def test_an_undo_outlasts_the_age_limit_of_its_type(app: Outlast, t: testing) -> None:
    @app.task(max_age="1h")
    async def quick(name: str) -> None:
        ran.append(f"quick {name}")

    async def do(name: str) -> None: ...

    @app.task
    async def slow(ctx: Context) -> None:
        await ctx.step("a", do, "a", undo=quick.options(unique_key="one"))
        await ctx.wait_for("go")

    handles = [await slow.enqueue() for _ in range(2)]
    await t.run()
    await t.advance("30d")
    for handle in handles:
        await handle.cancel()
    await t.run()
    assert ran == ["quick a", "quick a"]


# workflows ---------------------------------------------------------------------------------------


def shop(app: Outlast, *names: str, type: str = "say") -> Workflow:
    """A chain of tasks that can all be undone."""
    flow = app.workflow("shop")
    before: list[Any] = []
    for name in names:
        before = [flow.add(app.handlers[type], name, after=before, undo=app.handlers["hush"])]
    return flow


async def test_a_skipped_task_is_not_undone(app: Outlast, t: testing) -> None:
    say, hush = app.handlers["say"], app.handlers["hush"]
    broken.add("c")
    async with app.workflow("skips") as flow:
        a = flow.add(say, "a", undo=hush)
        b = flow.add(say, "b", when=a.out == "no", undo=hush)
        flow.add(say, "c", after=[a, b], needs="any")
    await t.run()
    assert await status(app, flow) == "undone"
    assert ran == ["a", "c", "hush a"]


@pytest.mark.parametrize("way", ["handle", "ops", "bulk"])
async def test_however_a_workflow_is_cancelled_it_is_undone(
    app: Outlast, t: testing, way: str
) -> None:
    flow = shop(app, "a", "b", type="say_later")
    await flow.enqueue()
    await t.run()
    if way == "handle":
        assert await flow.handle.cancel()
    elif way == "ops":
        await ops.cancel(app, flow.id)
    else:
        assert await bulk(t, "cancel", workflow_id=flow.id) >= 1
    await t.run()
    assert await status(app, flow) == "undone"
    assert ran == ["a", "hush a"]


async def test_nothing_begun_is_cancelled_and_comes_back_in_order(app: Outlast, t: testing) -> None:
    """One of them bears failures: retried, it waits for those before it all the same."""
    say, join, hush = (app.handlers[name] for name in ("say", "join", "hush"))
    async with app.workflow("held") as flow:
        a = flow.add(say.options(hold="go"), "a", undo=hush)
        b = flow.add(say, "b", after=a)
        flow.add(join, [a.out, b.out], needs="any")
    await t.run()
    assert await saga.cancel(app, flow.id, "no money") == 3
    await t.run()
    assert await status(app, flow) == "cancelled"
    with pytest.raises(TaskCancelled, match="no money"):
        await flow.handle.result(timeout=0)
    await flow.handle.retry()
    await t.run()
    assert ran == []  # it was held, and nobody has said go
    assert (await one(app, id=a.id)).parked == "signal:go"
    await Handle[str](app, a.id).signal("go")
    await t.run()
    assert await flow.handle.result(timeout=0) == "a+b"


async def test_a_cancel_in_the_middle_of_undoing_changes_nothing(app: Outlast, t: testing) -> None:
    broken.update({"c", "hush b"})
    flow = shop(app, "a", "b", "c")
    await flow.enqueue()
    await t.run()
    assert await status(app, flow) == "undo_failed"
    broken.discard("hush b")
    await saga.retry(app, flow.id)
    assert await status(app, flow) == "undoing"
    assert not await flow.handle.cancel()
    with pytest.raises(Conflict, match="undoing is not cancelled"):
        await ops.cancel(app, flow.id)
    assert await bulk(t, "cancel", workflow_id=flow.id) == 0
    await t.run()
    assert await status(app, flow) == "undone"
    assert ran[3:] == ["hush c", "hush b", "hush b", "hush a"]


async def test_undoing_a_workflow_may_fail_twice(app: Outlast, t: testing) -> None:
    broken.update({"c", "hush b", "hush a"})
    flow = shop(app, "a", "b", "c")
    await flow.enqueue()
    await t.run()
    for mended in ("hush b", "hush a"):
        assert await status(app, flow) == "undo_failed"
        broken.discard(mended)
        await flow.handle.retry()
        await t.run()
    assert await status(app, flow) == "undone"
    assert ran[3:] == ["hush c", "hush b", "hush b", "hush a", "hush a"]


async def test_an_undone_workflow_stays_undone(app: Outlast, t: testing) -> None:
    broken.add("b")
    flow = shop(app, "a", "b")
    await flow.enqueue()
    await t.run()
    broken.clear()
    done = list(ran)
    node = await one(app, workflow_id=flow.id, status="dead", type="say")
    for task_id in (flow.id, node.id):
        with pytest.raises(Conflict, match="undone"):
            await ops.retry(app, task_id)
    assert await bulk(t, "retry", status=("dead", "cancelled")) == 0
    await t.run()
    assert ran == done
    await app.engine.alter([node.id, flow.id], Redrive())  # past all of them
    await t.run()
    assert await status(app, flow) == "undone"
    assert ran == [*done, "b"]


# stopping and taking up again, as it comes -------------------------------------------------------


@pytest.mark.parametrize("whole", [True, False])
async def test_a_bulk_brings_back_what_fell_behind_what_it_fell_with(
    app: Outlast, t: testing, whole: bool
) -> None:
    """It meets the newest first, which would run without what they come after."""
    say, join = app.handlers["say"], app.handlers["join"]
    broken.add("a")
    if whole:
        async with app.workflow("nodes") as flow:
            flow.add(join, [flow.add(say, "a").out])
    else:
        a = await say.enqueue("a")
        await say.options(after=[a]).enqueue("b")
    await t.run()
    fallen = await one(app, status="cancelled")
    with pytest.raises(Conflict, match=r"it comes after say .* which is dead; retry that one"):
        await ops.retry(app, fallen.id)
    broken.clear()
    assert await bulk(t, "retry", type=("say", "join")) == 1
    assert await t.status(fallen) == "blocked"
    await t.run()
    assert ran == (["a", "a"] if whole else ["a", "a", "b"])
    assert (await t.task(fallen)).result == (b'"a"' if whole else b'"b"')


async def test_an_undo_that_was_not_needed_is_not_retried(app: Outlast, t: testing) -> None:
    """It would be held for ever, since nobody decides about it any more."""
    await app.handlers["order"].enqueue(["a"])
    await t.run()
    held = await one(app, type="hush")
    assert (held.status, held.reason) == ("cancelled", saga.NOT_NEEDED)
    with pytest.raises(Conflict, match="was not to be undone"):
        await ops.retry(app, held.id)
    assert await bulk(t, "retry") == 0
    assert await t.status(held) == "cancelled"


def meanwhile(t: testing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers run between what is read next and what is then changed."""
    alter = t.app.engine.alter

    async def late(*args: Any) -> Any:
        monkeypatch.setattr(t.app.engine, "alter", alter)
        await t.run()
        return await alter(*args)

    monkeypatch.setattr(t.app.engine, "alter", late)


@pytest.mark.parametrize("way", ["one", "bulk", "workflow"])
async def test_a_cancel_finds_what_was_called_meanwhile(
    app: Outlast, t: testing, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    @app.task
    async def calls(ctx: Context) -> str:
        return await ctx.call(app.handlers["say"].options(delay="1h"), "child")

    if way == "workflow":
        async with app.workflow("calls") as flow:
            flow.add(calls)
        handle: Handle[Any] = flow.handle
    else:
        handle = await calls.enqueue()
    meanwhile(t, monkeypatch)
    if way == "bulk":
        assert await bulk(t, "cancel", type="calls") == 1
    else:
        assert await handle.cancel()
    await t.run()
    assert (await one(app, type="say")).status == "cancelled"
    await handle.retry()
    await t.run()
    await t.advance("2h")
    await t.run()
    assert await handle.result(timeout=0) == "child"


async def test_what_is_stopped_is_not_let_go_first(app: Outlast, t: testing) -> None:
    """By a child that is cancelled, or one before it whose failure it bears: a worker may be as
    quick as the cancel, and then it goes on, or remembers that what it called was cancelled."""

    @app.task
    async def calls(ctx: Context) -> str:
        return await ctx.call(app.handlers["say_later"], "child")

    async with app.workflow("calls") as flow:
        caller = flow.add(calls)
        lenient = flow.add(app.handlers["join"], [caller.out], needs="any")
    await t.run()
    seen = {node: len(await t.events(node)) for node in (caller, lenient)}
    await saga.cancel(app, flow.id)
    for node, n in seen.items():
        assert [event.kind for event in (await t.events(node))[n:]] == ["done"]
    await saga.retry(app, flow.id)
    await Handle[str](app, (await one(app, type="say_later")).id).signal("go")
    await t.run()
    assert await flow.handle.result(timeout=0) == "child"


async def test_what_is_too_old_is_undone(app: Outlast, t: testing) -> None:
    """The age is for what waits to be done, not for whoever has to undo it."""
    say, hush = app.handlers["say"], app.handlers["hush"]
    async with app.workflow("old", max_age="1m", max_losses=1) as flow:
        a = flow.add(say, "a", undo=hush)
        flow.add(say.options(hold="go"), "b", after=a)
    await t.run()
    await t.advance("2m")
    await t.run()
    assert ran == ["a", "hush a"]
    assert await status(app, flow) == "undone"


async def test_a_cancel_as_quick_as_what_it_is_to_stop(
    app: Outlast, t: testing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has completed by then, and nothing but the other, which was to fall with it, tells that
    the workflow was stopped."""
    say, hush = app.handlers["say"], app.handlers["hush"]
    async with app.workflow("quick") as flow:
        a = flow.add(say, "a", undo=hush)
        flow.add(say.options(delay="1h"), "b", after=a)
    meanwhile(t, monkeypatch)
    await saga.cancel(app, flow.id)
    await t.run()
    assert ran == ["a", "hush a"]
    assert await status(app, flow) == "undone"


async def test_what_a_quick_cancel_has_stopped_goes_on(
    app: Outlast, t: testing, monkeypatch: pytest.MonkeyPatch
) -> None:
    say = app.handlers["say"]
    async with app.workflow("quick") as flow:
        flow.add(say.options(delay="1h"), "b", after=flow.add(say, "a"))
    meanwhile(t, monkeypatch)
    await saga.cancel(app, flow.id)
    assert await status(app, flow) == "cancelled"
    await saga.retry(app, flow.id)
    await t.run()
    await t.advance("2h")
    await t.run()
    assert ran == ["a", "b"]
    assert await flow.handle.result(timeout=0) == "b"


async def test_a_step_with_an_undo_does_not_make_a_workflow_undoing(
    app: Outlast, t: testing
) -> None:
    async with app.workflow("steps") as flow:
        flow.add(app.handlers["order"], ["a"], wait=True)
    await t.run()
    assert await status(app, flow) == "running"
    assert await saga.cancel(app, flow.id)
    await t.run()
    assert ran == ["a", "hush a"]
    assert await status(app, flow) == "cancelled"


async def test_a_map_goes_on_with_what_failed(app: Outlast, t: testing) -> None:
    broken.add("b")
    async with app.workflow("maps") as flow:
        flow.map(app.handlers["say"], ["a", "b", "c"])
    await t.run()
    with pytest.raises(TaskDead, match="1 of 3 did not complete"):
        await flow.handle.result(timeout=0)
    broken.clear()
    await saga.retry(app, flow.id)
    await t.run()
    assert await flow.handle.result(timeout=0) == ["a", "b", "c"]
    assert ran.count("a") == 1


async def test_a_map_over_nothing_and_over_many(app: Outlast, t: testing) -> None:
    async with app.workflow("maps") as flow:
        flow.map(app.handlers["say"], [], name="none")
        flow.map(app.handlers["say"], [str(n) for n in range(1_100)], name="many")
    await t.run()
    assert await flow.handle.result(timeout=0) == {
        "none": [], "many": [str(n) for n in range(1_100)],
    }  # fmt: skip


async def test_a_worker_without_the_undo_leaves_it_to_others() -> None:
    """Every worker serves Outlast's own queue, also those of other programs."""
    ran.clear()
    here = Outlast("memory://both")

    @here.task
    async def hush(name: str) -> None:
        ran.append(f"hush {name}")

    @here.task
    async def waits(ctx: Context, name: str) -> None:
        await ctx.wait_for("never")

    async with here, Outlast("memory://both") as other:

        async def work(app: Outlast) -> None:
            await Worker(app, queues={"default": None}).drain()

        async with here.workflow("two programs") as flow:
            node = flow.add(waits, "a", undo=hush)
        await work(here)
        await ops.cancel(here, node.id)
        await work(other)
        assert await status(here, flow) == "running"
        here.engine.skew_ms = other.engine.skew_ms = 120_000
        await work(here)
        assert await status(here, flow) == "undone"
        assert ran == ["hush a"]


async def test_a_workflow_can_be_read_while_its_end_moves_on(app: Outlast, t: testing) -> None:
    """Its tasks are counted apart from its end, whatever that is by then."""
    async with app.workflow("moves") as flow:
        flow.add(app.handlers["say"], "a")
    before = await saga.view(app, flow.id)
    await t.run()
    fetched, app.engine.tasks = app.engine.tasks, _stale(app, before.end)  # type: ignore[method-assign]
    try:
        view = await saga.view(app, flow.id)
    finally:
        app.engine.tasks = fetched  # type: ignore[method-assign]
    assert view.counts == {"completed": 1}


def _stale(app: Outlast, end: Task) -> Any:
    """Reads the end as it was before."""
    read = app.engine.tasks

    async def tasks(query: TaskQuery) -> Any:
        page = await read(query)
        items = tuple(end if task.id == end.id else task for task in page.items)
        return type(page)(items, page.next)

    return tasks


# data --------------------------------------------------------------------------------------------


async def test_an_argument_that_is_not_there_is_an_error(app: Outlast, t: testing) -> None:
    say, join = app.handlers["say"], app.handlers["join"]
    async with app.workflow("typo") as flow:
        a = flow.add(say, "a")
        flow.add(join, [a.out["titel"]], name="typo")
    await t.run()
    with pytest.raises(TaskDead, match=r"has no \['titel'\]"):
        await flow.handle.result(timeout=0)


async def test_a_condition_on_what_is_not_there_does_not_hold(app: Outlast, t: testing) -> None:
    say = app.handlers["say"]
    broken.add("dead")
    async with app.workflow("conditions") as flow:
        a, dead = flow.add(say, "a"), flow.add(say, "dead")
        flow.add(say, "b", when=a.out["size"] > 3, name="missing")
        flow.add(say, "c", when=dead.out, needs="any", name="absent")
        flow.add(say, "d", when=dead.out == None, needs="any", name="none")  # noqa: E711
    await t.run()
    assert await flow.handle.result(timeout=0) == {"missing": None, "absent": None, "none": "d"}


async def test_all_upstreams_dead_and_anyway(app: Outlast, t: testing) -> None:
    say, join = app.handlers["say"], app.handlers["join"]
    broken.update({"a", "b"})
    async with app.workflow("lenient") as flow:
        parts = [flow.add(say, name) for name in "ab"]
        flow.add(join, [part.out for part in parts], needs="any")
    await t.run()
    assert await flow.handle.result(timeout=0) == "None+None"


async def test_a_result_that_was_deleted_is_an_error_that_says_so(app: Outlast, t: testing) -> None:
    say, join = app.handlers["say"], app.handlers["join"]
    async with app.workflow("pruned") as flow:
        a = flow.add(say, "a")
        flow.add(join.options(hold="go"), [a.out], name="late")
    await t.run()
    await app.engine.alter([a.id], Forget())
    await Handle[str](app, (await one(app, type="join")).id).signal("go")
    await t.run()
    with pytest.raises(TaskDead, match="was deleted before it ran"):
        await flow.handle.result(timeout=0)


async def test_an_end_whose_last_task_was_deleted(app: Outlast, t: testing) -> None:
    async with app.workflow("pruned") as flow:
        a = flow.add(app.handlers["say"].options(delay="1h"), "a")
    await app.engine.alter([a.id], Forget())
    await t.run()
    with pytest.raises(TaskDead, match="were deleted before their results were read"):
        await flow.handle.result(timeout=0)


async def test_what_only_looks_like_a_reference_stays(app: Outlast, t: testing) -> None:
    """Else whoever hands over a payload could read the results of others."""
    say, join = app.handlers["say"], app.handlers["join"]
    secret = await say.enqueue("secret")
    await t.run()
    told = {"$out": secret.id, "path": []}
    async with app.workflow("looks") as flow:
        a = flow.add(say, "a")
        flow.add(join, [a.out, told])
        b = flow.add(say, "b", when=a.out == "a")
        flow.add(join, [b.out, told], name="other")
    await t.run()
    found = await flow.handle.result(timeout=0)
    assert found == {"join": f"a+{told}", "other": f"b+{told}"}
