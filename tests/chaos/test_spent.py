"""kill -9 of those who spend and of those who count: every sum is that of what was accepted."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from outlast.core.codec import dumps
from outlast.core.limits import Cap, Limit
from outlast.core.model import EventQuery, Put
from outlast.stream import so_far
from outlast.usage import usage

from .fleet import Fleet, Process, until

SHORT = {"lease_ms": 1_000, "beat_ms": 300, "sweep_ms": 200, "concurrency": 20}
KEY = "budget:tokens:global"
TASKS, TIMES, KILLS = 40, 30, 12


async def test_sums_are_exact_whoever_is_killed(fleet: Fleet) -> None:
    chance = random.Random(7)  # the same faults every time
    cap = Limit(KEY, cap=Cap(10**9, "total"))
    await fleet.engine.put([Put(kind="limit", key=KEY, value=dumps(cap.to_json()))])
    running: list[Process] = [fleet.supervisor(**SHORT), fleet.roller(), fleet.roller()]
    await fleet.enqueue(
        "spends", TASKS, {"times": TIMES}, limits=((KEY, 0),), max_losses=1_000, user_id="ada"
    )
    killed: Counter[str] = Counter()
    for _ in range(KILLS):
        before = len(fleet.lines("spent"))
        await until(lambda before=before: len(fleet.lines("spent")) > before + 20)  # type: ignore[misc]
        place = chance.randrange(len(running))
        running[place].kill_group()
        killed["worker" if place == 0 else "roller"] += 1
        running[place] = fleet.supervisor(**SHORT) if place == 0 else fleet.roller()
        if (await fleet.statuses()).get("completed") == TASKS:
            break
    assert min(killed["worker"], killed["roller"]) >= 2, killed
    await fleet.all_are("completed", TASKS, within_s=60)

    events = await so_far(fleet.engine, EventQuery(kinds=("usage",)))
    accepted = Counter((event.task_id, event.attempt) for event in events)
    begun = Counter((line.task, line.number) for line in fleet.lines("spends"))
    told = Counter((line.task, line.number) for line in fleet.lines("spent"))
    assert len({task for task, number in accepted if number > 1}) > 0, "nobody was interrupted"
    for attempt, n in begun.items():
        assert told[attempt] <= accepted[attempt] <= n, attempt

    total = sum(accepted.values())
    [gauge] = await fleet.engine.gauges([KEY])
    assert gauge.spent == total
    for by in ("day", "type", "user", "model"):
        shown: dict[str, Any] = await usage(fleet.engine, by)
        assert shown["total"]["tokens"] == shown["total"]["reports"] == total, by
        assert round(shown["total"]["cost"] * 10**9) == total, by
