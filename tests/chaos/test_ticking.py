"""A schedule of every second while its workers are killed: each second fires exactly once.

Two workers and six seconds in `make test`; with `OUTLAST_TEST_DEEP` twenty workers and two minutes.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from typing import Final

import pytest

from outlast import Outlast, schedules
from outlast.core.model import EventQuery, TaskQuery

from .fleet import Fleet, until

DEEP: Final = "OUTLAST_TEST_DEEP" in os.environ
WORKERS: Final = 20 if DEEP else 2
SLOTS: Final = 120 if DEEP else 6
SHORT: Final = {"lease_ms": 2_000, "beat_ms": 600, "sweep_ms": 200}


async def fired(app: Outlast) -> dict[str, int]:
    """The second of each task that was made: its id begins with it. (Of one that was rescued,
    `run_at` is when it ran again.)"""
    found: dict[str, int] = {}
    query = TaskQuery.of(tag="schedule:tick", limit=500)
    while True:
        page = await app.engine.tasks(query)
        found |= {task.id: int(task.id.replace("-", "")[:12], 16) for task in page.items}
        if page.next is None:
            return found
        query = TaskQuery.of(tag="schedule:tick", limit=500, cursor=page.next)


@pytest.mark.timeout(600)
async def test_every_second_fires_once(fleet: Fleet) -> None:
    app = Outlast(fleet.url)
    app.external("quick")
    async with app:
        supervisor = fleet.supervisor(children=WORKERS, **SHORT)
        await fleet.ready()
        tick = schedules.schedule_of("tick", "quick", {"n": 1}, every="1s")
        await schedules.save(app, tick)
        chance = random.Random(7)  # whom, not a secret
        for n in range(1, SLOTS + 1):

            async def gone_on(n: int = n) -> bool:
                return len(await fired(app)) >= n

            await until(gone_on, 60)
            if n % 2 and (children := supervisor.children):
                os.kill(chance.choice(children), signal.SIGKILL)
        await schedules.pause(app, "tick")
        tasks = await fired(app)

        async def over() -> bool:
            tasks.update(await fired(app))
            counts = await app.engine.count(TaskQuery.of(tag="schedule:tick"), by=("status",))
            return [count.by for count in counts] == [("completed",)]

        await until(over, 60)
        tasks = await fired(app)
        slots = sorted(tasks.values())
        assert slots == list(range(slots[0], slots[-1] + 1_000, 1_000)), "one was left out, or two"
        ended: Counter[str] = Counter()
        query = EventQuery(kinds=("done",), limit=1_000)
        while (page := await app.engine.events(query)).items:
            ended.update(event.task_id for event in page.items if event.task_id in tasks)
            query = EventQuery(kinds=("done",), limit=1_000, after=page.next)
        assert ended == Counter(dict.fromkeys(tasks, 1))
