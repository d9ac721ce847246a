"""A careless worker for the race: it forgets leases, hands in late, and takes others for dead.

Run as a script it races in a process of its own and prints what it was given.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from dataclasses import asdict, dataclass, field

from outlast.core.ids import new_fence
from outlast.core.model import Lease, Outcome, TaskQuery, Turn, Want, WorkerInfo
from outlast.engine import Engine, connect

LEASE_MS = 5_000
WANTS = (Want("default", "primary", 3), Want("default", "retry", 3))
LIVING = TaskQuery.of(
    status=("ready", "scheduled", "retrying", "throttled", "blocked", "running", "stalled")
)


@dataclass
class Diary:
    """What one racer was told."""

    given: list[tuple[str, int]] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    refused: int = 0
    evicted: int = 0


async def race(engine: Engine, name: str, seed: int) -> Diary:
    """Take turns until every task is over."""
    rng, diary, life = random.Random(seed), Diary(), 0
    held: list[Lease] = []
    while True:
        late = [lease for lease in held if rng.random() < 0.3]  # for the turn after this one
        outcomes = [_outcome(rng, lease) for lease in held if lease not in late]
        turn = Turn(
            token=new_fence(),
            worker=f"{name}.{life}",
            lease_ms=LEASE_MS,
            wants=WANTS,
            room=rng.randint(1, 3),
            outcomes=tuple(outcomes),
            info=WorkerInfo(host="race", pid=1),
        )
        deal = await engine.exchange(turn)
        lost = set(deal.lost)
        diary.refused += len(lost)
        diary.completed += [
            o.id for o in outcomes if o.state == "completed" and (o.id, o.fence) not in lost
        ]
        diary.given += [(lease.id, lease.fence) for lease in deal.leases]
        held = [*late, *deal.leases]
        if deal.evicted or rng.random() < 0.05:
            # Under another name from now on: what it still holds is found by a sweep, or refused.
            diary.evicted += deal.evicted
            life += 1
        if not deal.leases or rng.random() < 0.05:
            others = [w.id for w in await engine.workers() if rng.random() < 0.3]
            await engine.sweep(gone=others)
        if not deal.leases and not held:
            if not any(count.n for count in await engine.count(LIVING)):
                return diary
            engine.skew_ms += LEASE_MS // 5  # nobody waits for time to pass


def _outcome(rng: random.Random, lease: Lease) -> Outcome:
    if rng.random() < 0.15:
        return Outcome(
            id=lease.id, fence=lease.fence, state="pending", verdict="failed", lane="retry"
        )
    return Outcome(id=lease.id, fence=lease.fence, state="completed")


async def _main(url: str, name: str, seed: int) -> None:
    engine = connect(url)
    await engine.open()
    try:
        diary = await race(engine, name, seed)
    finally:
        await engine.close()
    sys.stdout.write(json.dumps(asdict(diary)))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
