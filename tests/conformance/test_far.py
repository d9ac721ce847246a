"""The moments and spans that options allow at their ends: stored exactly, due in order."""

from __future__ import annotations

import pytest

from outlast.core.durations import MAX_MS
from outlast.core.model import Reprioritize, Reschedule, Task, TaskQuery, Term
from outlast.core.states import FIRST, LAST

from .language import Scene

LONG = "36500d"


async def test_the_farthest_moments_are_kept_exactly(e: Scene) -> None:
    await e.add("last", run_at=LAST, overdue_after=LONG, max_age=LONG, timeout=LONG)
    await e.add("first", run_at=FIRST, overdue_after=LONG)
    await e.add("before", run_at=LAST - 1)
    await e.change("before", Reprioritize(0))
    last, first, before = [await e.task(name) for name in ("last", "first", "before")]
    assert (last.run_at, last.overdue_at, last.timeout_ms) == (LAST, LAST + MAX_MS, MAX_MS)
    assert (first.run_at, first.overdue_at, before.run_at) == (FIRST, FIRST + MAX_MS, LAST - 1)
    assert await e.statuses() == {"last": "scheduled", "first": "ready", "before": "scheduled"}
    deal = await e.turn(n=3)
    assert (e.names(deal.leases), deal.next_due) == (["first"], LAST - 1)
    assert (await e.sweep()).expired == 0


async def test_the_longest_spans_are_kept_exactly(e: Scene) -> None:
    await e.add("a", delay=LONG, unique_key="u", unique_for=LONG, max_age=LONG, overdue_after=LONG)
    await e.change("a", Reschedule())
    [lease] = await e.claim()
    now = await e.now()
    await e.fail(lease, LONG)
    a = await e.task("a")
    assert now + MAX_MS <= a.run_at <= await e.now() + MAX_MS
    await e.cancel("a")
    await e.redrive("a", LONG)
    assert (await e.task("a")).run_at >= now + MAX_MS
    kept = await e.put("note", "k", 1, ttl_ms=MAX_MS)
    assert kept is not None
    assert kept.expires_at is not None
    assert kept.expires_at >= now + MAX_MS


@pytest.mark.parametrize("moment", [FIRST - MAX_MS, FIRST, LAST, LAST + MAX_MS])
async def test_queries_reach_as_far(e: Scene, moment: int) -> None:
    await e.add("a", run_at=LAST)
    for op, holds in ((">", moment <= FIRST), ("<", moment >= LAST)):
        query = TaskQuery(terms=(Term("created_at", (moment,), op),))  # type: ignore[arg-type]
        found: list[Task] = list((await e.engine.tasks(query)).items)
        assert e.names(found) == (["a"] if holds else [])
