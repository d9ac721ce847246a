"""Workflows in workflows: results flow on, conditions, failures, cancels and undoing go down."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlast import BadInput, Conflict, Outlast, Permanent, TaskDead, flows, saga
from outlast.core.model import TaskQuery
from outlast.testing import testing
from outlast.views import to_json
from outlast.workflow import Part, Workflow
from tests.conformance.servers import cleared, url_for

from .conftest import on_its_engine

ran: list[str] = []
broken: set[str] = set()


def make_app(url: str = "memory://") -> Outlast:
    ran.clear()
    broken.clear()
    app = Outlast(url)

    @app.task
    async def shout(text: str | None) -> str:
        ran.append(f"shout {text}")
        if text in broken:
            raise Permanent(f"{text} is broken")
        return f"{text}!"

    @app.task
    async def hush(text: str | None) -> None:
        ran.append(f"hush {text}")

    return app


@pytest.fixture
def app() -> Outlast:
    return make_app()


@pytest.fixture
async def t(app: Outlast) -> AsyncIterator[testing]:
    async with testing(app) as t:
        yield t


def shop(app: Outlast, *, when: str | None = None) -> tuple[Workflow, Part]:
    """a, then the part (b, c), then d."""
    shout, hush = app.handlers["shout"], app.handlers["hush"]
    flow = app.workflow("whole", session_id="s-1", priority="high")
    first = flow.add(shout, "a", name="first", undo=hush)
    part = flow.nest("part", after=first, when=None if when is None else first.out == when)
    inner = part.add(shout, first.out, undo=hush)
    part.add(shout, inner.out)
    flow.add(shout, part.out, name="last")
    return flow, part


async def test_the_result_of_a_part_flows_on(app: Outlast, t: testing) -> None:
    flow, part = shop(app)
    await flow.enqueue()
    await t.run()
    assert await flow.handle.result(timeout=0) == "a!!!!"
    assert ran == ["shout a", "shout a!", "shout a!!", "shout a!!!"]
    assert await part.handle.result(timeout=0) == "a!!!"
    tasks = (await app.engine.tasks(TaskQuery.of(workflow_id=part.id))).items
    assert {(task.session_id, task.priority) for task in tasks} == {("s-1", 1)}
    drawn = await flows.drawn(app, flow.id)
    assert {n["name"]: n["kind"] for n in drawn["nodes"]} == {  # type: ignore[attr-defined]
        "first": "node", "part": "workflow", "last": "node",
    }  # fmt: skip
    after = {n["name"]: [*n["after"]] for n in drawn["nodes"]}  # type: ignore[attr-defined]
    assert after["last"] == [part.id]
    assert len(after["part"]) == 1
    assert (await flows.view(app, part.id))["within"] == flow.id
    query, wanted = await flows.query_of(app, {})
    assert to_json(await flows.page(app, query, wanted)).count(b'"name":') == 1
    with pytest.raises(Conflict, match="a workflow in it"):
        await flows.retry(app, flow.id, "first")
    again = await flows.retry(app, flow.id, "last")
    await t.run()
    assert await app.handle(again).result(timeout=0) == "a!!!!"


async def test_a_part_counts_as_one_task(app: Outlast, t: testing) -> None:
    """Else a workflow whose part still runs would be told to be done."""
    shout = app.handlers["shout"]
    flow = app.workflow("whole")
    part = flow.nest("part", after=flow.add(shout, "a"))
    inner = part.add(shout.options(hold="go"), "b")
    await flow.enqueue()
    await t.run()
    for counts, percent in (
        ({"completed": 1, "blocked": 1}, 50),
        ({"completed": 2}, 100),
    ):
        view, told = await saga.view(app, flow.id), await flows.view(app, flow.id)
        assert (view.counts, view.percent) == (counts, percent)
        assert (told["counts"], told["percent"]) == (counts, percent)
        if percent < 100:
            await app.handle(inner.id).signal("go")
            await t.run()


async def test_a_part_whose_condition_fails_is_skipped(app: Outlast, t: testing) -> None:
    flow, part = shop(app, when="b!")
    await flow.enqueue()
    await t.run()
    assert ran == ["shout a"]
    assert (await saga.view(app, flow.id)).status == "completed"
    assert (await part.handle.refresh()).reason == "skipped"
    flow, part = shop(app, when="a!")
    await flow.enqueue()
    await t.run()
    assert await flow.handle.result(timeout=0) == "a!!!!"


async def test_a_part_that_fails_undoes_itself_and_the_whole(app: Outlast, t: testing) -> None:
    broken.add("a!!")
    flow, part = shop(app)
    await flow.enqueue()
    await t.run()
    assert ran == ["shout a", "shout a!", "shout a!!", "hush a!", "hush a"]
    assert (await saga.view(app, part.id)).status == "undone"
    assert (await saga.view(app, flow.id)).status == "undone"
    with pytest.raises(TaskDead, match="'part' died"):
        await flow.handle.result(timeout=0)


async def test_what_a_part_has_done_is_undone_with_the_whole(app: Outlast, t: testing) -> None:
    broken.add("a!!!")
    flow, part = shop(app)
    await flow.enqueue()
    await t.run()
    assert ran[-3:] == ["shout a!!!", "hush a!", "hush a"]
    assert (await saga.view(app, flow.id)).status == "undone"
    assert (await saga.view(app, part.id)).status == "completed"


async def test_cancelling_goes_down(app: Outlast, t: testing) -> None:
    shout, hush = app.handlers["shout"], app.handlers["hush"]
    for undo in (None, hush):
        ran.clear()
        flow = app.workflow("whole")
        part = flow.nest("part")
        deeper = part.nest("deeper")
        done = deeper.add(shout, "x", undo=undo)
        deeper.add(shout.options(hold="go"), done.out)
        flow.add(shout, part.out)
        await flow.enqueue()
        await t.run()
        await saga.cancel(app, flow.id)
        await t.run()
        assert ran == (["shout x"] if undo is None else ["shout x", "hush x"])
        status = (await saga.view(app, flow.id)).status
        assert status == ("cancelled" if undo is None else "undone")
        living = TaskQuery.of(status=saga.LIVING)
        assert not (await app.engine.tasks(living)).items


async def test_a_whole_that_died_in_a_part_goes_on_there(app: Outlast, t: testing) -> None:
    shout = app.handlers["shout"]
    broken.add("x!")
    flow = app.workflow("whole")
    part = flow.nest("part")
    part.add(shout, part.add(shout, "x").out)
    flow.add(shout, part.out)
    await flow.enqueue()
    await t.run()
    assert (await saga.view(app, flow.id)).status == "dead"
    broken.clear()
    await saga.retry(app, flow.id)
    await t.run()
    assert await flow.handle.result(timeout=0) == "x!!!"
    assert ran.count("shout x") == 1


async def test_what_is_no_part(app: Outlast, t: testing) -> None:
    shout = app.handlers["shout"]
    flow = app.workflow("whole")
    part = flow.nest("empty")
    with pytest.raises(BadInput, match="'empty' has no tasks"):
        await flow.enqueue()
    inner = part.add(shout, "x")
    with pytest.raises(BadInput, match="not in this workflow"):
        flow.add(shout, inner.out)
    assert not (await app.engine.tasks(TaskQuery())).items


ENGINES = os.environ.get("OUTLAST_TEST_ENGINES", "sqlite,postgresql,redis,mongodb").split(",")


@pytest.mark.parametrize("engine", ENGINES)
async def test_the_story_on_every_engine(engine: str, tmp_path: Path) -> None:
    """A group of which one fails, a chord that bears it, and a part that is undone."""
    app = make_app(await asyncio.to_thread(url_for, engine, tmp_path))
    shout, hush = app.handlers["shout"], app.handlers["hush"]

    @app.task
    async def join(parts: list[str | None]) -> str:
        return "+".join(map(str, parts))

    async with on_its_engine(app) as t:
        broken.add("b")
        flow = app.workflow("story", priority="low")
        both = flow.chord(flow.group(shout, "ab"), join, needs="any")
        part = flow.nest("part", after=both, when=both.out == "a!+None")
        part.chain(part.add(shout, both.out, undo=hush), shout, shout)
        flow.add(shout, part.out, name="last")
        flow.nest("never", when=both.out == "x").add(shout, "never")
        await flow.enqueue()
        await t.run()
        assert await part.handle.result(timeout=0) == "a!+None!!!"
        view = await saga.view(app, flow.id)
        assert (view.status, view.counts["cancelled"]) == ("completed", 1)
        assert view.counts == (await flows.view(app, flow.id))["counts"]
        tasks = (await app.engine.tasks(TaskQuery.of(type="shout"))).items
        assert {task.priority for task in tasks} == {3}
        assert "shout never" not in ran

        broken.add("a!!!!")
        flow, part = shop(app)
        await flow.enqueue()
        broken.add("a!!!")
        await t.run()
        assert ran[-4:] == ["shout a!!", "shout a!!!", "hush a!", "hush a"]
        assert (await saga.view(app, flow.id)).status == "undone"
    cleared(engine)
