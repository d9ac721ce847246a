"""Limits: all or none, slots belong to leases, and whoever waits at an open gate gets through."""

from __future__ import annotations

import json

import pytest

from outlast.core.limits import Limit
from outlast.core.model import Cancel, Charge, Deal, Lease

from .language import Scene

FAILED = (Charge("k", ok=False),)
FINE = (Charge("k", ok=True),)


# slots -------------------------------------------------------------------------------------------


async def test_no_more_leases_than_slots(e: Scene) -> None:
    await e.limit("k", slots=2)
    await e.add("a", "b", "c", limits="k")
    assert await e.claims(9) == ["a", "b"]
    assert await e.claims(9, "w2") == []
    assert await e.parked("c") == "limit:k"
    gauge = await e.gauge("k")
    assert (gauge.used, gauge.waiting, gauge.circuit) == (2, 1, "closed")
    assert set(gauge.holders) == {e.id("a"), e.id("b")}


async def test_others_pass_a_full_limit(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("a", "b", limits="k")
    await e.add("free")
    assert await e.claims(9) == ["a", "free"]


@pytest.mark.parametrize("end", ["finish", "fail", "die", "snooze", "release", "stop"])
async def test_whatever_ends_a_lease_frees_its_slot(e: Scene, end: str) -> None:
    await e.limit("k", slots=1)
    await e.add("a", "b", limits="k")
    [a] = await e.claim(9)
    await getattr(e, end)(a, **({"delay": "1h"} if end in ("fail", "snooze") else {}))
    assert (await e.used("k"))["k"] == 0
    assert await e.claims(1) == (["a"] if end == "release" else ["b"])
    assert (await e.used("k"))["k"] == 1


async def test_an_evicted_worker_holds_no_slots(e: Scene) -> None:
    await e.limit("k", slots=2)
    await e.add("a", "b", "c", limits="k")
    await e.claim(2, "w1")
    await e.claim(1, "w2")
    await e.vanish("w1")
    gauge = await e.gauge("k")
    assert (gauge.used, gauge.holders) == (0, ())
    await e.advance("1m")
    assert len(await e.claim(9, "w3")) == 2
    assert (await e.used("k"))["k"] == 2


async def test_a_leaving_worker_holds_no_slots(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("a", "b", limits="k")
    await e.claim(9, "w1")
    await e.turn("w1", leaving=True)
    assert (await e.used("k"))["k"] == 0
    assert len(await e.claim(9, "w2")) == 1


async def test_a_repeated_outcome_frees_a_slot_once(e: Scene) -> None:
    await e.limit("k", slots=2)
    await e.add("a", "b", "c", "d", limits="k")
    [a, _] = await e.claim(9)
    await e.finish(a)
    await e.finish(a)
    assert (await e.used("k"))["k"] == 1
    assert await e.claims(9) == ["c"]


async def test_a_report_keeps_the_slot(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("a", "b", limits="k")
    [a] = await e.claim(9)
    await e.report(a, progress={"percent": 1})
    assert await e.claims(9) == []


async def test_waiters_go_in_order_of_priority_and_rank(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("a", limits="k")
    [lease] = await e.claim(9)
    await e.add("b", "c", limits="k")
    await e.add("urgent", limits="k", priority=0)
    got = []
    for _ in range(3):
        await e.finish(lease)
        [lease] = await e.claim(9)
        got.append(e.name(lease.id))
    assert got == ["urgent", "b", "c"]


async def test_a_new_task_queues_up_behind_the_waiters(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("a", "b", limits="k")
    [a] = await e.claim(9)
    await e.add("c", limits="k")
    assert await e.parked("c") == "limit:k"
    await e.finish(a)
    [b] = await e.claim(9)
    assert e.name(b.id) == "b"
    await e.finish(b)
    assert await e.claims(9) == ["c"]


async def test_waiters_compete_with_the_ready_in_order(e: Scene) -> None:
    """A freed slot does not let a waiter jump the queue of a busy worker."""
    await e.limit("k", slots=1)
    await e.add("a", limits="k")
    [a] = await e.claim(1)
    await e.add("older")
    await e.add("waiter", limits="k")
    await e.add("younger")
    await e.finish(a)
    assert await e.claims(3) == ["older", "waiter", "younger"]


async def test_waiters_of_several_queues_share_a_key(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("x", queue="x", limits="k")
    [x] = await e.claim(queue="x")
    await e.add("y", queue="y", limits="k")
    await e.add("z", queue="z", limits="k")
    assert await e.claims(9, queue=["y", "z"]) == []
    await e.finish(x)
    [z] = await e.claim(9, queue="z")
    assert e.name(z.id) == "z"
    assert await e.claims(9, queue="y") == []
    await e.finish(z)
    assert await e.claims(9, queue="y") == ["y"]


async def test_a_key_that_refused_in_one_queue_strands_nobody_in_the_next(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("x0", "x1", "x2", queue="x", limits="k")
    [x0] = await e.claim(queue="x")
    await e.add("y", queue="y", limits="k")
    assert await e.claims(9, queue=["x", "y"]) == []
    await e.finish(x0)
    for expected in ("x1", "x2", "y"):
        [lease] = await e.claim(9, queue=["x", "y"])
        assert e.name(lease.id) == expected
        await e.finish(lease)


async def test_a_paused_queue_strands_no_waiter_of_another(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("x", queue="x", limits="k")
    [x] = await e.claim(queue="x")
    await e.add("paused", queue="y", limits="k")
    await e.add("other", queue="z", limits="k")
    assert await e.claims(9, queue=["y", "z"]) == []
    await e.pause("y")
    await e.finish(x)
    assert await e.claims(9, queue=["y", "z"]) == ["other"]


async def test_a_resumed_queue_finds_the_slot_that_was_freed_meanwhile(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("a", "b", limits="k")
    [a] = await e.claim(9)
    await e.pause()
    await e.finish(a)
    assert await e.claims(9) == []
    await e.resume()
    assert await e.claims(9) == ["b"]


async def test_a_cancelled_waiter_strands_nobody(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("a", "b", "c", limits="k")
    [a] = await e.claim(9)
    await e.change("b", Cancel())
    assert (await e.gauge("k")).waiting == 1
    await e.finish(a)
    assert await e.claims(9) == ["c"]


async def test_the_last_waiter_cancelled_leaves_an_open_gate(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("a", "b", limits="k")
    [a] = await e.claim(9)
    await e.change("b", Cancel())
    await e.finish(a)
    assert await e.claims(9) == []
    await e.add("c", limits="k")
    assert await e.claims(9) == ["c"]


# several limits ----------------------------------------------------------------------------------


async def test_all_or_none(e: Scene) -> None:
    await e.limit("x", slots=1)
    await e.limit("y", slots=1)
    await e.add("y0", limits="y")
    await e.claim()
    await e.add("both", limits=["x", "y"])
    assert await e.claims(9) == []
    assert await e.parked("both") == "limit:y"
    assert await e.used("x", "y") == {"x": 0, "y": 1}


async def test_the_first_that_does_not_admit_parks_it(e: Scene) -> None:
    await e.limit("x", slots=1)
    await e.limit("y", slots=1)
    await e.add("x0", limits="x")
    await e.add("y0", limits="y")
    await e.claim(2)
    await e.add("xy", limits=["x", "y"])
    await e.add("yx", limits=["y", "x"])
    assert await e.claims(9) == []
    assert (await e.parked("xy"), await e.parked("yx")) == ("limit:x", "limit:y")


async def test_a_task_that_moves_on_to_its_second_key_strands_nobody_at_the_first(
    e: Scene,
) -> None:
    """The lost wake-up: x is freed once, its first waiter turns out to need y as well."""
    await e.limit("x", slots=1)
    await e.limit("y", slots=1)
    await e.add("x0", limits="x")
    await e.add("y0", limits="y")
    [x0, y0] = await e.claim(2)
    await e.add("both", limits=["x", "y"])
    await e.add("behind", limits="x")
    assert await e.claims(9) == []
    await e.finish(x0)
    [behind] = await e.claim(9)
    assert e.name(behind.id) == "behind"
    assert await e.parked("both") == "limit:y"
    await e.finish(behind)
    await e.finish(y0)
    assert await e.claims(9) == ["both"]


async def test_a_key_freed_while_its_waiter_waits_for_another_is_not_forgotten(e: Scene) -> None:
    await e.limit("x", slots=1)
    await e.limit("y", slots=1)
    await e.add("x0", limits="x")
    await e.add("y0", limits="y")
    [x0, y0] = await e.claim(2)
    await e.add("a", limits=["x", "y"])
    assert await e.claims(9) == []
    await e.finish(y0)
    assert await e.claims(9) == []
    await e.finish(x0)
    assert await e.claims(9) == ["a"]


async def test_many_that_move_on_strand_nobody_either(e: Scene) -> None:
    """More of them than one turn looks at: it says `again`, or it goes on."""
    await e.limit("x", slots=1)
    await e.limit("y", slots=1)
    await e.add("x0", limits="x")
    await e.add("y0", limits="y")
    [x0, _] = await e.claim(2)
    await e.add("first", limits="x")
    assert await e.claims(1) == []
    await e.add(*[f"both{n}" for n in range(700)], limits=["x", "y"], followed=False)
    await e.add("behind", limits="x", priority=3)
    await e.cancel("first")
    await e.finish(x0)
    assert await e.claims(1) == ["behind"]


async def test_many_tasks_on_two_keys_all_get_through(e: Scene) -> None:
    await e.limit("p:*", slots=2)
    await e.limit("u:*", slots=1)
    for n in range(40):
        await e.add(f"t{n}", limits=[f"p:{n % 3}", f"u:{n % 5}"], followed=False)
    done = 0
    for _ in range(200):
        leases = await e.claim(4)
        if not leases:
            break
        gauges = {g.key: g.used for g in await e.engine.gauges()}
        assert all(used <= (2 if key[0] == "p" else 1) for key, used in gauges.items())
        for lease in leases:
            await e.finish(lease)
            done += 1
    assert done == 40


async def test_a_turn_that_only_parked_says_again(e: Scene) -> None:
    """Else a worker would sleep in front of work: 2,000 blocked tasks lie before the free one."""
    await e.limit("k", slots=1)
    await e.add("holder", limits="k")
    await e.add(*[f"t{n}" for n in range(2_000)], limits="k", followed=False)
    await e.add("free")
    assert await e.claims(1) == ["holder"]
    deals: list[Deal] = []
    while not deals or (deals[-1].again and not deals[-1].leases):
        deals.append(await e.turn(n=1))
        assert len(deals) < 500
    assert e.names(deals[-1].leases) == ["free"]


# definitions -------------------------------------------------------------------------------------


async def test_a_raised_limit_lets_waiters_through(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("a", "b", "c", "d", limits="k")
    assert await e.claims(9) == ["a"]
    await e.limit("k", slots=3)
    assert await e.claims(9) == ["b", "c"]


async def test_a_lowered_limit_takes_no_lease_away(e: Scene) -> None:
    await e.limit("k", slots=3)
    await e.add("a", "b", "c", "d", limits="k")
    [a, b, c] = await e.claim(9)
    await e.limit("k", slots=1)
    await e.finish(a)
    await e.finish(b)
    assert await e.claims(9) == []
    await e.finish(c)
    assert await e.claims(9) == ["d"]


async def test_a_removed_definition_lets_everyone_through(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("a", "b", "c", limits="k")
    assert await e.claims(9) == ["a"]
    await e.unlimit("k")
    assert await e.claims(9) == ["b", "c"]


async def test_without_a_definition_nothing_is_limited(e: Scene) -> None:
    await e.add("a", "b", limits="k")
    assert await e.claims(9) == ["a", "b"]
    gauge = await e.gauge("k")
    assert (gauge.limit, gauge.used) == (None, 2)


async def test_a_family_gives_every_key_its_own_gauge(e: Scene) -> None:
    await e.limit("user:*", slots=1)
    await e.add("a1", "a2", limits="user:a")
    await e.add("b1", "b2", limits="user:b")
    assert await e.claims(9) == ["a1", "b1"]


async def test_an_exact_definition_wins_over_its_family(e: Scene) -> None:
    await e.limit("user:*", slots=1)
    await e.limit("user:vip", slots=2)
    await e.add("a", "b", "c", limits="user:vip")
    assert await e.claims(9) == ["a", "b"]


async def test_a_raised_family_lets_waiters_through(e: Scene) -> None:
    await e.limit("user:*", slots=1)
    await e.add("a", "b", limits="user:7")
    assert await e.claims(9) == ["a"]
    await e.limit("user:*", slots=2)
    assert await e.claims(9) == ["b"]


async def test_a_gauge_shows_its_definition(e: Scene) -> None:
    await e.limit("user:*", slots=1)
    await e.add("a", limits="user:7")
    await e.claim()
    gauge = await e.gauge("user:7")
    assert gauge.limit is not None
    assert Limit.from_json(json.loads(gauge.limit)) == Limit("user:*", slots=1)


# rate --------------------------------------------------------------------------------------------


async def test_a_rate_refills_on_engine_time(e: Scene) -> None:
    await e.limit("k", rate="2/min")
    await e.add("a", "b", "c", "d", limits="k")
    assert await e.claims(9) == ["a", "b"]
    await e.advance("29s")
    assert await e.claims(9) == []
    await e.advance("1s")
    assert await e.claims(9) == ["c"]
    await e.advance("60s")
    assert await e.claims(9) == ["d"]


async def test_a_finished_attempt_gives_no_rate_back(e: Scene) -> None:
    await e.limit("k", rate="1/min")
    await e.add("a", "b", limits="k")
    [a] = await e.claim(9)
    await e.finish(a)
    assert await e.claims(9) == []
    await e.advance("1m")
    assert await e.claims(9) == ["b"]


async def test_a_rate_tells_when_to_come_back(e: Scene) -> None:
    await e.limit("k", rate="1/min")
    await e.add("a", "b", limits="k")
    first = await e.turn(n=9)
    deal = first if first.next_due else await e.turn(n=9)
    assert deal.next_due is not None
    assert first.now + 59_000 <= deal.next_due <= first.now + 61_000


async def test_units_weigh(e: Scene) -> None:
    await e.limit("tokens", rate="100/min")
    await e.add("a", limits=[("tokens", 60)])
    await e.add("b", limits=[("tokens", 60)])
    assert await e.claims(9) == ["a"]
    await e.advance("12s")
    assert await e.claims(9) == ["b"]


async def test_what_was_really_used_is_charged_afterwards(e: Scene) -> None:
    await e.limit("tokens", rate="100/min")
    await e.add("a", "b", limits=[("tokens", 10)])
    [a] = await e.claim(1)
    await e.finish(a, charges=[Charge("tokens", units=150)])
    assert await e.claims(9) == []
    await e.advance("35s")
    assert await e.claims(9) == []
    await e.advance("10s")
    assert await e.claims(9) == ["b"]


async def test_more_units_than_the_rate_still_pass_once(e: Scene) -> None:
    await e.limit("tokens", rate="100/min")
    await e.add("huge", limits=[("tokens", 250)])
    await e.add("b", limits=[("tokens", 1)])
    assert await e.claims(9) == ["huge"]
    await e.advance("1m")
    assert await e.claims(9) == []
    await e.advance("2m")
    assert await e.claims(9) == ["b"]


async def test_waiters_behind_a_rate_need_no_sweep(e: Scene) -> None:
    await e.limit("k", rate="10/s")
    await e.add(*[f"t{n}" for n in range(30)], limits="k")
    got = 0
    for _ in range(5):
        got += len(await e.claim(30))
        await e.advance("1s")
    assert got == 30


# pauses ------------------------------------------------------------------------------------------


async def test_a_pause_closes_the_key_for_everyone(e: Scene) -> None:
    """A 429: the task waits without cost, and so does everybody else."""
    await e.limit("k", slots=5)
    await e.add("a", "b", limits="k")
    await e.add("free")
    [a] = await e.claim(1)
    await e.advance("1ms")  # who comes back in the millisecond of its birth keeps its place
    deal = await e.snooze(a, pauses=[("k", 60_000)])
    assert (await e.gauge("k")).paused_until == deal.now + 60_000
    assert await e.claims(9, "w2") == ["free"]
    assert {await e.parked("a"), await e.parked("b")} == {"limit:k"}
    await e.advance("59s")
    assert await e.claims(9, "w2") == []
    await e.advance("1s")
    assert await e.claims(9, "w2") == ["b", "a"]


async def test_the_latest_pause_wins(e: Scene) -> None:
    await e.limit("k", slots=5)
    await e.add("a", "b", limits="k")
    [a, b] = await e.claim(2)
    await e.snooze(a, pauses=[("k", 60_000)])
    await e.snooze(b, pauses=[("k", 1_000)])
    await e.advance("2s")
    assert await e.claims(9) == []
    await e.advance("58s")
    assert await e.claims(9) == ["a", "b"]


async def test_a_pause_needs_no_definition(e: Scene) -> None:
    await e.add("a", "b", limits="k")
    [a] = await e.claim(1)
    await e.finish(a, pauses=[("k", 60_000)])
    assert await e.claims(9) == []
    await e.advance("1m")
    assert await e.claims(9) == ["b"]


async def test_a_running_attempt_may_pause_a_key(e: Scene) -> None:
    await e.limit("k", slots=5)
    await e.add("a", "b", limits="k")
    [a] = await e.claim(1)
    await e.report(a, pauses=[("k", 60_000)])
    assert await e.claims(9) == []
    await e.finish(a)


# circuits ----------------------------------------------------------------------------------------

TRIP = {"rate": 0.5, "volume": 4, "window": "60s", "open": "60s"}


async def trip(e: Scene, waiting: int = 3) -> list[Lease]:
    """A circuit that has just opened, in front of some tasks."""
    await e.limit("k", trip=TRIP)
    await e.add(*[f"t{n}" for n in range(4)], limits="k")
    leases = await e.claim(4)
    await e.add(*[f"w{n}" for n in range(waiting)], limits="k")
    for lease, charges in zip(leases, (FINE, FINE, FAILED, FAILED), strict=True):
        assert (await e.gauge("k")).circuit == "closed"
        await e.fail(lease, "1d", charges=charges)
    assert (await e.gauge("k")).circuit == "open"
    return leases


async def test_failures_open_the_circuit(e: Scene) -> None:
    await trip(e)
    gauge = await e.gauge("k")
    assert gauge.open_until is not None
    assert gauge.open_until - await e.now() > 59_000
    assert await e.claims(9) == []
    assert await e.parked("w0") == "limit:k"


async def test_only_verdicts_on_the_service_count(e: Scene) -> None:
    await e.limit("k", trip=TRIP)
    await e.add(*[f"t{n}" for n in range(9)], limits="k")
    for lease in await e.claim(9):
        await e.fail(lease, "1d", charges=[Charge("k")])
    assert (await e.gauge("k")).circuit == "closed"


async def test_a_circuit_forgets_with_its_window(e: Scene) -> None:
    await e.limit("k", trip=TRIP)
    await e.add(*[f"t{n}" for n in range(4)], limits="k")
    leases = await e.claim(4)
    for lease in leases[:3]:
        await e.fail(lease, "1d", charges=FAILED)
    await e.advance("2m")
    await e.fail(leases[3], "1d", charges=FAILED)
    assert (await e.gauge("k")).circuit == "closed"


async def test_one_probe_for_the_whole_fleet(e: Scene) -> None:
    await trip(e)
    await e.advance("60s")
    assert (await e.gauge("k")).circuit == "half_open"
    assert await e.claims(9, "w1") == ["w0"]
    assert await e.claims(9, "w2") == []
    assert (await e.gauge("k")).probe == e.id("w0")


async def test_a_good_probe_closes_the_circuit(e: Scene) -> None:
    await trip(e)
    await e.advance("60s")
    [probe] = await e.claim(9)
    await e.finish(probe, charges=FINE)
    gauge = await e.gauge("k")
    assert (gauge.circuit, gauge.open_until, gauge.probe) == ("closed", None, None)
    assert await e.claims(9) == ["w1", "w2"]


async def test_a_bad_probe_opens_it_again(e: Scene) -> None:
    await trip(e)
    await e.advance("60s")
    [probe] = await e.claim(9)
    await e.fail(probe, "1d", charges=FAILED)
    assert (await e.gauge("k")).circuit == "open"
    await e.advance("59s")
    assert await e.claims(9) == []
    await e.advance("1s")
    assert await e.claims(9) == ["w1"]


async def test_a_definition_that_was_another_for_a_moment_begins_afresh(e: Scene) -> None:
    await trip(e)
    await e.limit("k", slots=2)
    await e.limit("k", trip=TRIP)
    assert (await e.gauge("k")).circuit == "closed"
    assert await e.claims(9) == ["w0", "w1", "w2"]


async def test_a_rate_that_was_another_for_a_moment_begins_afresh(e: Scene) -> None:
    await e.limit("r", rate="2/1h")
    await e.add("a", "b", "c", limits="r")
    assert await e.claims(9) == ["a", "b"]
    await e.limit("r", rate="3/1h")
    await e.limit("r", rate="2/1h")
    assert await e.claims(9) == ["c"]


async def test_a_probe_without_a_verdict_makes_room_for_the_next(e: Scene) -> None:
    await trip(e)
    await e.advance("60s")
    [probe] = await e.claim(9)
    await e.snooze(probe, "1h")
    assert await e.claims(9) == ["w1"]


async def test_a_probe_lost_with_its_worker_makes_room_for_the_next(e: Scene) -> None:
    await trip(e)
    await e.advance("60s")
    assert await e.claims(9, "w1") == ["w0"]
    await e.vanish("w1")
    gauge = await e.gauge("k")
    assert (gauge.circuit, gauge.probe, gauge.used) == ("half_open", None, 0)
    assert len(await e.claim(9, "w2")) == 1


async def test_verdicts_from_before_do_not_speak_for_the_probe(e: Scene) -> None:
    await e.limit("k", trip=TRIP)
    await e.add(*[f"t{n}" for n in range(6)], limits="k")
    leases = await e.claim(6)
    for lease in leases[:4]:
        await e.fail(lease, "1d", charges=FAILED)
    assert (await e.gauge("k")).circuit == "open"
    await e.finish(leases[4], charges=FINE)
    assert (await e.gauge("k")).circuit == "open"
    await e.advance("60s")
    await e.finish(leases[5], charges=FINE)
    assert (await e.gauge("k")).circuit == "half_open"


async def test_a_turning_circuit_is_news(e: Scene) -> None:
    await trip(e)
    await e.advance("60s")
    [probe] = await e.claim(9)
    await e.finish(probe, charges=FINE)
    news = [json.loads(x.data) for x in await e.events(kinds=("circuit",))]
    assert [(x["key"], x["circuit"]) for x in news] == [("k", "open"), ("k", "closed")]


# recomputing -------------------------------------------------------------------------------------


async def test_gauges_equal_the_leases_after_everything(e: Scene) -> None:
    await e.limit("k", slots=3)
    await e.limit("j", slots=2)
    await e.add(*[f"t{n}" for n in range(8)], limits=["k", "j"])
    [a, b] = await e.claim(8, "w1")
    await e.fail(a)
    await e.finish(b)
    [c, d] = await e.claim(8, "w2")
    await e.snooze(c, "1m")
    await e.cancel(e.name(d.id))
    await e.vanish("w2")
    await e.sweep()
    running = [t for t in await e.tasks() if t.state == "running"]
    assert await e.used("k", "j") == {"k": len(running), "j": len(running)}
