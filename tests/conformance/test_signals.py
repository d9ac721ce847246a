"""Signals: an inbox per task; parking on a name looks into it first, so none is lost."""

from __future__ import annotations

from typing import Any

from outlast.core.model import Signal

from .language import Scene


async def park(e: Scene, name: str, signal: str, **more: Any) -> None:
    """One attempt of the task that suspends itself until the signal."""
    [lease] = await e.claim()
    assert e.name(lease.id) == name
    await e.snooze(lease, park=f"signal:{signal}", **more)


async def test_a_held_task_waits_for_its_signal(e: Scene) -> None:
    await e.add("a", hold="go")
    assert await e.claims() == []
    await e.signal("a", "other")
    assert await e.claims() == []
    await e.signal("a", "go", {"by": "ada"})
    [a] = await e.claim()
    assert [(s.name, s.data) for s in a.inbox] == [("other", b"null"), ("go", b'{"by":"ada"}')]
    assert a.attempt == 1


async def test_a_suspended_attempt_wakes_with_the_signal(e: Scene) -> None:
    await e.add("a")
    await park(e, "a", "reply")
    task = await e.task("a")
    assert (task.status, task.parked, task.attempt) == ("blocked", "signal:reply", 0)
    await e.signal("a", "reply", 42)
    [a] = await e.claim()
    assert [(s.name, s.data) for s in a.inbox] == [("reply", b"42")]
    assert (a.attempt, a.number, a.lane) == (1, 2, "primary")


async def test_a_signal_before_the_wait_is_not_lost(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.signal("a", "reply", 1)
    await e.snooze(a, park="signal:reply")
    assert (await e.task("a")).parked is None
    [a] = await e.claim()
    assert len(a.inbox) == 1


async def test_a_signal_before_the_first_attempt_is_there_later(e: Scene) -> None:
    await e.add("a", delay="1m")
    await e.signal("a", "reply", 1)
    await e.advance("1m")
    [a] = await e.claim()
    assert [s.name for s in a.inbox] == ["reply"]
    await e.snooze(a, park="signal:reply")
    assert await e.claims() == ["a"]


async def test_the_kth_signal(e: Scene) -> None:
    """`awaits` counts all of that name that ever came, so a replayed handler waits for its k-th."""
    await e.add("a")
    await park(e, "a", "vote", awaits=3)
    assert (await e.task("a")).awaits == 3
    await e.signal("a", "vote", 1)
    await e.signal("a", "noise")
    await e.signal("a", "vote", 2)
    assert await e.claims() == []
    await e.signal("a", "vote", 3)
    [a] = await e.claim()
    assert [s.data for s in a.inbox if s.name == "vote"] == [b"1", b"2", b"3"]
    await e.snooze(a, park="signal:vote", awaits=4)
    assert await e.claims() == []
    await e.signal("a", "vote", 4)
    assert await e.claims() == ["a"]


async def test_a_wait_may_end_by_time(e: Scene) -> None:
    await e.add("a")
    await park(e, "a", "reply", delay="1m")
    assert await e.status("a") == "blocked"
    await e.advance("59s")
    assert await e.claims() == []
    await e.advance("1s")
    [a] = await e.claim()
    assert a.inbox == ()


async def test_a_signal_in_time_beats_the_timeout(e: Scene) -> None:
    await e.add("a")
    await park(e, "a", "reply", delay="1m")
    await e.signal("a", "reply")
    [a] = await e.claim()
    await e.finish(a)
    await e.advance("2m")
    await e.sweep()
    assert await e.statuses() == {"a": "completed"}


async def test_another_name_does_not_wake(e: Scene) -> None:
    await e.add("a")
    await park(e, "a", "reply")
    await e.signal("a", "repl")
    await e.signal("a", "reply2")
    assert await e.claims() == []


async def test_a_woken_task_meets_its_limits_again(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("a", limits="k")
    await park(e, "a", "reply")
    await e.add("b", limits="k")
    [b] = await e.claim()
    await e.signal("a", "reply")
    assert await e.claims(9) == []
    assert await e.parked("a") == "limit:k"
    await e.finish(b)
    assert await e.claims(9) == ["a"]


async def test_a_running_task_collects_signals(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.signal("a", "x", 1)
    await e.signal("a", "x", 2)
    await e.fail(a)
    [a] = await e.claim()
    assert [s.data for s in a.inbox] == [b"1", b"2"]


async def test_a_finished_task_takes_no_signal(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.finish(a)
    assert await e.refuses("a", Signal("x")) == "state"
    assert await e.refuses("nobody", Signal("x")) == "not_found"


async def test_a_signal_is_news(e: Scene) -> None:
    await e.add("a")
    await e.signal("a", "go", {"x": 1})
    events = [x for x in await e.events("a") if x.kind == "signal"]
    assert len(events) == 1
    assert b'"go"' in events[0].data


async def test_the_inbox_tells_when(e: Scene) -> None:
    await e.add("a")
    before = await e.now()
    await e.signal("a", "go")
    [a] = await e.claim()
    assert before <= a.inbox[0].at <= await e.now()


async def test_a_loss_keeps_the_inbox(e: Scene) -> None:
    await e.add("a")
    await e.claim()
    await e.signal("a", "go", 1)
    await e.vanish()
    await e.advance("1m")
    [a] = await e.claim(1, "w2")
    assert [s.data for s in a.inbox] == [b"1"]


async def test_what_was_held_is_held_again(e: Scene) -> None:
    """Redriven or restored, it still waits for the word it never heard; heard once is enough."""
    await e.batch(e.new("up"), e.new("down", after="up", hold="go"), e.new("heard", hold="go"))
    await e.signal("heard", "go")
    for name in ("up", "heard"):
        await e.cancel(name)
        await e.redrive(name)
    leases = await e.claim(9)
    assert sorted(e.names(leases)) == ["heard", "up"]
    await e.finish(next(lease for lease in leases if e.name(lease.id) == "up"))
    assert await e.parked("down") == "signal:go"
    await e.cancel("down")
    await e.redrive("down")
    assert await e.parked("down") == "signal:go"
    await e.signal("down", "go")
    assert await e.claims(9) == ["down"]
