"""Dependencies: the last upstream to end unparks a task, once; death runs down the edges."""

from __future__ import annotations

import random

import pytest

from outlast.core.errors import BadInput
from outlast.core.ids import new_id
from outlast.core.model import NewTask, Resolve, TaskQuery

from .language import Scene


async def test_a_task_waits_for_its_upstream(e: Scene) -> None:
    await e.batch(e.new("a"), e.new("b", after="a"))
    b = await e.task("b")
    assert (b.status, b.parked, b.after, b.awaits) == ("blocked", "deps", (e.id("a"),), 1)
    [a] = await e.claim(9)
    await e.finish(a)
    assert await e.statuses() == {"a": "completed", "b": "ready"}
    assert await e.claims(9) == ["b"]


async def test_the_last_upstream_unparks(e: Scene) -> None:
    await e.add("a", "b", "c")
    await e.add("end", after=["a", "b", "c"])
    for left, lease in zip((2, 1, 0), await e.claim(9), strict=True):
        assert await e.status("end") == "blocked"
        await e.finish(lease)
        assert (await e.task("end")).awaits == left
    assert await e.status("end") == "ready"


async def test_upstreams_that_end_in_one_turn_unpark_once(e: Scene) -> None:
    await e.add("a", "b")
    await e.add("end", after=["a", "b"])
    leases = await e.claim(9)
    await e.hand(*[e.patch(lease, "completed") for lease in leases])
    assert await e.claims(9) == ["end"]
    assert await e.log("end") == ["blocked", "running"]


async def test_ends_of_one_turn_tell_everybody_each_as_it_is(e: Scene) -> None:
    await e.limit("one", slots=1)
    await e.limit("up", slots=9)
    await e.add("ahead", limits="one")
    assert await e.claims(9) == ["ahead"]
    await e.add("waits", limits="one")
    assert await e.claims(9) == []  # from here on there is a line
    await e.add("a", "b", "d", "x", limits="up")
    await e.add("alone", limits="up")
    both = {"after": ["a", "b"]}
    await e.batch(
        e.new("ready", **both),
        e.new("held", **both, hold="go"),
        e.new("later", **both, delay="1h"),
        e.new("fair", **both, fair_key="k"),
        e.new("limited", **both, limits="one"),
        e.new("free", **both, limits="up"),
        e.new("more", after=["a", "b", "x"]),
        e.new("twice", after=["a", "a", "b"]),
        e.new("fallen", after=["a", "d"]),
        e.new("any", after=["a", "d"], needs="any"),
        e.new("gone", **both),
        e.new("next", after="ready"),
        *(e.new(f"wide{n}", **both) for n in range(30)),
    )
    await e.cancel("gone")
    leases = {e.name(lease.id): lease for lease in await e.claim(5)}
    x = leases.pop("x")
    await e.hand(*(e.patch(v, "dead" if k == "d" else "completed") for k, v in leases.items()))
    assert await e.used("up") == {"up": 1}
    assert {n: await e.status(n) for n in ("a", "b", "alone", "d")} == {
        "a": "completed", "b": "completed", "alone": "completed", "d": "dead"
    }  # fmt: skip
    assert {n: await e.parked(n) for n in ("held", "later", "limited", "more", "next")} == {
        "held": "signal:go", "later": "time", "limited": "limit:one", "more": "deps", "next": "deps"
    }  # fmt: skip
    assert (await e.task("more")).awaits == 1
    assert {n: await e.status(n) for n in ("fallen", "gone")} == dict.fromkeys(
        ("fallen", "gone"), "cancelled"
    )
    ready = {"ready", "fair", "free", "twice", "any", *(f"wide{n}" for n in range(30))}
    assert await e.find(status="ready") == ready
    assert set(await e.claims(99)) == ready
    await e.finish(x)
    await e.signal("held", "go")
    await e.advance("1h")
    assert set(await e.claims(99)) == {"more", "held", "later"}


@pytest.mark.parametrize("among", ["the same batch", "an older one"])
async def test_one_turn_tells_dependents_of_every_kind(e: Scene, among: str) -> None:
    await e.limit("k", slots=1)
    await e.add("holder", "waiter", limits="k")
    assert await e.claims(9) == ["holder"]
    every = ["a", "b", "c", "a"]
    ups = [e.new(name, queue="ups") for name in "abcx"]
    downs = [
        e.new("plain", after=every),
        e.new("first", after="a", workflow_id="w"),
        e.new("long", after=every, payload="x" * 2_000),
        e.new("late", after=every, delay="1h"),
        e.new("held", after=every, hold="go"),
        e.new("limited", after=every, limits="k"),
        e.new("fair", after=every, fair_key="f"),
        e.new("tagged", after=every, tags=("t",), session_id="s"),
        e.new("strict", after=[*every, "x"]),
        e.new("tolerant", after=[*every, "x"], needs="any"),
        e.new("others", after=[*every, "holder"]),
        e.new("next", after=["plain", "long"]),
    ]
    for batch in [[*downs, *ups]] if among == "the same batch" else [ups, downs]:
        await e.batch(*batch)
    leases = {e.name(lease.id): lease for lease in await e.claim(9, queue="ups")}
    assert leases.keys() == set("abcx")
    assert {(await e.task(name)).awaits for name in ("plain", "long", "late", "held")} == {3}
    ends = [e.patch(leases["x"], "dead", verdict="failed", reason="permanent")]
    ends += [e.patch(leases[name], "completed", result=name) for name in "ab"]
    await e.hand(*ends[1:], ends[0])
    assert await e.statuses("first", "plain") == {"first": "ready", "plain": "blocked"}
    assert {(await e.task(name)).awaits for name in ("plain", "long", "late", "held")} == {1}
    await e.finish(leases["c"])
    assert {e.name(down.id): await e.status(e.name(down.id)) for down in downs} == {
        "plain": "ready", "first": "ready", "long": "ready", "late": "scheduled",
        "held": "blocked", "limited": "throttled", "fair": "ready", "tagged": "ready",
        "strict": "cancelled", "tolerant": "ready", "others": "blocked", "next": "blocked",
    }  # fmt: skip
    assert await e.parked("held") == "signal:go"
    assert (await e.task("others")).awaits == 1 and await e.parked("others") == "deps"
    assert (await e.task("long")).payload == e.new("long", payload="x" * 2_000).payload
    leases = {e.name(lease.id): lease for lease in await e.claim(9)}
    assert leases.keys() == {"plain", "first", "long", "fair", "tagged", "tolerant"}
    await e.hand(*[e.patch(lease, "completed") for lease in leases.values()])
    assert await e.claims(9) == ["next"]
    assert await e.log("plain") == ["blocked", "running", "completed"]
    assert sorted((await e.task("next")).after) == sorted(e.ids(["plain", "long"]))


async def test_a_repeated_outcome_releases_dependents_once(e: Scene) -> None:
    await e.add("a", "b")
    await e.add("end", after=["a", "b"])
    [a, _] = await e.claim(9)
    await e.finish(a)
    await e.finish(a)
    assert await e.status("end") == "blocked"


async def test_a_retry_of_the_upstream_releases_nobody(e: Scene) -> None:
    await e.add("a")
    await e.add("b", after="a")
    [a] = await e.claim()
    await e.fail(a)
    assert await e.status("b") == "blocked"


async def test_a_diamond(e: Scene) -> None:
    await e.batch(
        e.new("top"),
        e.new("left", after="top"),
        e.new("right", after="top"),
        e.new("end", after=["left", "right"]),
    )
    seen = []
    while leases := await e.claim(9):
        seen.append(sorted(e.names(leases)))
        for lease in leases:
            await e.finish(lease)
    assert seen == [["top"], ["left", "right"], ["end"]]


async def test_one_upstream_named_twice_counts_once(e: Scene) -> None:
    await e.add("a")
    await e.add("b", after=["a", "a"])
    [a] = await e.claim()
    await e.finish(a)
    assert await e.status("b") == "ready"


async def test_an_edge_may_point_forward_in_its_batch(e: Scene) -> None:
    await e.batch(e.new("b", after="a"), e.new("a"))
    [a] = await e.claim(9)
    assert e.name(a.id) == "a"
    await e.finish(a)
    assert await e.claims(9) == ["b"]


@pytest.mark.parametrize("among", ["the same batch", "an older one"])
async def test_who_waits_for_tasks_that_are_alike_waits_for_all(e: Scene, among: str) -> None:
    ups = [e.new(name) for name in "abc"]
    beside = [e.new(name) for name in "xyz"]
    waiting = [e.new("first", after="a"), e.new("all", after=["a", "b", "c"])]
    if among == "an older one":
        await e.batch(*ups)
        await e.batch(*beside, *waiting)
    else:
        await e.batch(*ups, *waiting, *beside)
    leases = {e.name(lease.id): lease for lease in await e.claim(9)}
    assert leases.keys() == set("abcxyz")
    for name in "abc":
        assert await e.status("all") == "blocked", name
        await e.finish(leases[name])
        assert await e.status("first") == "ready"
    assert await e.claims(9) == ["first", "all"]


async def test_an_edge_to_a_completed_task_is_settled_on_the_spot(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.finish(a)
    await e.add("b", after="a")
    assert await e.statuses() == {"a": "completed", "b": "ready"}
    assert (await e.task("b")).after == (e.id("a"),)


@pytest.mark.parametrize("end", ["dead", "cancelled"])
async def test_an_edge_to_a_task_that_did_not_succeed(e: Scene, end: str) -> None:
    await e.add("a")
    [a] = await e.claim()
    await (e.die(a) if end == "dead" else e.stop(a))
    await e.add("strict", after="a")
    await e.add("tolerant", after="a", needs="any")
    assert await e.statuses() == {"a": end, "strict": "cancelled", "tolerant": "ready"}
    assert (await e.task("strict")).reason == "upstream"
    assert (await e.log("strict"))[-1] == "cancelled"


async def test_settled_and_open_edges_together(e: Scene) -> None:
    await e.add("done")
    [done] = await e.claim()
    await e.finish(done)
    await e.add("open")
    await e.add("end", after=["done", "open"])
    assert (await e.task("end")).awaits == 1
    [open_] = await e.claim()
    await e.finish(open_)
    assert await e.status("end") == "ready"


@pytest.mark.parametrize("end", ["dead", "cancelled"])
async def test_failure_runs_down_the_edges(e: Scene, end: str) -> None:
    await e.batch(
        e.new("a"),
        e.new("b", after="a"),
        e.new("c", after="b"),
        e.new("any", after="b", needs="any"),
    )
    [a] = await e.claim()
    await (e.die(a) if end == "dead" else e.stop(a))
    await e.sweep()
    assert await e.statuses() == {"a": end, "any": "ready", "b": "cancelled", "c": "cancelled"}
    assert {(await e.task(n)).reason for n in ("b", "c")} == {"upstream"}
    assert await e.log("c") == ["blocked", "cancelled"]


async def test_cancelling_a_pending_upstream_cancels_its_dependents(e: Scene) -> None:
    await e.batch(e.new("a", delay="1h"), e.new("b", after="a"))
    await e.cancel("a")
    assert await e.statuses() == {"a": "cancelled", "b": "cancelled"}


async def test_a_stalled_death_runs_down_too(e: Scene) -> None:
    await e.add("a", max_losses=1)
    await e.add("b", after="a")
    await e.claim(1)
    await e.vanish()
    assert await e.statuses() == {"a": "dead", "b": "cancelled"}


async def test_an_expired_upstream_runs_down_too(e: Scene) -> None:
    await e.add("a", max_age="1m")
    await e.add("b", after="a")
    await e.advance("2m")
    await e.sweep()
    assert await e.statuses() == {"a": "dead", "b": "cancelled"}


async def test_the_others_may_still_be_running(e: Scene) -> None:
    """One dead upstream decides; the one that ends later changes nothing any more."""
    await e.add("a", "b")
    await e.add("end", after=["a", "b"])
    [a, b] = await e.claim(9)
    await e.die(a)
    assert await e.status("end") == "cancelled"
    await e.finish(b)
    assert await e.status("end") == "cancelled"
    assert (await e.log("end")).count("cancelled") == 1


async def test_needs_any_waits_for_all_to_end(e: Scene) -> None:
    await e.add("a", "b")
    await e.add("end", after=["a", "b"], needs="any")
    [a, b] = await e.claim(9)
    await e.die(a)
    assert await e.status("end") == "blocked"
    await e.finish(b)
    assert await e.status("end") == "ready"


async def test_resolving_by_hand_releases_dependents(e: Scene) -> None:
    await e.batch(e.new("a", hold="never"), e.new("b", after="a"))
    await e.change("a", Resolve(b"1"))
    assert await e.statuses() == {"a": "completed", "b": "ready"}


async def test_resolving_a_task_and_its_dependent_at_once(e: Scene) -> None:
    await e.batch(e.new("a"), e.new("b", after="a"))
    await e.engine.alter(e.ids(["a", "b"]), Resolve(result=b"1"))
    assert await e.counts("status") == {"completed": 2}
    assert await e.claims(9) == []


async def test_redriving_restores_the_dependents(e: Scene) -> None:
    await e.batch(e.new("a"), e.new("b", after="a"), e.new("c", after="b"))
    [a] = await e.claim()
    await e.die(a)
    await e.sweep()
    await e.redrive("a")
    await e.sweep()
    assert await e.statuses() == {"a": "ready", "b": "blocked", "c": "blocked"}
    assert (await e.task("b")).reason is None
    for name in ("a", "b", "c"):
        [lease] = await e.claim(9)
        assert e.name(lease.id) == name
        await e.finish(lease)
    assert set((await e.statuses()).values()) == {"completed"}


async def test_redriving_restores_only_what_the_upstream_took_along(e: Scene) -> None:
    await e.batch(e.new("a"), e.new("b", after="a"), e.new("c", after="a"))
    await e.cancel("b", "by hand")
    [a] = await e.claim()
    await e.die(a)
    await e.redrive("a")
    await e.sweep()
    assert await e.statuses() == {"a": "ready", "b": "cancelled", "c": "blocked"}


async def test_what_was_taken_along_before_its_upstream_is_restored_with_it(e: Scene) -> None:
    """So a graph is stopped: from its end, that nobody is let go by those before."""
    await e.batch(
        e.new("a"),
        e.new("b", after="a"),
        e.new("c", after="b"),
        e.new("any", after=["a", "b"], needs="any"),
    )
    for name in ("any", "b"):
        await e.cancel(name, "upstream")
    await e.sweep()
    await e.cancel("a", "by hand")
    assert await e.log("any") == ["blocked", "cancelled"]
    await e.redrive("a")
    await e.sweep()
    assert await e.statuses() == {"a": "ready", "b": "blocked", "c": "blocked", "any": "blocked"}
    for names in (["a"], ["b"], ["any", "c"]):
        leases = await e.claim(9)
        assert sorted(e.names(leases)) == names
        for lease in leases:
            await e.finish(lease)


async def test_redriving_one_of_two_dead_upstreams_does_not_restore(e: Scene) -> None:
    await e.add("a", "b")
    await e.add("end", after=["a", "b"])
    [a, b] = await e.claim(9)
    await e.die(a)
    await e.die(b)
    await e.redrive("a")
    await e.sweep()
    [a] = await e.claim(9)
    await e.finish(a)
    await e.sweep()
    assert await e.status("end") == "cancelled"
    await e.redrive("b")
    await e.sweep()
    assert await e.status("end") == "blocked"
    [b] = await e.claim(9)
    await e.finish(b)
    assert await e.claims(9) == ["end"]


async def test_redriving_beside_a_finished_upstream(e: Scene) -> None:
    await e.add("a", "b")
    await e.add("end", after=["a", "b"])
    [a, b] = await e.claim(9)
    await e.finish(a)
    await e.die(b)
    await e.redrive("b")
    await e.sweep()
    assert (await e.task("end")).awaits == 1
    [b] = await e.claim(9)
    await e.finish(b)
    assert await e.status("end") == "ready"


async def test_redriving_what_was_over_before_its_dependent_came(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.die(a)
    await e.add("b", after="a")
    await e.add("c", after="b")
    assert await e.statuses() == {"a": "dead", "b": "cancelled", "c": "cancelled"}
    await e.redrive("a")
    for name in ("a", "b", "c"):
        [lease] = await e.claim(9)
        assert e.name(lease.id) == name
        await e.finish(lease)


async def test_resolving_what_was_over_before_its_dependent_came(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.die(a)
    await e.add("b", after="a")
    await e.change("a", Resolve(b"1"))
    assert await e.statuses() == {"a": "completed", "b": "ready"}


async def test_a_dead_upstream_resolved_restores_its_dependents(e: Scene) -> None:
    await e.batch(e.new("a"), e.new("b", after="a"))
    [a] = await e.claim()
    await e.die(a)
    await e.change("a", Resolve(b"1"))
    await e.sweep()
    assert await e.statuses() == {"a": "completed", "b": "ready"}


async def test_a_cascade_larger_than_one_step_is_settled_by_sweep(e: Scene) -> None:
    wide = [
        NewTask(id=new_id(), type="leaf", after=(e.id("a"),), followed=False) for _ in range(3_000)
    ]
    await e.batch(e.new("a"), *wide)
    [a] = await e.claim()
    await e.die(a)
    await e.sweep()
    assert await e.counts("status") == {"dead": 1, "cancelled": 3_000}
    await e.redrive("a")
    await e.sweep()
    assert await e.counts("status") == {"ready": 1, "blocked": 3_000}
    [a] = await e.claim()
    await e.finish(a)
    await e.sweep()
    assert await e.counts("status") == {"completed": 1, "ready": 3_000}


async def test_redriving_in_the_middle_of_a_cascade_restores_all(e: Scene) -> None:
    """Some have fallen by one of their upstreams and were not told yet of the others'."""
    draw = random.Random(1)  # the same graph each time, not a secret
    ups: dict[str, list[str]] = {"t0": []}
    for n in range(1, 700):
        near = list(ups)[-60:]
        ups[f"t{n}"] = draw.sample(near, min(len(near), 1 + draw.randrange(3)))
    await e.batch(*(e.new(name, after=after, followed=False) for name, after in ups.items()))
    [lease] = await e.claim()
    await e.die(lease)
    fallen = (await e.counts("status"))["cancelled"]
    assert 100 < fallen < 699, "all at once: this shows nothing"
    await e.redrive("t0")
    await e.sweep()
    assert await e.counts("status") == {"ready": 1, "blocked": 699}
    ended = set[str]()
    while leases := await e.claim(500, lease="1h"):
        for lease in leases:
            assert ended.issuperset(ups[e.name(lease.id)]), "too early"
        await e.hand(*(e.patch(lease, "completed") for lease in leases), lease="1h")
        await e.sweep()
        ended |= {e.name(lease.id) for lease in leases}
    assert len(ended) == 700


async def test_a_long_chain_falls_to_its_end(e: Scene) -> None:
    tasks = [e.new("t0", followed=False)]
    for n in range(1, 1_000):
        tasks.append(e.new(f"t{n}", after=f"t{n - 1}", followed=False))
    await e.batch(*tasks)
    await e.cancel("t0")
    await e.sweep()
    assert await e.counts("status") == {"cancelled": 1_000}
    assert (await e.engine.sweep()).settled == 0


async def test_an_attempt_may_wait_for_others(e: Scene) -> None:
    """`Outcome.after`: parked until they are over, however they end."""
    await e.add("a")
    [a] = await e.claim()
    await e.snooze(a, spawn=[e.new("c1"), e.new("c2")], after=["c1", "c2"])
    task = await e.task("a")
    assert (task.status, task.parked, task.awaits) == ("blocked", "deps", 2)
    [c1, c2] = await e.claim(9)
    await e.finish(c1)
    await e.die(c2)
    [a] = await e.claim(9)
    assert (e.name(a.id), a.attempt, a.number) == ("a", 1, 2)


async def test_an_attempt_may_wait_for_the_same_task_twice(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.snooze(a, spawn=[e.new("c")], after=["c"])
    [c] = await e.claim(9)
    await e.die(c)
    [a] = await e.claim(9)
    await e.redrive("c")
    await e.snooze(a, after=["c"])
    assert await e.status("a") == "blocked"
    [c] = await e.claim(9)
    await e.finish(c)
    assert await e.claims(9) == ["a"]


async def test_waiting_for_a_task_that_ends_in_the_same_turn(e: Scene) -> None:
    await e.add("a", "b", "c")
    a, b, c = await e.claim(3)
    await e.hand(
        e.patch(a, "pending", verdict="waiting", refund=True, after=["b"]),
        e.patch(c, "running", spawn=[e.new("child", after="b")]),
        e.patch(b, "completed"),
    )
    assert await e.claims(9) == ["a", "child"]


async def test_waiting_in_the_turn_in_which_others_are_let_go(e: Scene) -> None:
    """As above, for a task that others wait for already."""
    await e.add("a", "b", "c", "d")
    await e.add("end", after=["b", "d"])
    a, b, c, d = await e.claim(4)
    await e.hand(
        e.patch(a, "pending", verdict="waiting", refund=True, after=["b"]),
        e.patch(c, "running", spawn=[e.new("child", after=["b", "d"])]),
        e.patch(b, "completed"),
        e.patch(c, "running", spawn=[e.new("late", after=["b", "d"])]),
        e.patch(d, "completed"),
    )
    assert sorted(await e.claims(9)) == ["a", "child", "end", "late"]


async def test_one_turn_ends_upstreams_of_all_kinds_of_dependents(e: Scene) -> None:
    await e.limit("full", slots=1)
    await e.add("holder", limits="full")
    [holder] = await e.claim(9)
    await e.add("queued", limits="full")
    assert await e.claim(9) == []
    await e.add("a", "b", "c", "bad", "open")
    await e.batch(
        e.new("all", after=["a", "b", "c"]),
        e.new("twice", after=["a", "a", "b"]),
        e.new("fair", after=["b", "c"], fair_key="k"),
        e.new("held", after=["a", "b"], hold="go"),
        e.new("later", after=["a", "c"], delay="1h"),
        e.new("limited", after=["a", "b"], limits="full"),
        e.new("waits", after=["a", "b", "open"]),
        e.new("strict", after=["a", "bad", "c"]),
        e.new("below", after=["strict", "c"]),
        e.new("any", after=["a", "bad", "c"], needs="any"),
    )
    ends = {e.name(lease.id): lease for lease in await e.claim(9)}
    await e.hand(
        e.patch(ends["a"], "completed"),
        e.patch(ends["bad"], "dead", reason="permanent", verdict="failed"),
        e.patch(ends["b"], "completed"),
        e.patch(ends["c"], "completed"),
    )
    names = ("all", "twice", "fair", "held", "later", "limited", "waits", "strict", "below", "any")
    assert await e.statuses(*names) == {
        **dict.fromkeys(("all", "twice", "fair", "any"), "ready"),
        **dict.fromkeys(("held", "waits"), "blocked"),
        **dict.fromkeys(("strict", "below"), "cancelled"),
        "later": "scheduled",
        "limited": "throttled",
    }
    assert (await e.parked("held"), await e.parked("waits")) == ("signal:go", "deps")
    assert (await e.task("waits")).awaits == 1
    assert await e.log("below") == ["blocked", "cancelled"]
    await e.finish(ends["open"])
    await e.finish(holder)
    leases = {e.name(lease.id): lease for lease in await e.claim(9)}
    assert sorted(leases) == ["all", "any", "fair", "queued", "twice", "waits"]
    # Each of the edges is known for told or not: who is redriven waits for no more than before.
    await e.die(leases["all"])
    await e.redrive("all")
    assert await e.claims(9) == ["all"]
    await e.redrive("bad")
    await e.sweep()
    assert await e.statuses("strict", "below") == {"strict": "blocked", "below": "blocked"}
    awaits = [(await e.task(name)).awaits for name in ("strict", "below")]
    assert awaits == [1, 1]
    [bad] = await e.claim(9)
    await e.finish(bad)
    assert await e.status("strict") == "ready"


async def test_one_turn_ends_upstreams_of_more_than_one_step_tells(e: Scene) -> None:
    await e.add("a", "b", "c")
    wide = [
        NewTask(id=new_id(), type="leaf", after=(e.id("b"),), followed=False) for _ in range(2_000)
    ]
    await e.batch(
        e.new("of a", after="a"), *wide, e.new("of c", after="c"), e.new("end", after=["a", "c"])
    )
    await e.hand(*(e.patch(lease, "completed") for lease in await e.claim(9)))
    near = ("of a", "of c", "end")
    assert await e.statuses(*near) == dict.fromkeys(near, "ready")
    await e.sweep()
    assert await e.counts("status") == {"completed": 3, "ready": 2_003}


async def test_an_attempt_that_waits_for_finished_tasks_goes_on(e: Scene) -> None:
    await e.add("done")
    [done] = await e.claim()
    await e.finish(done)
    await e.add("a")
    [a] = await e.claim()
    await e.snooze(a, after=["done"])
    assert await e.claims(9) == ["a"]


async def test_an_attempt_may_wait_for_others_again_and_again(e: Scene) -> None:
    await e.add("a")
    for n in range(3):
        [a] = await e.claim()
        assert e.name(a.id) == "a"
        await e.snooze(a, spawn=[e.new(f"c{n}")], after=[f"c{n}"])
        [c] = await e.claim(9)
        await e.finish(c)
    assert await e.claims(9) == ["a"]


async def test_forgetting_an_upstream_strands_nobody(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.finish(a)
    await e.add("b", after="a", hold="go")
    await e.forget("a")
    await e.signal("b", "go")
    assert await e.claims(9) == ["b"]


async def test_an_edge_to_a_forgotten_task_is_unknown(e: Scene) -> None:
    await e.add("a")
    await e.cancel("a")
    await e.forget("a")
    with pytest.raises(BadInput):
        await e.add("b", after="a")
    page = await e.engine.tasks(TaskQuery.of())
    assert page.items == ()
