"""kill -9 and counts: what was recorded is counted once, by whomever, and no count ever falls."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

from outlast.core.totals import Totals, labels_of
from outlast.fleet import Publisher
from outlast.meter import Meter

from .fleet import Fleet, until

LONG = {"lease_ms": 120_000, "beat_ms": 3_000, "sweep_ms": 300}


async def totals(fleet: Fleet) -> Totals:
    return await Publisher(Meter()).fleet(fleet.engine)


def ended(found: Totals) -> int:
    return sum(n for name, n in found.counts.items() if labels_of(name)[0] == "ended")


async def watched(fleet: Fleet, seen: list[int]) -> None:
    """Reads the counts again and again, as Prometheus does."""
    while True:
        seen.append(ended(await totals(fleet)))
        await asyncio.sleep(0.02)


async def test_a_killed_child_is_counted_and_nothing_twice(fleet: Fleet) -> None:
    seen: list[int] = []
    watching = asyncio.create_task(watched(fleet, seen))
    supervisor = fleet.supervisor(children=2, **LONG, concurrency=10)
    await fleet.ready(2)
    await fleet.enqueue("gated", 20)
    await fleet.started(20)
    victim = fleet.lines("start")[0].pid
    lost = [line for line in fleet.lines("start") if line.pid == victim]
    os.kill(victim, signal.SIGKILL)
    await fleet.started(20 + len(lost))
    fleet.gate.touch()
    await fleet.all_are("completed", 20)

    async def published() -> bool:
        return ended(await totals(fleet)) == 20

    await until(published)  # while they live
    supervisor.signal(signal.SIGTERM)
    await supervisor.ended()
    found = await totals(fleet)  # and after
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    assert ended(found) == 20
    assert found.counts["rescued"] == len(lost)
    assert seen == sorted(seen), "a count fell"
