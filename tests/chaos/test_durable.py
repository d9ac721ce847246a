"""kill -9 in the middle of steps: what was stored is not run again, what was done is undone.

With `OUTLAST_TEST_DEEP` 200 times instead of 12, and on every engine (`make proof`)."""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict

import pytest

from outlast.core.model import TaskQuery
from tests.conformance.servers import SHARED, chosen

from .fleet import Fleet, Line, until

DEEP = bool(os.environ.get("OUTLAST_TEST_DEEP"))
KILLS = 200 if DEEP else 12
WITHIN_S = 600 if DEEP else 60
SHORT = {"lease_ms": 2_000, "beat_ms": 600, "sweep_ms": 200}
MANY = 1_000_000

ENGINES = [name for name in chosen() if name in SHARED] if DEEP else ["sqlite"]

pytestmark = [
    pytest.mark.timeout(2 * WITHIN_S),
    pytest.mark.parametrize("fleet", ENGINES, indirect=True),
]


async def kill_workers(fleet: Fleet, seed: int) -> None:
    """Again and again, one of two worker processes dies, at any moment, and another one starts."""
    workers = [fleet.worker(**SHORT, concurrency=8) for _ in range(2)]
    chance = random.Random(seed)  # which moment, not a secret
    for _ in range(KILLS):
        before = len(fleet.lines())
        more = chance.randrange(5, 30)

        async def gone_on(before: int = before, more: int = more) -> bool:
            return len(fleet.lines()) >= before + more or not await living(fleet)

        await until(gone_on, 60)
        place = chance.randrange(2)
        workers[place].kill_group()
        workers[place] = fleet.worker(**SHORT, concurrency=8)


async def living(fleet: Fleet) -> int:
    found = await fleet.statuses()
    return sum(n for status, n in found.items() if status not in ("completed", "cancelled", "dead"))


async def test_a_stored_step_is_never_run_again(fleet: Fleet) -> None:
    tasks = await fleet.enqueue("durable", 5 * KILLS, max_losses=MANY)
    await kill_workers(fleet, 1)
    await fleet.all_are("completed", len(tasks), within_s=WITHIN_S)
    lines: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for line in fleet.lines():
        lines[line.task, line.kind[-1]].append(line.kind[:-1])
    assert len(lines) == 5 * len(tasks)
    for (task, n), kinds in lines.items():
        # Effects may come again as long as nothing was stored, and never after that.
        first = kinds.index("stored")
        assert "effect" not in kinds[first:], f"step {n} of {task} ran again: {kinds}"
    losses = [(await fleet.task(task)).losses for task in tasks]
    assert sum(losses) > KILLS, "hardly anybody was killed at work"


async def test_effects_are_complete_or_undone(fleet: Fleet) -> None:
    good = await fleet.enqueue("order", 2 * KILLS, {"fails": False}, max_losses=MANY)
    bad = await fleet.enqueue("order", 2 * KILLS, {"fails": True}, max_losses=MANY, max_attempts=2)
    await kill_workers(fleet, 2)

    async def over() -> bool:
        return not await living(fleet)

    await until(over, WITHIN_S)
    done: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for line in fleet.lines():
        done[line.task][line.kind] += 1
    for task in good:
        assert (await fleet.task(task)).state == "completed"
        assert not any(kind.startswith("undone") for kind in done[task]), task
    for task in bad:
        assert (await fleet.task(task)).state == "dead"
        for n in range(3):
            assert done[task][f"undone{n}"] >= bool(done[task][f"effect{n}"]), (task, done[task])
        order = [line.kind for line in fleet.lines() if _is_first_undo(line, task)]
        firsts = list(dict.fromkeys(order))
        assert firsts == sorted(firsts, reverse=True), "undone in another order"
    held = (await fleet.engine.tasks(TaskQuery.of(type="undo", status="blocked"))).items
    assert not held


def _is_first_undo(line: Line, task: str) -> bool:
    return line.task == task and line.kind.startswith("undone")
