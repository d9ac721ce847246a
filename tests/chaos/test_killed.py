"""kill -9: nothing is lost, nothing is recorded twice, and a poisoned task does not loop."""

from __future__ import annotations

import os
import signal
from collections import Counter

from .fleet import Fleet, alive, until

DEEP = bool(os.environ.get("OUTLAST_TEST_DEEP"))
"""Judge by the clock, too: on a machine that does nothing else."""
# Short, so that a test can wait for the end of a lease.
SHORT = {"lease_ms": 2_000, "beat_ms": 600, "sweep_ms": 300}
# Long, so that only an early release can explain a quick second run.
LONG = {"lease_ms": 120_000, "beat_ms": 3_000, "sweep_ms": 300}


async def test_a_worker_killed_with_200_running_tasks_loses_none(fleet: Fleet) -> None:
    first = fleet.supervisor(**SHORT, concurrency=200)
    tasks = await fleet.enqueue("gated", 200)
    await fleet.started(200)
    first.kill_group()
    assert await fleet.statuses() == {"running": 200}
    fleet.gate.touch()
    fleet.supervisor(**SHORT, concurrency=200)
    await fleet.all_are("completed", 200)
    ends = Counter(line.task for line in fleet.lines("end"))
    assert ends == {task: 1 for task in tasks}
    for task_id in tasks:
        task = await fleet.task(task_id)
        assert (task.losses, task.attempt) == (1, 1)
        assert await fleet.verdicts(task_id) == ["stalled", "succeeded"]


async def test_a_child_killed_before_it_is_ready_is_started_again(fleet: Fleet) -> None:
    supervisor = fleet.supervisor(**SHORT)
    await until(lambda: bool(supervisor.children))
    os.kill(supervisor.children[0], signal.SIGKILL)
    await fleet.ready()
    await fleet.enqueue("quick", 1, {"n": 1})
    await fleet.all_are("completed", 1)


async def test_a_child_killed_under_its_supervisor_costs_a_second(fleet: Fleet) -> None:
    supervisor = fleet.supervisor(children=2, **LONG, concurrency=10)
    await fleet.ready(2)
    await fleet.enqueue("gated", 20)
    await fleet.started(20)
    victim = fleet.lines("start")[0].pid
    lost = [line.task for line in fleet.lines("start") if line.pid == victim]
    assert victim in supervisor.children
    os.kill(victim, signal.SIGKILL)
    # The other child is full, so these are run by the child that takes the dead one's place.
    again_s = await fleet.started(20 + len(lost), within_s=60)  # the lease has 120
    assert not DEEP or again_s < 2.5
    await until(lambda: len(supervisor.children) == 2)
    fleet.gate.touch()
    await fleet.all_are("completed", 20)
    assert Counter(line.task for line in fleet.lines("end")).most_common(1)[0][1] == 1
    for task_id in lost:
        assert (await fleet.task(task_id)).losses == 1


async def test_children_die_with_their_supervisor(fleet: Fleet) -> None:
    supervisor = fleet.supervisor(children=2, **SHORT)
    await fleet.ready(2)
    children = supervisor.children
    assert len(children) == 2
    # One of them cannot even notice that its pipe has ended.
    await fleet.enqueue("holds_the_gil", payload={"seconds": 60})
    await fleet.started(1)
    os.kill(supervisor.popen.pid, signal.SIGKILL)
    await until(lambda: not any(map(alive, children)))


async def test_isolated_attempts_and_commands_die_with_their_worker(fleet: Fleet) -> None:
    supervisor = fleet.supervisor(**LONG)
    await fleet.ready(1)
    await fleet.enqueue("isolated")
    await fleet.enqueue("sleeps")
    await fleet.started(1)
    await until(lambda: len(supervisor.descendants) == 3)
    [worker] = supervisor.children
    theirs = [pid for pid in supervisor.descendants if pid != worker]
    os.kill(worker, signal.SIGKILL)
    await until(lambda: not any(map(alive, theirs)))


async def test_a_task_that_kills_its_process_every_time_dies_by_its_loss_budget(
    fleet: Fleet,
) -> None:
    fleet.supervisor(**LONG, concurrency=4)
    [poison] = await fleet.enqueue("kills_its_process", max_losses=3)

    async def dead() -> bool:
        return (await fleet.task(poison)).status == "dead"

    await until(dead, within_s=60)
    task = await fleet.task(poison)
    assert (task.reason, task.losses) == ("stalled", 3)
    assert len(fleet.lines("start")) == 3
    assert await fleet.verdicts(poison) == ["stalled"] * 3
    [good] = await fleet.enqueue("quick", payload={"n": 1})

    async def done() -> bool:
        return (await fleet.task(good)).status == "completed"

    await until(done)
    assert len([line for line in fleet.lines("start") if line.task == poison]) == 3


async def test_a_poisoned_task_takes_nobody_along(fleet: Fleet) -> None:
    fleet.supervisor(**LONG, concurrency=20)
    bystanders = await fleet.enqueue("gated", 5)
    await fleet.started(5)
    [poison] = await fleet.enqueue("kills_its_process", max_losses=3)

    async def suspects() -> bool:
        return (await fleet.task(poison)).losses == 2

    await until(suspects, within_s=60)
    fleet.gate.touch()

    async def over() -> bool:
        return await fleet.statuses() == {"completed": 5, "dead": 1}

    await until(over, within_s=60)
    assert (await fleet.task(poison)).reason == "stalled"
    assert max([(await fleet.task(one)).losses for one in bystanders]) == 2
