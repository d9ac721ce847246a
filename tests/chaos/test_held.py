"""Processes that stand still: stopped ones lose their leases, blocked ones do not."""

from __future__ import annotations

import json
import os
import signal

import pytest

from .fleet import Fleet, until
from .test_killed import SHORT


async def test_a_worker_stopped_past_its_lease_overwrites_nothing(fleet: Fleet) -> None:
    first = fleet.supervisor(**SHORT, concurrency=1)
    [task_id] = await fleet.enqueue("deaf")
    await fleet.started(1)
    [frozen] = first.children
    os.kill(frozen, signal.SIGSTOP)
    fleet.supervisor(**SHORT, concurrency=1)
    await fleet.started(2)
    fleet.gate.touch()

    async def completed() -> bool:
        return (await fleet.task(task_id)).status == "completed"

    await until(completed)
    before = await fleet.task(task_id)
    assert json.loads(before.result or b"") == fleet.lines("start")[1].pid != frozen
    os.kill(frozen, signal.SIGCONT)
    # It finishes its work, is refused, and goes on as another worker.
    await until(lambda: frozen in [line.pid for line in fleet.lines("end")])
    await until(lambda: "was taken for dead" in first.output)
    await fleet.enqueue("quick", payload={"n": 1})
    await fleet.all_are("completed", 2)
    assert await fleet.task(task_id) == before
    assert await fleet.verdicts(task_id) == ["stalled", "succeeded"]


@pytest.mark.parametrize(
    ("type", "supervised"),
    [("blocks_the_loop", True), ("holds_the_gil", True), ("blocks_the_loop", False)],
)
async def test_blocking_longer_than_the_lease_costs_nothing(
    fleet: Fleet, type: str, supervised: bool
) -> None:
    """Another worker sweeps beside it all the time, ready to take what is not kept alive."""
    start = fleet.supervisor if supervised else fleet.worker
    blocked = start(**SHORT, concurrency=1)
    await fleet.ready(1)
    [task_id] = await fleet.enqueue(type, payload={"seconds": 5})
    await fleet.started(1)
    fleet.supervisor(**SHORT, concurrency=1)
    await fleet.ready(2)
    await fleet.all_are("completed", 1)
    task = await fleet.task(task_id)
    assert (task.losses, task.attempt) == (0, 1)
    assert [line.kind for line in fleet.lines()] == ["start", "end"]
    assert "was taken for dead" not in blocked.output


async def test_an_unsupervised_worker_whose_gil_is_held_loses_its_lease(fleet: Fleet) -> None:
    """The control: without a supervisor the same call is taken for a death, and run again."""
    fleet.supervisor(**SHORT, concurrency=1)
    await fleet.enqueue("gated")  # so that the other one takes what holds the GIL
    await fleet.started(1)
    fleet.worker(**SHORT, concurrency=1)
    await fleet.ready(2)
    [task_id] = await fleet.enqueue("holds_the_gil", payload={"seconds": 9})

    async def lost() -> bool:
        return (await fleet.task(task_id)).losses == 1

    await until(lost)
    fleet.gate.touch()
    await fleet.all_are("completed", 2)
    assert await fleet.verdicts(task_id) == ["stalled", "succeeded"]
