"""Spawn: children are born in the same step as the outcome that names them, or not at all."""

from __future__ import annotations

import pytest

from outlast.core.errors import BadInput

from .language import Scene


async def test_a_report_spawns(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.report(a, spawn=[e.new("child", parent="a")])
    assert await e.statuses() == {"a": "running", "child": "ready"}
    assert (await e.task("child")).parent_id == e.id("a")


async def test_an_end_spawns(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.finish(a, spawn=[e.new("b"), e.new("c", after="b")])
    assert await e.statuses() == {"a": "completed", "b": "ready", "c": "blocked"}


async def test_a_child_may_wait_for_its_parent(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.report(a, spawn=[e.new("b", after="a")])
    assert await e.status("b") == "blocked"
    await e.finish(a)
    assert await e.status("b") == "ready"


async def test_a_child_born_with_the_end_of_its_parent_does_not_wait(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.finish(a, spawn=[e.new("b", after="a")])
    assert await e.claims(9) == ["b"]


async def test_a_stale_outcome_spawns_nothing(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.vanish()
    await e.refused(a, spawn=[e.new("child")])
    assert await e.found("child") is None


async def test_a_repeated_spawn_is_one_child(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.report(a, spawn=[e.new("child")])
    await e.report(a, spawn=[e.new("child", payload=2)])
    assert await e.counts("status") == {"running": 1, "ready": 1}
    assert (await e.task("child")).payload == b"{}"


async def test_a_spawned_unique_key_meets_the_living(e: Scene) -> None:
    await e.add("first", unique_key="k", delay="1h")
    await e.add("a")
    [a] = await e.claim()
    await e.finish(a, spawn=[e.new("second", unique_key="k")])
    assert await e.statuses() == {"a": "completed", "first": "scheduled"}


async def test_a_schedule_is_a_task(e: Scene) -> None:
    """It spawns its target under the slot's key and parks itself until the next: once per slot."""
    await e.add("cron")
    for slot in range(3):
        [cron] = await e.claim(1)
        target = e.new(f"run{slot}", queue="other", unique_key=f"cron:{slot}")
        await e.snooze(cron, "1h", spawn=[target])
        await e.refused(cron, "pending", delay="1h", spawn=[target])
        await e.advance("1h")
    assert len(await e.claim(9, queue="other")) == 3


async def test_a_bad_child_changes_nothing(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    before = await e.everything()
    with pytest.raises(BadInput):
        await e.hand(e.patch(a, "completed", spawn=[e.new("b", after="nobody")]))
    assert await e.everything() == before
    await e.finish(a)


async def test_a_child_is_claimed_in_the_turn_that_bears_it(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    deal = await e.hand(e.patch(a, "completed", spawn=[e.new("b")]), n=1)
    assert e.names(deal.leases) == ["b"]
