"""Fence: an outcome counts if and only if the task runs under exactly that fence."""

from __future__ import annotations

from outlast.core.model import Charge, NewEvent, Step

from .language import Scene


async def test_every_claim_draws_another_fence(e: Scene) -> None:
    await e.add("a")
    fences = set()
    for _ in range(5):
        [a] = await e.claim()
        fences.add(a.fence)
        await e.fail(a)
    assert len(fences) == 5


async def test_a_wrong_fence_changes_nothing_and_is_told(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.refused(a, fence=a.fence + 1)
    await e.finish(a)


async def test_an_outcome_for_an_unknown_task_is_lost(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.finish(a)
    await e.forget("a")
    await e.refused(a)


async def test_an_outcome_without_a_lease_is_lost(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.release(a)
    for state in ("running", "completed", "pending", "dead", "cancelled"):
        await e.refused(a, state)
    assert await e.statuses() == {"a": "ready"}


async def test_the_outcome_of_an_evicted_worker_is_lost(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim(1, "w1")
    await e.vanish("w1")
    await e.refused(a)
    deal = await e.beat("w1")
    assert deal.evicted


async def test_the_old_owner_cannot_disturb_the_new_one(e: Scene) -> None:
    await e.add("a")
    [old] = await e.claim(1, "w1")
    await e.vanish("w1")
    await e.advance("1m")
    [new] = await e.claim(1, "w2")
    for state in ("running", "completed", "pending", "dead", "cancelled"):
        await e.refused(old, state)
    await e.finish(new, "new")
    await e.refused(old)
    assert (await e.task("a")).result == b'"new"'


async def test_a_stale_report_writes_nothing_at_all(e: Scene) -> None:
    """Steps, events, children, progress, charges and pauses are as fenced as the outcome."""
    await e.limit("k", slots=5, trip={"volume": 1})
    await e.add("a", limits="k")
    [old] = await e.claim(1, "w1")
    await e.vanish("w1")
    await e.advance("1m")
    await e.refused(
        old,
        "running",
        progress={"percent": 99},
        steps=[Step("s", b"1")],
        events=[NewEvent(kind="chunk", data=b'"x"', task_id=old.id)],
        spawn=[e.new("child")],
        charges=[Charge("k", ok=False)],
        pauses=[("k", 60_000)],
    )
    assert await e.found("child") is None
    gauge = await e.gauge("k")
    assert (gauge.used, gauge.circuit, gauge.paused_until) == (0, "closed", None)
    [new] = await e.claim(1, "w2")
    assert new.steps == ()


async def test_a_stale_outcome_does_not_hold_up_the_others(e: Scene) -> None:
    await e.add("a", "b", "c")
    a, b, c = await e.claim(3)
    await e.release(b)
    deal = await e.hand(*[e.patch(lease, "completed") for lease in (a, b, c)])
    assert deal.lost == ((b.id, b.fence),)
    assert await e.statuses() == {"a": "completed", "b": "ready", "c": "completed"}


async def test_the_same_final_outcome_again_is_accepted(e: Scene) -> None:
    await e.add("a", "b", "c")
    for lease, state in zip(await e.claim(3), ("completed", "dead", "cancelled"), strict=True):
        outcome = e.patch(lease, state, result=1)
        assert (await e.hand(outcome)).lost == ()
        before = await e.everything()
        assert (await e.hand(outcome)).lost == ()
        assert await e.everything() == before


async def test_the_same_final_outcome_twice_in_one_turn(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    deal = await e.hand(e.patch(a, "completed"), e.patch(a, "completed"))
    assert deal.lost == ()
    assert await e.log("a") == ["ready", "running", "completed"]


async def test_another_final_outcome_is_refused(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.finish(a)
    await e.refused(a, "dead")
    await e.refused(a, "pending")
    await e.refused(a, "running")


async def test_a_final_outcome_of_an_earlier_lease_is_refused(e: Scene) -> None:
    await e.add("a")
    [first] = await e.claim()
    await e.fail(first)
    [second] = await e.claim()
    await e.finish(second)
    await e.refused(first)


async def test_a_repeated_final_outcome_after_a_redrive_is_refused(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.die(a)
    await e.redrive("a")
    await e.refused(a, "dead")
    [again] = await e.claim()
    await e.refused(a, "dead")
    await e.finish(again)


async def test_reports_and_the_end_in_one_turn(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    deal = await e.hand(
        e.patch(a, "running", steps=[Step("s", b"1")]),
        e.patch(a, "running", progress={"percent": 50}),
        e.patch(a, "completed"),
    )
    assert deal.lost == ()
    assert await e.log("a") == ["ready", "running", "step", "progress", "completed"]


async def test_a_report_after_the_end_in_one_turn_is_lost(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    deal = await e.hand(e.patch(a, "completed"), e.patch(a, "running", progress={"percent": 50}))
    assert deal.lost == ((a.id, a.fence),)
    assert (await e.task("a")).progress is None


async def test_a_late_outcome_before_the_sweep_still_counts(e: Scene) -> None:
    """The lease has ended, but nobody took the task: the work is done, so it is recorded."""
    await e.add("a")
    [a] = await e.claim()
    await e.advance("1h")
    await e.finish(a)
    assert await e.statuses() == {"a": "completed"}
