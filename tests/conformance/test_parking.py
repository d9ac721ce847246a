"""Parking: pending is ready, or parked on exactly one thing; what people see follows from it."""

from __future__ import annotations

from .language import Scene


async def test_every_reason_has_its_status(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("holder", limits="k")
    [_] = await e.claim()
    await e.add("throttled", limits="k")
    assert await e.claims(9) == []
    await e.add("failing", queue="q2")
    [failing] = await e.claim(queue="q2")
    await e.fail(failing, "1m")
    await e.add("scheduled", delay="1m")
    await e.add("dependent", after="holder")
    await e.add("held", hold="go")
    await e.add("ready")
    parked = {e.name(t.id): (t.parked, t.status) for t in await e.tasks() if t.state == "pending"}
    assert parked == {
        "throttled": ("limit:k", "throttled"),
        "failing": ("time", "retrying"),
        "scheduled": ("time", "scheduled"),
        "dependent": ("deps", "blocked"),
        "held": ("signal:go", "blocked"),
        "ready": (None, "ready"),
    }


async def test_a_parked_task_is_not_claimed(e: Scene) -> None:
    await e.add("a", delay="1m")
    await e.add("b", hold="go")
    await e.advance("59s")
    assert await e.claims(9) == []


async def test_due_means_from_that_millisecond_on(e: Scene) -> None:
    await e.add("a", delay="1h")
    task = await e.task("a")
    left = task.run_at - await e.now()
    await e.advance(f"{left - 30_000}ms")
    assert await e.claims() == []
    await e.advance("30s")
    deal = await e.turn(n=1)
    assert e.names(deal.leases) == ["a"]
    assert deal.now >= task.run_at


async def test_sweep_unparks_what_is_due(e: Scene) -> None:
    await e.add("a", "b", delay="1m")
    await e.add("c", delay="1h")
    await e.advance("1m")
    assert (await e.sweep()).unparked == 2
    assert await e.statuses() == {"a": "ready", "b": "ready", "c": "scheduled"}
    assert (await e.sweep()).unparked == 0


async def test_many_due_at_once_all_come(e: Scene) -> None:
    names = [f"t{n}" for n in range(1_500)]
    await e.add(*names, delay="1m", followed=False)
    await e.advance("1m")
    got = await e.claims(1_500)
    assert got == names


async def test_a_snoozed_task_returns_when_it_said(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    deal = await e.snooze(a, "30s")
    task = await e.task("a")
    assert (task.status, task.run_at) == ("scheduled", deal.now + 30_000)
    await e.advance("29s")
    assert await e.claims() == []
    await e.advance("1s")
    assert await e.claims() == ["a"]


async def test_put_back_without_a_delay_is_ready_at_once(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.fail(a)
    assert (await e.task("a")).parked is None
    assert await e.claims() == ["a"]


async def test_a_delay_outlasts_dependencies_and_holds(e: Scene) -> None:
    """Whatever a task waited for first, it does not start before its time."""
    await e.add("up")
    await e.add("down", after="up", delay="1h")
    await e.add("held", hold="go", delay="1h")
    [up] = await e.claim(9)
    await e.finish(up)
    await e.signal("held", "go")
    assert await e.statuses() == {"down": "scheduled", "held": "scheduled", "up": "completed"}
    assert await e.claims(9) == []
    await e.advance("1h")
    assert await e.claims(9) == ["down", "held"]


async def test_a_held_task_with_dependencies_waits_for_both(e: Scene) -> None:
    for first in ("signal", "upstream"):
        up, down = f"{first}-up", f"{first}-down"
        await e.add(up)
        await e.add(down, after=up, hold="go")
        [lease] = await e.claim(9)
        if first == "signal":
            await e.signal(down, "go")
            assert await e.claims(9) == []
            await e.finish(lease)
        else:
            await e.finish(lease)
            assert await e.claims(9) == []
            await e.signal(down, "go")
        [lease] = await e.claim(9)
        assert e.name(lease.id) == down
        await e.finish(lease)


async def test_a_due_task_behind_a_full_limit_waits_for_the_limit(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("holder", limits="k")
    [holder] = await e.claim()
    await e.add("a", limits="k", delay="1m")
    await e.advance("1m")
    await e.beat()
    assert await e.claims(9) == []
    assert await e.parked("a") == "limit:k"
    await e.finish(holder)
    assert await e.claims(9) == ["a"]


async def test_a_beat_unparks_what_is_due(e: Scene) -> None:
    await e.beat()
    await e.add("a", delay="1s")
    await e.beat()
    assert (await e.task("a")).parked == "time"
    await e.advance("2s")
    await e.beat()
    assert (await e.task("a")).parked is None
