"""Lanes: wants in order up to `n`, then the room that is left; no slot idle, no share exceeded."""

from __future__ import annotations

from outlast.core.model import Want

from .language import Scene


def shares(primary: int, retry: int, queue: str = "default") -> list[Want]:
    return [Want(queue, "primary", primary), Want(queue, "retry", retry)]


async def fill(e: Scene, primary: int, retry: int) -> None:
    await e.add(*[f"p{n}" for n in range(primary)])
    if retry:
        await e.add(*[f"r{n}" for n in range(retry)], lane="retry")


async def test_both_lanes_get_their_share(e: Scene) -> None:
    await fill(e, 20, 20)
    deal = await e.turn(wants=shares(7, 3), room=10)
    assert e.names(deal.leases) == [f"p{n}" for n in range(7)] + ["r0", "r1", "r2"]


async def test_an_empty_lane_leaves_no_slot_idle(e: Scene) -> None:
    await fill(e, 20, 1)
    deal = await e.turn(wants=shares(7, 3), room=10)
    assert e.names(deal.leases) == [f"p{n}" for n in range(7)] + ["r0", "p7", "p8"]


async def test_retries_fill_an_empty_primary_lane(e: Scene) -> None:
    await fill(e, 1, 20)
    deal = await e.turn(wants=shares(7, 3), room=10)
    assert e.names(deal.leases) == ["p0"] + [f"r{n}" for n in range(9)]


async def test_the_order_of_the_wants_decides_who_fills_up(e: Scene) -> None:
    await fill(e, 20, 20)
    wants = [Want("default", "retry", 1), Want("default", "primary", 1)]
    deal = await e.turn(wants=wants, room=4)
    assert e.names(deal.leases) == ["r0", "p0", "r1", "r2"]


async def test_a_share_of_nothing_still_fills_up(e: Scene) -> None:
    await fill(e, 0, 5)
    deal = await e.turn(wants=shares(3, 0), room=3)
    assert e.names(deal.leases) == ["r0", "r1", "r2"]


async def test_a_lane_that_is_not_wanted_is_not_served(e: Scene) -> None:
    await fill(e, 0, 5)
    deal = await e.turn(wants=[Want("default", "primary", 3)], room=3)
    assert deal.leases == ()


async def test_lanes_of_several_queues(e: Scene) -> None:
    await e.add("a1", "a2", queue="a")
    await e.add("b1", "b2", queue="b", lane="retry")
    wants = [*shares(1, 1, "a"), *shares(1, 1, "b")]
    deal = await e.turn(wants=wants, room=4)
    assert e.names(deal.leases) == ["a1", "b1", "a2", "b2"]


async def test_a_failed_attempt_moves_to_the_retry_lane_and_stays(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.fail(a)
    [a] = await e.claim(wants=[Want("default", "retry", 1)], room=1)
    await e.release(a)
    assert (await e.task("a")).lane == "retry"


async def test_a_snoozed_task_keeps_its_lane(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.snooze(a, "1m")
    task = await e.task("a")
    assert (task.lane, task.status) == ("primary", "scheduled")


async def test_blocked_tasks_of_one_lane_cost_the_other_nothing(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("h", limits="k")
    await e.claim()
    await e.add(*[f"p{n}" for n in range(10)], limits="k")
    await e.add("r0", lane="retry")
    leases = await e.claim(3, wants=shares(2, 1), room=3)
    assert e.names(leases) == ["r0"]
