"""Sweep: what nobody's turn takes care of. Bounded, idempotent, safe from everywhere at once."""

from __future__ import annotations

import asyncio

import pytest

from outlast.core.limits import Limit

from .language import Scene

JITTER_MS = 30_000
"""The most that a rescue may be put off."""


# eviction ----------------------------------------------------------------------------------------


async def test_a_lost_workers_tasks_run_again_in_the_retry_lane(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim(1, "w1")
    await e.advance("11s")
    before = await e.now()
    swept = await e.sweep()
    assert (swept.rescued, swept.died, swept.workers) == (1, 0, 1)
    task = await e.task("a")
    assert (task.lane, task.losses, task.attempt, task.number) == ("retry", 1, 0, 1)
    assert task.status in ("ready", "retrying")
    assert before <= task.run_at <= await e.now() + JITTER_MS
    assert await e.worker("w1") is None
    await e.advance("30s")
    [again] = await e.claim(1, "w2")
    assert again.fence != a.fence
    assert (again.attempt, again.number, again.losses) == (1, 2, 1)


async def test_a_beating_worker_is_left_alone(e: Scene) -> None:
    await e.add("a", "b")
    await e.claim(1, "w1")
    await e.claim(1, "w2")
    await e.advance("8s")
    await e.beat("w2")
    await e.advance("8s")
    assert (await e.sweep()).rescued == 1
    assert await e.status("b") == "running"
    assert e.name((await e.tasks(status="running"))[0].id) == "b"


async def test_the_lease_is_as_long_as_the_worker_asked(e: Scene) -> None:
    await e.add("a")
    await e.claim(1, "w1", lease="60s")
    await e.advance("59s")
    assert (await e.sweep()).rescued == 0
    await e.advance("2s")
    assert (await e.sweep()).rescued == 1


async def test_rescues_are_spread(e: Scene) -> None:
    await e.add(*[f"t{n}" for n in range(40)])
    await e.claim(40)
    await e.vanish()
    assert len({t.run_at for t in await e.tasks()}) > 10


async def test_losses_are_counted_apart_and_end_the_task(e: Scene) -> None:
    await e.add("a", max_losses=3, max_attempts=1)
    for loss in (1, 2):
        assert await e.claims(1, f"w{loss}") == ["a"]
        swept = await e.vanish()
        assert (swept.rescued, swept.died) == (1, 0)
        assert (await e.task("a")).losses == loss
        await e.advance("30s")
    assert await e.claims(1, "w3") == ["a"]
    swept = await e.vanish()
    assert (swept.rescued, swept.died) == (0, 1)
    task = await e.task("a")
    assert (task.status, task.reason, task.losses) == ("dead", "stalled", 3)
    assert task.completed_at is not None
    assert (await e.log("a"))[-1] == "dead"


async def test_a_loss_is_in_the_history(e: Scene) -> None:
    await e.add("a")
    await e.claim()
    await e.vanish()
    assert b'"stalled"' in (await e.task("a")).attempts
    assert "stalled" in (await e.events("a"))[-1].data.decode()


async def test_a_redriven_task_has_fresh_budgets(e: Scene) -> None:
    await e.add("a", max_losses=1)
    await e.claim()
    await e.vanish()
    assert await e.status("a") == "dead"
    await e.redrive("a")
    task = await e.task("a")
    assert (task.losses, task.attempt, task.number) == (0, 0, 1)


async def test_workers_known_to_be_dead_are_not_waited_for(e: Scene) -> None:
    await e.add("a", "b")
    await e.claim(1, "w1")
    await e.claim(1, "w2")
    swept = await e.sweep(gone=["w1", "unheard-of"])
    assert swept.rescued == 1
    assert await e.status("b") == "running"
    assert (await e.beat("w1")).evicted
    assert not (await e.beat("w2")).evicted


async def test_an_evicted_worker_gets_no_work_and_a_new_one_does(e: Scene) -> None:
    await e.add("a", "b")
    await e.claim(1, "w1")
    await e.vanish("w1")
    deal = await e.turn("w1", n=5)
    assert (deal.evicted, deal.leases) == (True, ())
    assert await e.claims(1, "w1b") == ["b"]


async def test_an_idle_lost_worker_disappears(e: Scene) -> None:
    await e.beat("w1")
    await e.vanish("w1")
    assert await e.engine.workers() == []


async def test_an_unknown_worker_without_a_word_about_itself_is_told_so(e: Scene) -> None:
    """Its row is gone: to the engine that is the same as an eviction."""
    deal = await e.turn("w1", info=None)
    assert deal.evicted


async def test_concurrent_sweeps_rescue_once(e: Scene) -> None:
    await e.add("a", "b", "c")
    await e.claim(3)
    await e.advance("11s")
    swept = await asyncio.gather(*[e.engine.sweep() for _ in range(5)])
    assert sum(s.rescued for s in swept) == 3
    assert {t.losses for t in await e.tasks()} == {1}


async def test_a_small_budget_says_more_and_gets_there(e: Scene) -> None:
    await e.add(*[f"t{n}" for n in range(25)])
    await e.claim(25)
    await e.advance("11s")
    swept = await e.engine.sweep(budget=10)
    assert swept.rescued <= 10
    assert swept.more
    total = swept.rescued
    while swept.more:
        swept = await e.engine.sweep(budget=10)
        total += swept.rescued
    assert total == 25
    assert {t.state for t in await e.tasks()} == {"pending"}
    assert (await e.turn("w1", n=1)).evicted


async def test_a_half_evicted_worker_cannot_come_back(e: Scene) -> None:
    await e.add(*[f"t{n}" for n in range(20)])
    leases = await e.claim(20)
    await e.advance("11s")
    await e.engine.sweep(budget=5)
    assert (await e.beat("w1")).evicted
    await e.sweep()
    assert {t.state for t in await e.tasks()} == {"pending"}
    assert (await e.hand(*[e.patch(x, "completed") for x in leases])).lost == tuple(
        (x.id, x.fence) for x in leases
    )


async def test_nor_with_a_beat_while_nothing_comes_due(e: Scene) -> None:
    await e.add(*[f"t{n}" for n in range(20)], max_losses=1)
    await e.claim(20)
    await e.advance("11s")
    await e.engine.sweep(budget=5)
    assert (await e.beat("w1")).evicted
    assert (await e.counts("status")).get("dead") == 5


async def test_a_second_sweep_does_nothing(e: Scene) -> None:
    await e.add("a")
    await e.claim()
    await e.vanish()
    await e.advance("30s")
    await e.sweep()
    before = await e.everything()
    swept = await e.sweep()
    assert (swept.rescued, swept.died, swept.workers, swept.unparked) == (0, 0, 0, 0)
    assert await e.everything() == before


# age ---------------------------------------------------------------------------------------------


async def test_a_task_that_waited_too_long_dies(e: Scene) -> None:
    await e.add("a", max_age="1h")
    await e.add("b", max_age="2h")
    await e.advance("61m")
    assert (await e.sweep()).expired == 1
    a = await e.task("a")
    assert (a.status, a.reason) == ("dead", "expired")
    assert await e.log("a") == ["ready", "dead"]
    assert await e.status("b") == "ready"


async def test_max_age_counts_from_when_it_is_due(e: Scene) -> None:
    await e.add("a", max_age="1h", delay="2h")
    await e.advance("150m")
    await e.sweep()
    assert await e.status("a") == "ready"
    await e.advance("31m")
    await e.sweep()
    assert await e.status("a") == "dead"


async def test_what_was_throttled_or_released_has_its_age_still(e: Scene) -> None:
    """A service that says 429 for ever does not keep it young."""
    await e.add("a", limits="k", max_age="1h")
    await e.add("b", max_age="1h")
    for _ in range(2):
        await e.advance("29m")
        [a, b] = await e.claim(2)
        await e.snooze(a, pauses=[("k", 1_000)])
        await e.release(b)
    await e.sweep()
    assert await e.status("b") == "ready"
    await e.advance("3m")
    assert (await e.sweep()).expired == 2
    assert (await e.task("a")).reason == "expired"


async def test_what_failed_is_due_anew(e: Scene) -> None:
    await e.add("a", max_age="1h")
    await e.advance("50m")
    [a] = await e.claim(1)
    await e.fail(a, "20m")
    await e.advance("30m")
    assert (await e.sweep()).expired == 0
    assert await e.status("a") == "ready"


async def test_a_running_task_does_not_expire(e: Scene) -> None:
    await e.add("a", max_age="1m")
    await e.claim(1, lease="1h")
    await e.advance("2m")
    assert (await e.sweep()).expired == 0
    assert await e.status("a") == "running"


async def test_whatever_it_waits_for_it_expires(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("holder", limits="k")
    await e.claim(1, lease="1d")
    await e.add("limited", limits="k", max_age="1h")
    await e.claim(9, lease="1d")
    await e.add("held", hold="go", max_age="1h")
    await e.add("dependent", after="holder", max_age="1h")
    await e.advance("61m")
    assert (await e.sweep()).expired == 3
    assert (await e.gauge("k")).waiting == 0


# overdue -----------------------------------------------------------------------------------------


async def test_overdue_is_told_once_and_the_work_goes_on(e: Scene) -> None:
    await e.add("a", overdue_after="5m")
    [a] = await e.claim(1, lease="1h")
    task = await e.task("a")
    assert task.overdue_at == task.run_at + 300_000
    await e.advance("4m")
    assert (await e.sweep()).overdue == 0
    await e.advance("2m")
    assert (await e.sweep()).overdue == 1
    assert (await e.sweep()).overdue == 0
    assert (await e.log("a")).count("overdue") == 1
    assert await e.status("a") == "running"
    await e.finish(a)


async def test_a_finished_task_is_not_overdue(e: Scene) -> None:
    await e.add("a", overdue_after="5m")
    [a] = await e.claim()
    await e.finish(a)
    await e.advance("10m")
    await e.sweep()
    assert "overdue" not in await e.log("a")


async def test_a_waiting_task_is_overdue_too(e: Scene) -> None:
    await e.add("a", overdue_after="5m")
    await e.advance("6m")
    await e.sweep()
    assert (await e.log("a")).count("overdue") == 1


# retention ---------------------------------------------------------------------------------------


async def end(e: Scene, name: str, how: str = "completed") -> None:
    await e.add(name)
    [lease] = await e.claim()
    assert (await e.hand(e.patch(lease, how, result="x" * 100))).lost == ()


async def test_nothing_is_forgotten_by_default(e: Scene) -> None:
    await end(e, "a")
    await e.advance("3650d")
    assert (await e.sweep()).forgotten == 0
    assert await e.status("a") == "completed"


async def test_retention_by_age_and_state(e: Scene) -> None:
    await e.put("retention", "completed", {"age_ms": 3_600_000})
    await end(e, "old")
    await end(e, "dead", "dead")
    await e.advance("50m")
    await end(e, "young")
    await e.advance("20m")
    await e.add("living")
    assert (await e.sweep()).forgotten == 1
    assert await e.statuses() == {"dead": "dead", "living": "ready", "young": "completed"}
    assert await e.events("old") == []


async def test_retention_by_count_keeps_the_newest(e: Scene) -> None:
    await e.put("retention", "dead", {"count": 2})
    for name in ("a", "b", "c", "d"):
        await end(e, name, "dead")
        await e.advance("1s")
    await e.sweep()
    assert set(await e.statuses()) == {"c", "d"}


async def test_retention_by_bytes_keeps_the_newest(e: Scene) -> None:
    await e.put("retention", "completed", {"bytes": 250})
    for name in ("a", "b", "c", "d"):
        await end(e, name)
        await e.advance("1s")
    await e.sweep()
    assert set(await e.statuses()) == {"c", "d"}


@pytest.mark.parametrize("rule", [{"age_ms": 60_000}, {"count": 2}, {"bytes": 10_000}, {}], ids=str)
async def test_a_rule_with_nothing_to_forget_forgets_nothing(
    e: Scene, rule: dict[str, int]
) -> None:
    for state in ("completed", "cancelled", "dead", "log"):
        await e.put("retention", state, rule)
    assert (await e.sweep()).forgotten == 0
    await end(e, "one")
    assert (await e.sweep()).forgotten == 0
    await end(e, "two")
    await end(e, "dead", "dead")
    await e.add("living")
    assert (await e.sweep()).forgotten == 0
    assert len(await e.statuses()) == 4
    assert await e.log("one") == ["ready", "running", "completed"]


async def test_retention_spares_a_task_whose_key_is_still_taken(e: Scene) -> None:
    """An Idempotency-Key holds for a day, whatever is kept of the task."""
    await e.put("retention", "completed", {"age_ms": 3_600_000})
    await e.add("a", unique_key="k", unique_for_ms=86_400_000)
    [a] = await e.claim()
    await e.finish(a)
    await e.advance("23h")
    assert (await e.sweep()).forgotten == 0
    [receipt] = await e.add("b", unique_key="k")
    assert (e.name(receipt.id), receipt.existing) == ("a", True)
    await e.advance("2h")
    assert (await e.sweep()).forgotten == 1


async def test_expired_records_go(e: Scene) -> None:
    await e.put("note", "a", 1, ttl_ms=60_000)
    await e.put("note", "b", 1)
    await e.advance("2m")
    await e.sweep()
    assert [r.key for r in await e.engine.get("note")] == ["b"]


async def test_an_expired_limit_definition_lets_waiters_through(e: Scene) -> None:
    await e.put("limit", "k", Limit("k", slots=1).to_json(), ttl_ms=60_000)
    await e.add("a", "b", limits="k")
    assert await e.claims(9, lease="1h") == ["a"]
    await e.advance("2m")
    await e.sweep()
    assert await e.claims(9, lease="1h") == ["b"]
