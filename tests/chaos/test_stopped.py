"""SIGTERM: what runs may end, nothing new is begun, the rest is given back."""

from __future__ import annotations

import os
import signal

import pytest

from outlast import Outlast, ops

from .fleet import Fleet, until
from .test_killed import LONG


async def test_sigterm_drains_and_ends_well(fleet: Fleet) -> None:
    supervisor = fleet.supervisor(children=2, **LONG, concurrency=5)
    await fleet.ready(2)
    running = await fleet.enqueue("gated", 10)
    await fleet.started(10)
    waiting = await fleet.enqueue("gated", 5)
    supervisor.signal(signal.SIGTERM)
    # A service manager may signal every process of the group, and more than once.
    for pid in supervisor.children:
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGTERM)
    # A seat that is free before the signal was heard may be asked a task for, and gives it back.
    await until(lambda: supervisor.output.count("claims nothing more") == 2)
    fleet.gate.touch()
    assert await supervisor.ended() == 0
    for task_id in running:
        assert await fleet.verdicts(task_id) == ["succeeded"]
    for task_id in waiting:
        task = await fleet.task(task_id)
        assert (task.status, task.number) == ("ready", 0)
    assert len(fleet.lines("start")) == len(fleet.lines("end")) == 10
    assert await fleet.engine.workers() == []


async def test_a_worker_that_is_asked_to_drain_ends_its_work_and_is_not_replaced(
    fleet: Fleet,
) -> None:
    supervisor = fleet.supervisor(**LONG, concurrency=1, children=2)
    [first, second] = await fleet.enqueue("gated", 2)
    await fleet.started(2)
    async with Outlast(fleet.url) as app:
        [one, other] = await fleet.engine.workers()
        assert (await ops.drain(app, one.id))["draining"]

        async def heard() -> bool:
            return f"Worker {one.id} claims nothing more" in supervisor.output

        await until(heard)
        fleet.gate.touch()
        await until(lambda: len(supervisor.children) == 1)
        for task_id in (first, second):
            assert await fleet.verdicts(task_id) == ["succeeded"]
        [left] = await ops.workers(app)
        assert (left["id"], left["alive"], left["draining"]) == (other.id, True, False)
        [third] = await fleet.enqueue("gated")  # the other one goes on
        await fleet.all_are("completed", 3)
        await ops.drain(app, other.id)
        assert await supervisor.ended() == 0
        assert await ops.workers(app) == []
    assert "ERROR" not in supervisor.output
    assert await fleet.verdicts(third) == ["succeeded"]


@pytest.mark.parametrize("how", ["second signal", "grace is over", "deaf"])
async def test_what_does_not_end_is_given_back_at_no_cost(fleet: Fleet, how: str) -> None:
    grace_ms = 500 if how == "grace is over" else 60_000
    supervisor = fleet.supervisor(**LONG, concurrency=10, grace_ms=grace_ms)
    tasks = await fleet.enqueue("deaf" if how == "deaf" else "gated", 10)
    await fleet.started(10)
    supervisor.signal(signal.SIGTERM)
    if how != "grace is over":

        async def draining() -> bool:
            return "draining" in supervisor.output

        await until(draining)
        supervisor.signal(signal.SIGTERM)
    assert await supervisor.ended(30) == 0
    for task_id in tasks:
        task = await fleet.task(task_id)
        assert (task.status, task.attempt, task.losses) == ("ready", 0, 0)
        assert await fleet.verdicts(task_id) == ["released"]
    # And it runs again elsewhere, once.
    fleet.gate.touch()
    fleet.supervisor(**LONG)
    await fleet.all_are("completed", 10)
    assert len(fleet.lines("end")) == 10
    assert len(fleet.lines("start")) == 20


@pytest.mark.parametrize(
    ("wrong", "code"),
    [({"target": "nowhere:app"}, 2), ({"url": "sqlite:////nowhere/at/all.db"}, 4)],
    ids=["no such app", "no such engine"],
)
async def test_what_can_never_work_ends_at_once_and_says_why(
    fleet: Fleet, wrong: dict[str, str], code: int
) -> None:
    supervisor = fleet.supervisor(children=2, **wrong)
    assert await supervisor.ended(30) == code
    assert "nowhere" in supervisor.output
    assert "Traceback" not in supervisor.output


async def test_a_worker_that_does_not_leave_is_killed_and_its_work_given_back(
    fleet: Fleet,
) -> None:
    supervisor = fleet.supervisor(**LONG, concurrency=1, grace_ms=100)
    [task_id] = await fleet.enqueue("holds_the_gil", payload={"seconds": 60})
    await fleet.started(1)
    supervisor.signal(signal.SIGTERM)
    assert await supervisor.ended(20) == 1
    task = await fleet.task(task_id)
    assert (task.status, task.losses) == ("ready", 0)
