"""Caps: charged with what was really used, closed until the span turns or the cap is raised."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from outlast.core.limits import Cap, Span
from outlast.core.model import Charge, Lease

from .language import Scene

KEY = "budget:tokens:user:ada"


def used(units: int, key: str = KEY) -> tuple[Charge, ...]:
    return (Charge(key, units=units),)


async def cap(e: Scene, units: int, span: Span = "day", key: str = KEY) -> None:
    await e.limit(key, cap=Cap(units, span))


async def started(e: Scene, *names: str, worker: str = "w1") -> list[Lease]:
    await e.add(*names, limits=[(KEY, 0)])
    return await e.claim(len(names), worker)


async def spent(e: Scene, key: str = KEY) -> int:
    return (await e.gauge(key)).spent


async def at(e: Scene, moment: datetime) -> None:
    """Engine time is that moment, or a little later."""
    e.engine.skew_ms += round(moment.timestamp() * 1000) - await e.now()


async def test_a_cap_lets_pass_while_anything_is_left(e: Scene) -> None:
    await cap(e, 100)
    [a] = await started(e, "a")
    await e.finish(a, charges=used(99))
    [b] = await started(e, "b")
    await e.finish(b, charges=used(1))
    assert await started(e, "c") == []
    assert await e.parked("c") == f"limit:{KEY}"
    assert await spent(e) == 100


async def test_what_runs_may_go_over_it(e: Scene) -> None:
    await cap(e, 100)
    a, b = await started(e, "a", "b")
    await e.finish(a, charges=used(80))
    await e.finish(b, charges=used(80))
    assert await spent(e) == 160
    assert await started(e, "c") == []


async def test_the_middle_of_an_attempt_and_a_failure_are_charged(e: Scene) -> None:
    await cap(e, 1000)
    [a] = await started(e, "a")
    await e.report(a, charges=used(10))
    await e.report(a, charges=used(20))
    assert await spent(e) == 30
    await e.fail(a, charges=used(5))
    assert await spent(e) == 35
    [again] = await e.claim(1)
    await e.die(again, charges=used(1))
    assert await spent(e) == 36


async def test_a_lost_worker_does_not_take_its_spending_with_it(e: Scene) -> None:
    await cap(e, 1000)
    [a] = await started(e, "a")
    await e.report(a, charges=used(10))
    await e.vanish("w1")
    assert await spent(e) == 10


async def test_a_stale_attempt_charges_nothing(e: Scene) -> None:
    await cap(e, 1000)
    [a] = await started(e, "a")
    await e.vanish("w1")
    await e.refused(a, charges=used(10))
    await e.refused(a, state="running", charges=used(10))
    assert await spent(e) == 0


async def test_a_repeated_turn_charges_once(e: Scene) -> None:
    await cap(e, 1000)
    [a] = await started(e, "a")
    for _ in range(2):
        await e.hand(e.patch(a, "running", charges=used(10)), token=77)
    for _ in range(2):
        await e.hand(e.patch(a, "completed", charges=used(1)), token=78)
    await e.finish(a, charges=used(1))
    assert await spent(e) == 11


@pytest.mark.parametrize(
    ("span", "begin", "turn"),
    [
        ("hour", datetime(2030, 5, 6, 7, 30, tzinfo=UTC), datetime(2030, 5, 6, 8, tzinfo=UTC)),
        ("day", datetime(2030, 5, 6, 7, 30, tzinfo=UTC), datetime(2030, 5, 7, tzinfo=UTC)),
        ("month", datetime(2032, 2, 28, 23, tzinfo=UTC), datetime(2032, 3, 1, tzinfo=UTC)),
        ("month", datetime(2030, 12, 31, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)),
    ],
)
async def test_it_opens_when_the_span_turns(
    e: Scene, span: Span, begin: datetime, turn: datetime
) -> None:
    await at(e, begin)
    await cap(e, 10, span)
    [a] = await started(e, "a")
    await e.finish(a, charges=used(500))
    assert await started(e, "b") == []
    left_ms = round(turn.timestamp() * 1000) - await e.now()
    deal = await e.turn(n=1)
    assert deal.next_due == round(turn.timestamp() * 1000)
    e.engine.skew_ms += left_ms - 2_000
    assert await e.claims() == []
    e.engine.skew_ms += 2_000
    assert await spent(e) == 0
    assert await e.claims() == ["b"]


async def test_a_total_never_turns(e: Scene) -> None:
    await cap(e, 10, "total")
    [a] = await started(e, "a")
    await e.finish(a, charges=used(10))
    assert await started(e, "b") == []
    await e.advance("3650d")
    await e.sweep()
    assert await e.claims(1, "w2") == []
    assert await spent(e) == 10
    await cap(e, 11, "total")
    assert await e.claims(1, "w2") == ["b"]


async def test_raising_it_lets_waiters_pass_and_forgets_nothing(e: Scene) -> None:
    await cap(e, 10)
    [a] = await started(e, "a")
    await e.finish(a, charges=used(12))
    assert await started(e, "b") == []
    await cap(e, 12)
    assert await e.claims() == []
    await cap(e, 13)
    assert await e.claims() == ["b"]
    assert await spent(e) == 12


async def test_deleting_it_lets_everybody_pass(e: Scene) -> None:
    await cap(e, 1, "total")
    [a] = await started(e, "a")
    await e.finish(a, charges=used(1))
    assert await started(e, "b") == []
    await e.unlimit(KEY)
    assert await e.claims() == ["b"]


async def test_in_a_family_everybody_has_their_own(e: Scene) -> None:
    ada, bob = "budget:cost:user:ada", "budget:cost:user:bob"
    await cap(e, 10, key="budget:cost:user:*")
    await e.add("a", limits=[(ada, 0)])
    [a] = await e.claim()
    await e.finish(a, charges=used(10, ada))
    await e.add("b", limits=[(ada, 0)])
    await e.add("c", limits=[(bob, 0)])
    assert await e.claims(9) == ["c"]
    assert (await spent(e, ada), await spent(e, bob)) == (10, 0)


async def test_a_swept_engine_remembers_what_was_used(e: Scene) -> None:
    await cap(e, 10, "month")
    await at(e, datetime(2030, 5, 2, tzinfo=UTC))
    [a] = await started(e, "a")
    await e.finish(a, charges=used(10))
    await at(e, datetime(2030, 5, 31, tzinfo=UTC))
    await e.sweep()
    assert await spent(e) == 10
    assert await started(e, "b", worker="w2") == []
    await at(e, datetime(2030, 6, 1, tzinfo=UTC))
    assert await e.claims(1, "w2") == ["b"]


async def test_a_gauge_that_says_nothing_any_more_is_swept(e: Scene) -> None:
    await cap(e, 10, "month", key="budget:cost:user:*")
    await e.add("a", limits=[("budget:cost:user:ada", 0)])
    [a] = await e.claim()
    await e.finish(a, charges=used(3, "budget:cost:user:ada"))
    await e.sweep()
    assert "budget:cost:user:ada" in {gauge.key for gauge in await e.engine.gauges()}
    await e.advance("63d")
    await e.sweep()
    assert "budget:cost:user:ada" not in {gauge.key for gauge in await e.engine.gauges()}


async def test_what_is_counted_for_ever_is_never_swept(e: Scene) -> None:
    await cap(e, 10, "total")
    [a] = await started(e, "a")
    await e.finish(a, charges=used(10))
    await e.advance("3650d")
    await e.sweep()
    assert await spent(e) == 10
    assert await started(e, "b", worker="w2") == []
