"""Cancel: pending at once; running through its owner; and if the owner dies first, by sweep."""

from __future__ import annotations

from outlast.core.model import Cancel, Step

from .language import Scene


async def test_a_ready_task_is_cancelled_at_once(e: Scene) -> None:
    await e.add("a")
    await e.cancel("a", "changed my mind")
    task = await e.task("a")
    assert (task.status, task.reason) == ("cancelled", "changed my mind")
    assert task.completed_at is not None
    assert await e.claims() == []
    assert await e.log("a") == ["ready", "cancelled"]


async def test_parked_tasks_are_cancelled_at_once(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("holder", limits="k")
    await e.claim()
    await e.add("limited", limits="k")
    await e.claim(9)
    await e.add("timed", delay="1m")
    await e.add("held", hold="go")
    await e.add("dependent", after="holder")
    for name in ("limited", "timed", "held", "dependent"):
        await e.cancel(name)
        assert await e.status(name) == "cancelled"
    await e.advance("2m")
    await e.sweep(gone=["w1"])
    await e.advance("2m")
    assert await e.claims(9, "w2") == ["holder"]


async def test_the_owner_of_a_running_task_is_told(e: Scene) -> None:
    await e.add("a", "b")
    [a, _] = await e.claim(2)
    await e.cancel("a", "enough")
    task = await e.task("a")
    assert (task.state, task.reason) == ("running", "enough")
    deal = await e.beat("w1")
    assert deal.cancel == ((a.id, "enough"),)
    await e.stop(a, "enough")
    assert await e.status("a") == "cancelled"
    assert (await e.beat("w1")).cancel == ()


async def test_only_the_owner_is_told(e: Scene) -> None:
    await e.add("a", "b")
    await e.claim(1, "w1")
    await e.claim(1, "w2")
    await e.cancel("a")
    assert (await e.beat("w2")).cancel == ()
    assert e.name((await e.beat("w1")).cancel[0][0]) == "a"


async def test_it_is_told_until_it_is_heard(e: Scene) -> None:
    """A lost reply must not lose the cancel."""
    await e.add("a")
    await e.claim()
    await e.cancel("a")
    for _ in range(3):
        assert len((await e.beat()).cancel) == 1


async def test_a_cancelled_attempt_may_still_finish(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.cancel("a")
    await e.finish(a, 1)
    task = await e.task("a")
    assert (task.status, task.result, task.reason) == ("completed", b"1", None)


async def test_a_cancelled_attempt_that_suspends_bears_none_it_was_to_wait_for(e: Scene) -> None:
    """Nobody would read what they do. What undoes its steps is not waited for, and is born."""
    await e.add("a")
    [a] = await e.claim()
    await e.cancel("a", "enough")
    children = [
        e.new("undo", hold="undo"), e.new("b"), e.new("c"), e.new("d", after="b"),
        e.new("e", after="d"), e.new("end", after=("a", "undo"), needs="any"),
    ]  # fmt: skip
    await e.snooze(a, after=("b", "c"), spawn=children, steps=[Step("s", b"1")])
    assert await e.statuses() == {"a": "cancelled", "undo": "blocked", "end": "blocked"}
    assert (await e.task("a")).reason == "enough"
    await e.signal("undo", "undo")
    assert await e.claims(9) == ["undo"]


async def test_a_cancelled_attempt_that_suspends_forgets_whom_it_would_have_waited_for(
    e: Scene,
) -> None:
    """Redriven, it would look for children that are not there."""
    await e.add("a", "b")
    a, b = await e.claim(2)
    await e.report(a, steps=[Step("kept", b"1")])
    await e.cancel("a")
    await e.cancel("b")
    await e.snooze(a, after="c", spawn=[e.new("c")], steps=[Step("called", b"2")])
    await e.snooze(b, spawn=[e.new("undo", hold="undo")], steps=[Step("enqueued", b"3")])
    assert await e.statuses() == {"a": "cancelled", "b": "cancelled", "undo": "blocked"}
    await e.redrive("a")
    await e.redrive("b")
    assert {e.name(lease.id): [s.key for s in lease.steps] for lease in await e.claim(2)} == {
        "a": ["kept"], "b": ["enqueued"],
    }  # fmt: skip


async def test_a_cancelled_attempt_that_suspends_may_bear_none_at_all(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.cancel("a")
    await e.snooze(a, after="b", spawn=[e.new("b", unique_key="k")])
    assert await e.statuses() == {"a": "cancelled"}
    await e.add("other", unique_key="k")
    assert await e.claims(9) == ["other"]


async def test_a_cancelled_attempt_may_report(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.cancel("a")
    deal = await e.report(a, steps=[Step("s", b"1")])
    assert len(deal.cancel) == 1


async def test_a_cancelled_attempt_is_not_tried_again(e: Scene) -> None:
    """Handing it back instead of obeying must not lose the cancel."""
    await e.add("a", "b", "c")
    a, b, c = await e.claim(3)
    for name in ("a", "b", "c"):
        await e.cancel(name, "stop")
    await e.fail(a, "1m")
    await e.release(b)
    await e.snooze(c, park="signal:x")
    assert set((await e.statuses()).values()) == {"cancelled"}
    assert {t.reason for t in await e.tasks()} == {"stop"}


async def test_if_the_lease_ends_first_the_task_is_cancelled(e: Scene) -> None:
    await e.add("a")
    await e.claim()
    await e.cancel("a", "stop")
    await e.vanish()
    task = await e.task("a")
    assert (task.status, task.reason) == ("cancelled", "stop")
    assert (await e.log("a"))[-1] == "cancelled"


async def test_a_leaving_worker_cancels_what_was_to_be_cancelled(e: Scene) -> None:
    await e.add("a")
    await e.claim()
    await e.cancel("a")
    await e.turn("w1", leaving=True)
    assert await e.status("a") == "cancelled"


async def test_cancelling_twice_is_harmless(e: Scene) -> None:
    await e.add("a", "b")
    [_] = await e.claim(1)
    await e.cancel("a", "first")
    await e.alter("a", Cancel("second"))
    assert len((await e.beat()).cancel) == 1
    await e.cancel("b")
    assert await e.refuses("b", Cancel()) == "state"


async def test_a_final_task_is_not_cancelled(e: Scene) -> None:
    await e.add("a", "b")
    [a, b] = await e.claim(2)
    await e.finish(a)
    await e.die(b)
    assert await e.refuses("a", Cancel()) == "state"
    assert await e.refuses("b", Cancel()) == "state"
    assert await e.refuses("nobody", Cancel()) == "not_found"


async def test_a_redriven_task_has_forgotten_its_cancel(
    e: Scene,
) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.cancel("a")
    await e.stop(a)
    await e.redrive("a")
    [_] = await e.claim()
    assert (await e.beat()).cancel == ()
