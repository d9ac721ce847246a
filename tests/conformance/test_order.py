"""Order inside a queue and lane: priority, then rank, then id; fair between keys where asked."""

from __future__ import annotations

from outlast.core.model import Reprioritize, Reschedule

from .language import Scene


async def test_first_come_first_served(e: Scene) -> None:
    await e.add("a")
    await e.add("b", "c")
    await e.add("d")
    assert await e.claims(9) == ["a", "b", "c", "d"]


async def test_within_one_moment_by_id(e: Scene) -> None:
    for name in ("a", "b", "c"):
        e.id(name)
    await e.add("c", "a", "b")
    assert await e.claims(9) == ["a", "b", "c"]


async def test_lower_priority_numbers_run_sooner(e: Scene) -> None:
    for name, priority in (("low", 3), ("normal", 2), ("critical", 0), ("high", 1), ("x", 32767)):
        await e.add(name, priority=priority)
    assert await e.claims(9) == ["critical", "high", "normal", "low", "x"]


async def test_by_due_time_not_by_arrival(e: Scene) -> None:
    await e.add("later", delay="2m")
    await e.add("sooner", delay="1m")
    await e.advance("5m")
    await e.add("new")
    assert await e.claims(9) == ["sooner", "later", "new"]


async def test_a_past_due_time_comes_first(e: Scene) -> None:
    await e.add("a")
    await e.add("overdue", run_at=await e.now() - 60_000)
    assert await e.claims(9) == ["overdue", "a"]


async def test_priority_before_due_time(e: Scene) -> None:
    await e.add("old", delay="1m")
    await e.advance("1h")
    await e.add("urgent", priority=0)
    assert await e.claims(9) == ["urgent", "old"]


async def test_neighbouring_milliseconds_are_told_apart(e: Scene) -> None:
    at = await e.now() - 60_000
    for name in ("c", "b", "a"):
        e.id(name)
    await e.batch(*[e.new(n, run_at=at + i) for i, n in enumerate(("a", "b", "c"))])
    assert await e.claims(9) == ["a", "b", "c"]


async def test_claims_one_by_one_keep_the_order(e: Scene) -> None:
    await e.add(*[f"t{n}" for n in range(6)])
    got = []
    for _ in range(6):
        got += await e.claims(1)
    assert got == [f"t{n}" for n in range(6)]


async def test_what_arrives_with_priority_is_seen_by_the_next_claim(e: Scene) -> None:
    await e.add("a", "b", "c")
    assert await e.claims(1) == ["a"]
    await e.add("urgent", priority=0)
    assert await e.claims(9) == ["urgent", "b", "c"]


async def test_a_released_task_keeps_its_place(e: Scene) -> None:
    await e.add("a", "b", "c")
    [a] = await e.claim()
    await e.release(a)
    assert await e.claims(1) == ["a"]


async def test_reprioritized_and_rescheduled_tasks_move(e: Scene) -> None:
    await e.add("a", "b", "c")
    await e.change("c", Reprioritize(0))
    await e.change("a", Reschedule(delay_ms=60_000))
    assert await e.claims(9) == ["c", "b"]
    await e.advance("1m")
    assert await e.claims(9) == ["a"]


async def test_a_newcomer_alternates_with_a_backlog_at_once(e: Scene) -> None:
    await e.add(*[f"a{n}" for n in range(30)], fair_key="a")
    assert await e.claims(4) == ["a0", "a1", "a2", "a3"]
    await e.add(*[f"b{n}" for n in range(5)], fair_key="b")
    got = [name[0] for name in await e.claims(10)]
    for seen in range(1, 11):
        assert abs(got[:seen].count("a") - got[:seen].count("b")) <= 1, got
    assert set(await e.claims(5)) == {f"a{n}" for n in range(9, 14)}


async def test_every_key_gets_its_turn(e: Scene) -> None:
    await e.add(*[f"a{n}" for n in range(9)], fair_key="a")
    await e.add(*[f"b{n}" for n in range(9)], fair_key="b")
    await e.add(*[f"c{n}" for n in range(9)], fair_key="c")
    for _ in range(9):
        assert sorted(name[0] for name in await e.claims(3)) == ["a", "b", "c"]


async def test_within_a_key_in_order_of_arrival(e: Scene) -> None:
    await e.add(*[f"a{n}" for n in range(4)], fair_key="a")
    await e.add(*[f"b{n}" for n in range(4)], fair_key="b")
    got = await e.claims(8)
    assert [n for n in got if n[0] == "a"] == ["a0", "a1", "a2", "a3"]
    assert [n for n in got if n[0] == "b"] == ["b0", "b1", "b2", "b3"]


async def test_an_idle_key_saves_nothing_up(e: Scene) -> None:
    """b was away while a was served: it alternates, it is not paid back."""
    await e.add("b0", fair_key="b")
    await e.add(*[f"a{n}" for n in range(20)], fair_key="a")
    assert "b0" in await e.claims(10)
    await e.add(*[f"b{n}" for n in range(1, 9)], fair_key="b")
    got = [name[0] for name in await e.claims(8)]
    assert 3 <= got.count("b") <= 5, got


async def test_priority_before_fairness(e: Scene) -> None:
    await e.add("a0", "a1", "a2", fair_key="a")
    await e.add("b0", fair_key="b")
    await e.add("a9", fair_key="a", priority=0)
    assert (await e.claims(9))[0] == "a9"


async def test_delayed_tasks_of_a_fair_queue_join_when_due(e: Scene) -> None:
    await e.add("b0", fair_key="b", delay="1m")
    await e.add(*[f"a{n}" for n in range(10)], fair_key="a")
    await e.claims(3)
    await e.advance("1m")
    assert "b0" in await e.claims(2)
