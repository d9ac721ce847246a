"""Workflows taken up again, on every engine: where an undo inside of them failed, where a map was
stopped, from a node, and with the rules that look after them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from outlast import Conflict, Context, Escalation, Outlast, Permanent, Spawn, flows, ops, saga
from outlast.core.model import Task, TaskQuery
from outlast.handle import Handle
from outlast.worker import Worker
from outlast.workflow import Workflow
from tests.conformance.servers import chosen, cleared, url_for

ran: list[str] = []
broken: set[str] = set()


async def do(name: str) -> str:
    ran.append(name)
    if name in broken:
        raise Permanent(f"{name} is broken")
    return name


@pytest.fixture(params=chosen())
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Outlast]:
    ran.clear()
    broken.clear()
    app = Outlast(url_for(request.param, tmp_path))

    @app.task
    async def say(name: str) -> str:
        return await do(name)

    @app.task
    async def hush(name: str) -> None:
        await do(f"hush {name}")

    @app.task
    async def say_later(ctx: Context, name: str) -> str:
        ran.append(name)
        await ctx.wait_for("go")
        return name

    @app.task
    async def join(parts: list[Any]) -> str:
        return "+".join(map(str, parts))

    @app.task
    async def order(ctx: Context, names: list[str], wait: bool = False) -> None:
        for name in names:
            await ctx.step(name, do, name, undo=hush)
        if wait:
            await ctx.wait_for("go")

    async with app:
        yield app
    cleared(request.param)


async def run(app: Outlast, hours: int = 0) -> None:
    app.engine.skew_ms += hours * 3_600_000
    await Worker(app).drain()


async def status(app: Outlast, flow: Workflow) -> str:
    return (await saga.view(app, flow.id)).status


async def tasks(app: Outlast, **equal: object) -> tuple[Task, ...]:
    return (await app.engine.tasks(TaskQuery.of(**equal))).items


async def test_a_part_that_could_not_be_undone(app: Outlast) -> None:
    """The whole is not undone before the part is: it goes on from there, also in two strides."""
    say, hush = app.handlers["say"], app.handlers["hush"]
    for stride in ("whole", "part"):
        ran.clear()
        broken.update({"c", "hush b"})
        flow = app.workflow("whole")
        first = flow.add(say, "a", undo=hush)
        part = flow.nest("part", after=first)
        part.add(say, "c", after=part.add(say, "b", undo=hush))
        await flow.enqueue()
        await run(app)
        assert ran == ["a", "b", "c", "hush b"]
        assert await status(app, part) == "undo_failed"
        assert await status(app, flow) == "undo_failed"
        broken.clear()
        if stride == "part":
            await saga.retry(app, part.id)
            await run(app)
            assert await status(app, part) == "undone"
        await saga.retry(app, flow.id)
        await run(app)
        assert ran[4:] == ["hush b", "hush a"]
        assert await status(app, flow) == "undone"


@pytest.mark.parametrize("how", ["dies", "cancelled"])
async def test_a_step_that_could_not_be_undone(app: Outlast, how: str) -> None:
    say, hush, order = (app.handlers[name] for name in ("say", "hush", "order"))
    for undo in (None, hush):
        ran.clear()
        broken.update({"hush b", "c"} if how == "dies" else {"hush c"})
        flow = app.workflow("steps")
        flow.add(order, ["a", "b", "c"], wait=True, after=flow.add(say, "z", undo=undo))
        await flow.enqueue()
        await run(app)
        if how == "cancelled":
            assert await saga.cancel(app, flow.id)
            await run(app)
        assert await status(app, flow) == "undo_failed"
        assert "hush z" not in ran
        broken.clear()
        await saga.retry(app, flow.id)
        await run(app)
        ends = {"dies": "dead", "cancelled": "cancelled"}
        assert await status(app, flow) == ("undone" if undo else ends[how])
        hushed = list(dict.fromkeys(name for name in ran if name.startswith("hush")))
        assert hushed == ["hush c", "hush b", "hush a", *(["hush z"] if undo else [])]


async def test_an_undo_that_failed_where_the_failure_is_borne(app: Outlast) -> None:
    broken.update({"b", "hush b"})
    flow = app.workflow("borne")
    lost = flow.add(app.handlers["order"], ["a", "b"])
    flow.add(app.handlers["join"], [lost.out], needs="any")
    await flow.enqueue()
    await run(app)
    assert await flow.handle.result(timeout=0) == "None"
    [decider] = await tasks(app, type="outlast.undo")
    assert decider.state == "dead"


async def test_a_map_that_was_stopped_in_its_middle(app: Outlast) -> None:
    flow = app.workflow("map")
    each = flow.map(app.handlers["say_later"], list("abcd"))
    flow.add(app.handlers["join"], each.out)
    await flow.enqueue()
    await run(app)
    [one, *_] = await tasks(app, type="say_later")
    await Handle[str](app, one.id).signal("go")
    await run(app)
    await saga.cancel(app, flow.id)
    await run(app)
    assert await status(app, flow) == "cancelled"
    assert not await tasks(app, status=saga.LIVING)
    await saga.retry(app, flow.id)
    await run(app)
    for task in await tasks(app, type="say_later", status="blocked"):
        await Handle[str](app, task.id).signal("go")
    await run(app)
    assert await flow.handle.result(timeout=0) == "a+b+c+d"


async def test_from_a_node_among_skipped_and_dead_ones(app: Outlast) -> None:
    say, join = app.handlers["say"], app.handlers["join"]
    broken.add("dead")
    flow = app.workflow("conditions")
    a = flow.add(say, "a")
    skipped = flow.add(say, "b", when=a.out == "no")
    behind = flow.add(say, "c", when=skipped.out == "b", name="behind")
    dead = flow.add(say, "dead", name="dead")
    borne = flow.add(say, "d", when=skipped.out == "b", needs="any", name="borne")
    other = flow.add(say, "e", when=behind.out != "c", needs="any", name="other")
    nodes = [a, skipped, behind, dead, borne, other]
    flow.add(join, [node.out for node in nodes], needs="any")
    await flow.enqueue()
    await run(app)
    told = "a+None+None+None+None+e"
    assert await flow.handle.result(timeout=0) == told
    for start, expected in (("behind", told), ("dead", told.replace("None+None+e", "dead+None+e"))):
        broken.clear()
        again = await flows.retry(app, flow.id, start)
        await run(app)
        assert await app.handle(again).result(timeout=0) == expected


async def test_rules_are_kept_when_it_is_run_again_from_a_node(app: Outlast) -> None:
    flow = app.workflow("rules", escalate=[Escalation(dead=1, spawn=Spawn("say", {"name": "!"}))])
    first = flow.add(app.handlers["say"], "a")
    flow.add(app.handlers["say"].options(hold="go"), "b", after=first, name="held")
    await flow.enqueue()
    await run(app)
    [held] = await tasks(app, type="say", parked="signal:go")
    await Handle[str](app, held.id).signal("go")
    await run(app, 1)
    assert await status(app, flow) == "completed"
    broken.add("b")
    again = await flows.retry(app, flow.id, "held")
    await run(app)
    [held] = await tasks(app, workflow_id=again, type="say")
    assert held.parked == "signal:go"  # as it was, it waits for somebody
    await Handle[str](app, held.id).signal("go")
    await run(app)
    await run(app, 1)
    assert ran == ["a", "b", "b", "!"]


async def test_rules_are_kept_when_it_goes_on(app: Outlast) -> None:
    """Those that have fired do not fire again, and the age counts anew."""
    rules = [
        Escalation(dead=1, spawn=Spawn("say", {"name": "dead!"})),
        Escalation(age="2h", spawn=Spawn("say", {"name": "late!"})),
    ]
    flow = app.workflow("rules", escalate=rules)
    flow.add(app.handlers["say_later"], "b", after=flow.add(app.handlers["say"], "a"))
    broken.add("a")
    await flow.enqueue()
    for _ in range(3):
        await run(app, 1)
    assert ran == ["a", "dead!"]
    broken.clear()
    await saga.retry(app, flow.id)
    await run(app)
    assert ran == ["a", "dead!", "a", "b"]
    for _ in range(3):
        await run(app, 1)
    assert ran == ["a", "dead!", "a", "b", "late!"]


async def test_many_at_once_are_taken_up_no_other_way(app: Outlast) -> None:
    broken.add("b")
    flow = app.workflow("undone")
    first = flow.add(app.handlers["say"], "a", undo=app.handlers["hush"])
    flow.add(app.handlers["say"], "b", after=first)
    await flow.enqueue()
    await run(app)
    assert await status(app, flow) == "undone"
    broken.clear()
    for equal in ({"workflow_id": flow.id}, {"type": "outlast.workflow"}, {"status": "dead"}):
        assert await ops.bulk(app, "retry", TaskQuery.of(**equal)) == 0
    with pytest.raises(Conflict, match="undone"):
        await flows.retry(app, flow.id, "say")
    await run(app)
    assert await status(app, flow) == "undone"
    assert ran == ["a", "b", "hush a"]
