"""Exchange: outcomes, what is due, claims; one atomic step, and the same turn twice is one turn."""

from __future__ import annotations

import asyncio
import json

from outlast.core.ids import new_fence
from outlast.core.model import Step, Want, WorkerInfo

from .language import Scene, body


async def test_a_claim_gives_a_lease(e: Scene) -> None:
    await e.add("a", payload={"x": 1}, timeout="30s", session_id="s", user_id="u", meta={"m": 1})
    deal = await e.turn("w1", n=1)
    [lease] = deal.leases
    task = await e.task("a")
    assert (task.state, task.status, task.worker) == ("running", "running", "w1")
    assert task.lease_until == deal.now + 10_000
    assert task.started_at == deal.now
    assert (task.attempt, task.number) == (1, 1)
    assert lease.fence > 0
    assert (lease.id, lease.type, lease.queue, lease.lane) == (
        task.id,
        "work",
        "default",
        "primary",
    )
    assert (lease.payload, lease.meta, lease.timeout_ms) == (b'{"x":1}', b'{"m":1}', 30_000)
    assert (lease.attempt, lease.number, lease.max_attempts, lease.losses) == (1, 1, 4, 0)
    assert (lease.priority, lease.session_id, lease.user_id) == (2, "s", "u")
    assert (lease.run_at, lease.created_at) == (task.run_at, task.created_at)
    assert (lease.steps, lease.inbox) == ((), ())
    assert await e.log("a") == ["ready", "running"]


async def test_the_token_of_the_turn_is_the_fence(e: Scene) -> None:
    await e.add("a", "b")
    token = new_fence()
    deal = await e.turn(n=2, token=token)
    assert {lease.fence for lease in deal.leases} == {token}


async def test_a_task_is_leased_once(e: Scene) -> None:
    await e.add("a", "b")
    assert await e.claims(1, "w1") == ["a"]
    assert await e.claims(9, "w2") == ["b"]
    assert await e.claims(9, "w1") == []


async def test_no_room_no_lease(e: Scene) -> None:
    await e.add("a")
    deal = await e.turn(wants=[Want("default", "primary", 5)], room=0)
    assert deal.leases == ()
    assert await e.statuses() == {"a": "ready"}


async def test_room_bounds_the_wants(e: Scene) -> None:
    await e.add("a", "b", "c")
    deal = await e.turn(wants=[Want("default", "primary", 9)], room=2)
    assert e.names(deal.leases) == ["a", "b"]


async def test_only_the_wanted_queues_are_served(e: Scene) -> None:
    await e.add("a", queue="x")
    await e.add("b", queue="y")
    assert await e.claims(9, queue="y") == ["b"]
    assert await e.claims(9, queue="z") == []


async def test_wants_come_in_their_order_and_then_fill_the_room(e: Scene) -> None:
    await e.add("x1", "x2", "x3", queue="x")
    await e.add("y1", "y2", "y3", queue="y")
    wants = [Want("y", "primary", 1), Want("x", "primary", 1)]
    deal = await e.turn(wants=wants, room=5)
    assert e.names(deal.leases) == ["y1", "x1", "y2", "y3", "x2"]


async def test_outcomes_are_applied_before_the_claim(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    deal = await e.hand(e.patch(a, "pending", verdict="failed", lane="retry"), n=1)
    [again] = deal.leases
    assert e.name(again.id) == "a"
    assert again.fence != a.fence
    assert (again.attempt, again.lane) == (2, "retry")


async def test_a_finished_task_makes_room_for_its_dependent_in_the_same_turn(e: Scene) -> None:
    await e.add("a")
    await e.add("b", after="a")
    [a] = await e.claim(9)
    deal = await e.hand(e.patch(a, "completed"), n=9)
    assert e.names(deal.leases) == ["b"]


async def test_a_freed_slot_is_taken_in_the_same_turn(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("a", "b", limits="k")
    [a] = await e.claim(9)
    deal = await e.hand(e.patch(a, "completed"), n=9)
    assert e.names(deal.leases) == ["b"]


async def test_what_is_due_is_claimed_without_a_sweep(e: Scene) -> None:
    await e.add("a", delay="1m")
    assert await e.claims() == []
    await e.advance("1m")
    assert await e.claims() == ["a"]


async def test_the_same_turn_again_gets_the_same_leases(e: Scene) -> None:
    await e.add("a", "b", "c")
    token = new_fence()
    first = await e.turn(n=2, token=token)
    again = await e.turn(n=2, token=token)
    assert sorted(e.names(again.leases)) == sorted(e.names(first.leases)) == ["a", "b"]
    assert again.leases[0].attempt == 1
    assert await e.statuses() == {"a": "running", "b": "running", "c": "ready"}
    assert await e.log("a") == ["ready", "running"]


async def test_the_same_turn_again_gives_only_what_is_still_held(e: Scene) -> None:
    await e.add("a", "b")
    token = new_fence()
    [a, _] = (await e.turn(n=2, token=token)).leases
    await e.finish(a)
    again = await e.turn(n=2, token=token)
    assert e.names(again.leases) == ["b"]


async def test_a_repeated_empty_turn_stays_empty(e: Scene) -> None:
    """Its reply was lost; work that came since belongs to the next turn."""
    token = new_fence()
    assert (await e.turn(n=1, token=token)).leases == ()
    await e.add("a")
    assert (await e.turn(n=1, token=token)).leases == ()
    assert await e.claims() == ["a"]


async def test_a_turn_that_is_repeated_often_makes_no_other_forgotten(e: Scene) -> None:
    await e.add("a", "b")
    first, second = new_fence(), new_fence()
    await e.turn(n=1, token=first)
    for _ in range(10):
        assert e.names((await e.turn(n=1, token=second)).leases) == ["b"]
    assert e.names((await e.turn(n=1, token=first)).leases) == ["a"]


async def test_a_repeated_turn_repeats_no_outcome(e: Scene) -> None:
    await e.add("a", "b")
    [a, b] = await e.claim(2)
    token = new_fence()
    outcomes = [
        e.patch(a, "running", steps=[Step("s", b"1")], spawn=[e.new("child")]),
        e.patch(b, "pending", verdict="failed", lane="retry", delay="1m"),
    ]
    await e.turn(outcomes=outcomes, token=token)
    before = await e.everything()
    deal = await e.turn(outcomes=outcomes, token=token)
    assert deal.lost == ()
    assert await e.everything() == before


async def test_next_due_lets_a_worker_sleep_long_enough(e: Scene) -> None:
    deal = await e.turn(n=1)
    assert deal.next_due is None
    await e.add("a", delay="5m")
    await e.add("b", delay="1m")
    deal = await e.turn(n=1)
    assert deal.next_due == (await e.task("b")).run_at


async def test_deal_tells_the_engines_time(e: Scene) -> None:
    before = await e.now()
    deal = await e.turn()
    assert before <= deal.now <= await e.now()
    await e.advance("1h")
    assert (await e.turn()).now >= before + 3_600_000


async def test_a_turn_registers_the_worker_and_renews_its_lease(e: Scene) -> None:
    info = WorkerInfo(host="h", pid=7, queues=("default",), types=("work",), slots=4, version="1")
    await e.add("a")
    deal = await e.turn("w1", n=1, info=info, lease="20s")
    worker = await e.worker("w1")
    assert worker is not None
    assert (worker.info, worker.running, worker.alive) == (info, 1, True)
    assert (worker.seen_at, worker.lease_until) == (deal.now, deal.now + 20_000)
    await e.advance("15s")
    deal = await e.beat("w1", lease="20s")
    worker = await e.worker("w1")
    assert worker is not None
    assert (worker.info, worker.lease_until) == (info, deal.now + 20_000)
    await e.advance("21s")
    worker = await e.worker("w1")
    assert worker is not None
    assert not worker.alive


async def test_one_beat_keeps_all_leases(e: Scene) -> None:
    await e.add("a", "b")
    await e.claim(1, "w1")
    await e.advance("9s")
    await e.claim(1, "w1")
    await e.advance("9s")
    await e.sweep()
    assert await e.statuses() == {"a": "running", "b": "running"}


async def test_a_silent_worker_looks_stalled_before_it_is_swept(e: Scene) -> None:
    await e.add("a")
    await e.claim()
    await e.advance("11s")
    assert await e.statuses() == {"a": "stalled"}


async def test_a_leaving_worker_releases_what_it_holds_at_no_cost(e: Scene) -> None:
    await e.add("a", "b")
    [a, _] = await e.claim(2)
    await e.hand(e.patch(a, "completed"), leaving=True)
    assert await e.statuses() == {"a": "completed", "b": "ready"}
    b = await e.task("b")
    assert (b.attempt, b.losses, b.lane) == (0, 0, "primary")
    assert await e.worker("w1") is None
    assert await e.claims(9, "w2") == ["b"]


async def test_a_paused_queue_is_not_served(e: Scene) -> None:
    await e.add("a", "b")
    await e.add("other", queue="other")
    [a] = await e.claim()
    await e.pause("default")
    deal = await e.hand(e.patch(a, "completed"), n=9, queue=["default", "other"])
    assert deal.lost == ()
    assert e.names(deal.leases) == ["other"]
    assert not deal.again
    assert await e.statuses() == {"a": "completed", "b": "ready", "other": "running"}
    await e.resume("default")
    assert await e.claims(9) == ["b"]


async def test_a_paused_queue_goes_on_collecting(e: Scene) -> None:
    await e.pause()
    await e.add("a")
    await e.add("b", delay="1m")
    await e.advance("2m")
    assert await e.claims(9) == []
    await e.sweep()
    assert await e.statuses() == {"a": "ready", "b": "ready"}
    await e.resume()
    assert await e.claims(9) == ["a", "b"]


async def test_pressure_counts_the_ready_retries(e: Scene) -> None:
    await e.add("a", "b", lane="retry")
    await e.add("c", lane="retry", delay="1m")
    await e.add("d")
    await e.add("x", queue="x", lane="retry")
    wants = [Want("default", "primary", 1), Want("default", "retry", 1)]
    deal = await e.turn(wants=wants, room=0, pressure=True)
    assert deal.pressure == {"default": 2}
    assert (await e.turn(wants=wants, room=0)).pressure == {}


async def test_outcomes_of_many_tasks_in_one_turn(e: Scene) -> None:
    await e.add("a", "b", "c", "d")
    a, b, c, d = await e.claim(4)
    deal = await e.hand(
        e.patch(a, "completed", result=1),
        e.patch(b, "pending", verdict="failed", lane="retry", delay="1m"),
        e.patch(c, "dead", verdict="failed", reason="permanent"),
        e.patch(d, "cancelled", verdict="cancelled", reason="skipped"),
    )
    assert deal.lost == ()
    assert await e.statuses() == {
        "a": "completed", "b": "retrying", "c": "dead", "d": "cancelled",
    }  # fmt: skip
    assert (await e.task("a")).result == b"1"
    assert (await e.task("c")).reason == "permanent"
    assert (await e.task("d")).reason == "skipped"


async def test_an_outcome_writes_the_record(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.report(a, progress={"percent": 40})
    assert (await e.task("a")).progress == b'{"percent":40}'
    deal = await e.fail(
        a, "1m", error={"type": "T", "message": "m"}, fingerprint="f1", timeout_ms=9_000
    )
    task = await e.task("a")
    assert (task.status, task.lane, task.fingerprint) == ("retrying", "retry", "f1")
    assert (task.error, task.timeout_ms) == (body({"type": "T", "message": "m"}), 9_000)
    assert (task.run_at, task.retry_at) == (deal.now + 60_000, deal.now + 60_000)
    assert (task.worker, task.lease_until) == (None, None)
    await e.advance("1m")
    [a] = await e.claim()
    assert (a.attempt, a.number, a.timeout_ms) == (2, 2, 9_000)
    deal = await e.finish(a, {"ok": True})
    task = await e.task("a")
    assert (task.status, task.result, task.completed_at) == ("completed", b'{"ok":true}', deal.now)


async def test_attempts_are_kept_in_the_record(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.fail(a, error={"type": "T"})
    [a] = await e.claim()
    await e.release(a)
    [a] = await e.claim()
    await e.finish(a)
    attempts = json.loads((await e.task("a")).attempts)
    assert [x["outcome"] for x in attempts] == ["failed", "released", "succeeded"]
    assert [x["number"] for x in attempts] == [1, 2, 3]
    assert [x["lane"] for x in attempts] == ["primary", "retry", "retry"]
    assert {x["worker"] for x in attempts} == {"w1"}
    assert all(x["started_at"] <= x["ended_at"] for x in attempts)
    assert attempts[0]["error"]["type"] == "T"


async def test_the_history_of_attempts_is_bounded(e: Scene) -> None:
    await e.add("a", max_attempts=200)
    for _ in range(60):
        [a] = await e.claim()
        await e.fail(a)
    numbers = [x["number"] for x in json.loads((await e.task("a")).attempts)]
    assert numbers == [*range(1, 26), *range(36, 61)]


async def test_released_and_waiting_cost_no_attempt(e: Scene) -> None:
    await e.add("a")
    for _ in range(3):
        [a] = await e.claim()
        assert a.attempt == 1
        await e.snooze(a)
    [a] = await e.claim()
    assert (a.attempt, a.number) == (1, 4)
    await e.fail(a)
    [a] = await e.claim()
    assert (a.attempt, a.number) == (2, 5)


async def test_concurrent_workers_share_and_never_double(e: Scene) -> None:
    await e.add(*[f"t{n}" for n in range(40)])
    hands = await asyncio.gather(*[e.claim(3, f"w{n}") for n in range(10)])
    got = [e.name(lease.id) for hand in hands for lease in hand]
    assert len(got) == len(set(got)) == 30


async def test_a_completed_task_has_no_error(e: Scene) -> None:
    """What went wrong before is in its history."""
    await e.add("a")
    [a] = await e.claim()
    await e.fail(a)
    assert (await e.task("a")).error is not None
    [a] = await e.claim()
    await e.finish(a)
    task = await e.task("a")
    assert (task.error, task.fingerprint) == (None, None)
    assert b"Oops" in task.attempts


async def test_a_lease_knows_how_many_losses_are_left(e: Scene) -> None:
    await e.add("a", max_losses=7)
    [a] = await e.claim()
    assert (a.losses, a.max_losses) == (0, 7)
