"""Escalation: rules on a workflow, each of which fires once, on every engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from outlast import BadInput, Context, Escalation, Outlast, Permanent, Spawn, Transient, saga
from outlast.core.model import EventQuery, Reschedule, TaskQuery
from outlast.notices import pending
from outlast.testing import testing
from outlast.workflow import ESCALATION, Workflow
from tests.conformance.servers import cleared, url_for

from .conftest import on_its_engine

told: list[str] = []


def make_app(url: str = "memory://") -> Outlast:
    told.clear()
    app = Outlast(url)

    @app.task(retry="1m 1m 1m 1m 1m", max_attempts=6)
    async def failing(ctx: Context, fails: int) -> int:
        if ctx.attempt <= fails:
            raise Transient("not yet")
        return ctx.attempt

    @app.task(retry="1m")
    async def recovering(ctx: Context) -> None:
        """Fails once, and waits when it is tried again."""
        if ctx.attempt == 1 and ctx.number == 1:
            raise Transient("not yet")
        await ctx.wait_for("go")

    @app.task
    async def doomed() -> None:
        raise Permanent("it cannot be")

    @app.task
    async def page(who: str) -> None:
        told.append(who)

    @app.task
    async def work() -> None: ...

    @app.task
    async def undo_work() -> None:
        told.append("undone")

    return app


@pytest.fixture
def app() -> Outlast:
    return make_app()


@pytest.fixture
async def t(app: Outlast) -> AsyncIterator[testing]:
    async with testing(app) as t:
        yield t


async def again(t: testing, *spans: str) -> None:
    for span in spans:
        await t.advance(span)
        await t.run()


async def events(app: Outlast) -> list[str]:
    found = await app.engine.events(EventQuery(kinds=("escalation",)))
    return [event.data.decode() for event in found.items]


def flow_of(app: Outlast, *rules: Escalation, **options: Any) -> Workflow:
    return app.workflow("night", escalate=rules, **options)


async def test_failures_raise_the_priority_and_call_somebody(app: Outlast, t: testing) -> None:
    rules = (
        Escalation(
            failures=2, of="failing", priority="critical", spawn=Spawn("page", {"who": "a"})
        ),
        Escalation(failures=9, notify="never"),
    )
    flow = flow_of(app, *rules, session_id="s-1")
    first = flow.add(app.handlers["failing"], 4)
    last = flow.add(app.handlers["work"], after=first)
    await flow.enqueue()
    await t.run()
    await again(t, "30s")
    assert told == []
    await again(t, "30s", "30s", "30s")
    assert told == ["a"]
    assert {(await app.handle(node.id).refresh()).priority for node in (first, last)} == {0}
    [paged] = (await app.engine.tasks(TaskQuery.of(type="page"))).items
    assert (paged.parent_id, paged.session_id) == (flow.id, "s-1")
    assert paged.workflow_id is None
    await again(t, *["1m"] * 8)
    assert told == ["a"]  # once
    assert (await saga.view(app, flow.id)).status == "completed"
    [watcher] = (await app.engine.tasks(TaskQuery.of(type=ESCALATION))).items
    assert watcher.state == "completed"


async def test_a_dead_task_is_told_to_the_session(app: Outlast, t: testing) -> None:
    rules = (
        Escalation(dead=1, of="doomed", notify="Something is broken."),
        Escalation(dead=2, stop=True),
    )
    flow = flow_of(app, *rules, session_id="s-1")
    flow.add(app.handlers["doomed"])
    flow.add(app.handlers["work"])
    await flow.enqueue()
    await t.run()
    await again(t, "1m", "1m")
    found = await pending(app.engine, "s-1")
    notes = {notice.type: notice.message for notice in found.items}
    assert notes["workflow_escalated"] == "Your night: Something is broken."
    assert notes["task_failed"] in ("Your night has failed.", "Your doomed has failed.")
    assert len(await events(app)) == 1
    assert not any("outlast." in notice.message for notice in found.items)


async def test_what_is_too_old_is_stopped_and_undone(app: Outlast, t: testing) -> None:
    flow = flow_of(app, Escalation(age="1h", stop=True), Escalation(age="2d", notify="old"))
    done = flow.add(app.handlers["work"], undo=app.handlers["undo_work"])
    flow.add(app.handlers["work"].options(hold="go"), after=done)
    await flow.enqueue()
    await t.run()
    await again(t, "50m")
    assert (await saga.view(app, flow.id)).status == "running"
    [watcher] = (await app.engine.tasks(TaskQuery.of(type=ESCALATION))).items
    assert watcher.number == 1  # it sleeps until the hour
    await again(t, "11m")
    assert (await saga.view(app, flow.id)).status == "undone"
    assert told == ["undone"]
    await again(t, "3d")
    assert len(await events(app)) == 1


async def test_a_workflow_that_is_well_is_left_alone(app: Outlast, t: testing) -> None:
    flow = flow_of(app, Escalation(age="1h", notify="late"), Escalation(failures=1, stop=True))
    flow.add(app.handlers["work"])
    await flow.enqueue()
    await t.run()
    await again(t, "10s", "2h")
    assert await events(app) == []
    view = await saga.view(app, flow.id)
    assert (view.status, view.counts) == ("completed", {"completed": 1})


async def test_rules_that_are_none(app: Outlast, t: testing) -> None:
    for wrong in (
        {"stop": True},
        {"failures": 1},
        {"failures": 0, "stop": True},
        {"failures": 1, "dead": 1, "stop": True},
        {"age": "soon", "stop": True},
        {"age": "1h", "of": "work", "stop": True},
        {"dead": 1, "priority": "urgent"},
        {"dead": 1, "notify": ""},
    ):
        with pytest.raises(BadInput):
            Escalation(**wrong)  # type: ignore[arg-type]
    for spawn in (Spawn("page", {"whom": "a"}), Spawn("outlast.bulk")):
        flow = flow_of(app, Escalation(dead=1, spawn=spawn))
        flow.add(app.handlers["work"])
        with pytest.raises(BadInput):
            await flow.enqueue()
    assert not (await app.engine.tasks(TaskQuery())).items


ENGINES = os.environ.get("OUTLAST_TEST_ENGINES", "sqlite,postgresql,redis,mongodb").split(",")


@pytest.mark.parametrize("engine", ENGINES)
async def test_it_fires_on_every_engine(engine: str, tmp_path: Path) -> None:
    app = make_app(await asyncio.to_thread(url_for, engine, tmp_path))
    async with on_its_engine(app) as t:
        rule = Escalation(dead=1, priority=0, spawn=Spawn("page", {"who": "a"}), notify="broken")
        flow = flow_of(app, rule, session_id="s-1")
        flow.add(app.handlers["doomed"])
        held = flow.add(app.handlers["work"].options(hold="go"))
        await flow.enqueue()
        await t.run()
        await again(t, "5s", "5s")
        assert told == ["a"]
        assert (await app.handle(held.id).refresh()).priority == 0
        assert [n.type for n in (await pending(app.engine, "s-1")).items].count(
            "workflow_escalated"
        ) == 1
        await app.handle(held.id).signal("go")
        await t.run()
        await again(t, "1m")
        assert told == ["a"]

        rule = Escalation(failures=2, spawn=Spawn("page", {"who": "b"}))
        flow = flow_of(app, rule, session_id="s-2")
        for _ in range(2):
            flow.add(app.handlers["recovering"])
        await flow.enqueue()
        await t.run()
        await t.advance("1h")
        watchers = TaskQuery.of(type=ESCALATION, status=("ready", "scheduled"))
        [watcher] = (await app.engine.tasks(watchers)).items
        await app.engine.alter([watcher.id], Reschedule(delay_ms=60_000))  # it looks after both
        await t.run()
        await again(t, "1m", "1m")
        assert told == ["a", "b"]
    cleared(engine)
