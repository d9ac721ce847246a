"""Cost: an exchange pays for its room and its outcomes, not for what is parked, waiting or over."""

from __future__ import annotations

from outlast.core.ids import new_id
from outlast.core.model import Lease, NewTask

from .language import Scene
from .probes import cost

CHUNK = 5_000


async def many(e: Scene, n: int, **options: object) -> None:
    for _ in range(0, n, CHUNK):
        await e.batch(
            *[
                NewTask(id=new_id(), type="work", followed=False, **options)  # type: ignore[arg-type]
                for _ in range(CHUNK)
            ]
        )


async def claiming(e: Scene, n: int = 10) -> int:
    """What a claim of ten costs, with twenty there to be claimed."""
    await e.batch(*[NewTask(id=new_id(), type="work", priority=1) for _ in range(2 * n)])

    async def claim() -> None:
        assert len((await e.turn(n=n)).leases) == n

    await claim()
    return await cost(e.engine, claim)


async def test_what_is_parked_or_over_costs_a_claim_nothing(e: Scene) -> None:
    await e.add("parked", delay="1h")  # one is enough to look at; 20,000 must not be more
    await claiming(e)
    before = await claiming(e)
    await many(e, 20_000, delay_ms=3_600_000)
    assert await claiming(e) == before
    await many(e, 100_000)
    done = 0
    leases = await e.claim(500)
    while leases:
        deal = await e.hand(*[e.patch(lease, "completed") for lease in leases], n=500)
        done += len(leases)
        leases = list(deal.leases)
    assert done >= 100_000
    assert await claiming(e) == before


async def test_100_000_behind_a_full_limit_cost_the_others_nothing(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("first", "second", "third", limits="k", priority=0)
    [first] = await e.claim(9)
    before = await claiming(e)
    deals = []

    async def pass_on(lease: Lease) -> None:
        deals.append(await e.hand(e.patch(lease, "completed"), n=1))

    freeing = await cost(e.engine, lambda: pass_on(first))
    await many(e, 100_000, limits=(("k", 1),), priority=0)
    assert (await e.gauge("k")).waiting == 100_001
    assert 3 * await claiming(e) <= 4 * before
    [second] = deals[0].leases
    assert 3 * await cost(e.engine, lambda: pass_on(second)) <= 4 * freeing
    assert e.names(deals[1].leases) == ["third"]


async def test_a_tenant_behind_100_000_tasks_of_another_alternates_at_once(e: Scene) -> None:
    await many(e, 100_000, fair_key="early")
    assert len(await e.claim(50)) == 50
    late = [new_id() for _ in range(20)]
    await e.engine.enqueue([NewTask(id=i, type="work", fair_key="late") for i in late])
    next_40 = [lease.id in late for lease in await e.claim(40)]
    assert sum(next_40) == 20
    assert all(sum(next_40[n : n + 2]) == 1 for n in range(0, 40, 2)), next_40


async def test_a_sweep_with_nothing_to_do_is_cheap(e: Scene) -> None:
    await e.add("a")
    await e.sweep()
    before = await cost(e.engine, e.engine.sweep)
    await many(e, 20_000, delay_ms=3_600_000)
    await many(e, 20_000)
    assert 3 * await cost(e.engine, e.engine.sweep) <= 4 * before
