"""Usage: reports in the log, told under a fence, and the sums that are made of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from outlast.core.budgets import charges_for
from outlast.core.limits import Cap
from outlast.core.model import Lease, NewEvent
from outlast.core.usage import Usage
from outlast.moving import move
from outlast.usage import PAGE, roll_up, usage, used_by

from .language import Scene

KEY = "budget:tokens:user:ada"


def report(lease: Lease, tokens: int) -> dict[str, Any]:
    """What a worker hands over with an outcome."""
    told = {"tokens": tokens, "cost": 0.001, "model": "small", "user_id": lease.user_id}
    event = NewEvent(kind="usage", data=json.dumps(told).encode(), task_id=lease.id)
    return {"events": [event], "charges": charges_for(lease.limits, Usage(tokens=tokens))}


async def started(e: Scene, *names: str, worker: str = "w1") -> list[Lease]:
    await e.add(*names, user_id="ada", session_id="s-1", limits=[(KEY, 0)])
    return await e.claim(len(names), worker)


async def total(e: Scene, by: str = "type") -> int:
    told: dict[str, Any] = await usage(e.engine, by)
    assert sum(item["tokens"] for item in told["items"]) == told["total"]["tokens"]
    tokens: int = told["total"]["tokens"]
    return tokens


async def test_what_was_accepted_is_in_every_sum_once(e: Scene) -> None:
    await e.limit(KEY, cap=Cap(10**6, "total"))
    a, b = await started(e, "a", "b")
    await e.report(a, **report(a, 1))
    for _ in range(2):  # its reply was lost
        await e.hand(e.patch(a, "running", **report(a, 10)), token=99)
    await e.fail(a, **report(a, 100))
    for _ in range(2):
        await e.hand(e.patch(b, "completed", **report(b, 1000)))
    await e.refused(a, **report(a, 10**4))
    for by in ("day", "type", "queue", "model", "user", "session"):
        assert await total(e, by) == 1111
    assert (await e.gauge(KEY)).spent == 1111
    assert (await used_by(e.engine, a.id)).total.tokens == 111


async def test_a_worker_that_is_lost_takes_no_usage_along(e: Scene) -> None:
    [a] = await started(e, "a")
    await e.report(a, **report(a, 7))
    await e.vanish("w1")
    await e.refused(a, **report(a, 70))
    await e.advance("1m")
    [again] = await e.claim(1, "w2")
    await e.finish(again, **report(again, 700))
    assert await total(e) == 707
    used = await used_by(e.engine, a.id)
    assert {number: sum.tokens for number, sum in used.by_attempt.items()} == {1: 7, 2: 700}


async def test_many_add_up_at_once(e: Scene) -> None:
    names = [f"t{n}" for n in range(PAGE + 50)]
    leases = await started(e, *names)
    for lease in leases[:5]:
        await e.finish(lease, **report(lease, 1))
    await asyncio.gather(*(roll_up(e.engine) for _ in range(3)))
    outcomes = [e.patch(lease, "completed", **report(lease, 1)) for lease in leases[5:]]
    await asyncio.gather(e.hand(*outcomes), *(roll_up(e.engine) for _ in range(3)))
    assert await total(e) == await total(e, "session") == len(names)


async def test_a_copy_goes_on_with_the_sums(
    e: Scene, another: Callable[[], Awaitable[Scene]]
) -> None:
    await e.limit(KEY, cap=Cap(100, "total"))
    a, b = await started(e, "a", "b")
    await e.finish(a, **report(a, 60))
    await roll_up(e.engine)
    await e.finish(b, **report(b, 39))
    await e.turn("w1", leaving=True)
    copy = await another()
    copy.engine.skew_ms = e.engine.skew_ms
    await move(e.engine, copy.engine, "the source")
    assert await total(copy) == 99
    assert (await copy.gauge(KEY)).spent == 99
    [c] = await started(copy, "c")
    await copy.finish(c, **report(c, 1))
    assert await total(copy) == 100
    assert await started(copy, "d") == []
    assert await copy.parked("d") == f"limit:{KEY}"
