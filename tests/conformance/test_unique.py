"""Unique keys: one living task per key, or one per span in any state."""

from __future__ import annotations

import asyncio

import pytest

from outlast.core.model import Redrive

from .language import Scene


async def test_a_taken_key_gives_the_living_task(e: Scene) -> None:
    await e.add("a", unique_key="k", payload=1)
    before = await e.everything()
    [receipt] = await e.add("b", unique_key="k", payload=2)
    assert (e.name(receipt.id), receipt.existing) == ("a", True)
    assert await e.everything() == before


async def test_other_keys_are_free(e: Scene) -> None:
    await e.add("a", unique_key="k")
    [receipt] = await e.add("b", unique_key="K")
    assert not receipt.existing


async def test_twice_in_a_batch(e: Scene) -> None:
    receipts = await e.batch(e.new("a", unique_key="k"), e.new("b", unique_key="k"))
    assert [(e.name(r.id), r.existing) for r in receipts] == [("a", False), ("a", True)]
    assert await e.statuses() == {"a": "ready"}


async def test_the_key_is_held_as_long_as_the_task_lives(e: Scene) -> None:
    await e.add("a", unique_key="k")
    [a] = await e.claim()
    assert (await e.add("b", unique_key="k"))[0].existing
    await e.fail(a, "1m")
    assert (await e.add("b", unique_key="k"))[0].existing
    await e.vanish()
    assert (await e.add("b", unique_key="k"))[0].existing


@pytest.mark.parametrize("end", ["finish", "die", "stop"])
async def test_the_end_of_a_task_frees_its_key(e: Scene, end: str) -> None:
    await e.add("a", unique_key="k")
    [a] = await e.claim()
    await getattr(e, end)(a)
    [receipt] = await e.add("b", unique_key="k")
    assert (e.name(receipt.id), receipt.existing) == ("b", False)


async def test_other_ends_free_it_too(e: Scene) -> None:
    await e.add("cancelled", unique_key="1", delay="1h")
    await e.cancel("cancelled")
    await e.add("expired", unique_key="2", max_age="1m")
    await e.add("stalled", unique_key="3", max_losses=1, priority=0)
    assert await e.claims(1) == ["stalled"]
    await e.advance("2m")
    await e.sweep()
    for key in ("1", "2", "3"):
        [receipt] = await e.add(f"new{key}", unique_key=key)
        assert not receipt.existing, key


async def test_a_forgotten_task_frees_its_key(e: Scene) -> None:
    await e.add("a", unique_key="k", delay="1h")
    await e.forget("a")
    assert not (await e.add("b", unique_key="k"))[0].existing


async def test_a_span_holds_in_any_state(e: Scene) -> None:
    await e.add("a", unique_key="k", unique_for="24h")
    [a] = await e.claim()
    await e.finish(a)
    await e.advance("23h")
    [receipt] = await e.add("b", unique_key="k", unique_for="24h")
    assert (e.name(receipt.id), receipt.existing) == ("a", True)
    await e.advance("2h")
    [receipt] = await e.add("b", unique_key="k", unique_for="24h")
    assert not receipt.existing


async def test_a_span_ends_though_the_task_lives(e: Scene) -> None:
    await e.add("a", unique_key="k", unique_for="1h", delay="10h")
    await e.advance("61m")
    assert not (await e.add("b", unique_key="k", unique_for="1h"))[0].existing


async def test_a_sweep_takes_no_span_away(e: Scene) -> None:
    await e.add("a", unique_key="k", unique_for="24h")
    [a] = await e.claim()
    await e.finish(a)
    await e.advance("1h")
    await e.sweep()
    assert (await e.add("b", unique_key="k"))[0].existing


async def test_the_digest_of_the_first_request_is_given_back(e: Scene) -> None:
    await e.add("a", unique_key="k", unique_for="24h", digest="d1")
    [receipt] = await e.add("b", unique_key="k", unique_for="24h", digest="d2")
    assert (receipt.existing, receipt.digest) == (True, "d1")


async def test_only_one_of_many_gets_the_key(e: Scene) -> None:
    receipts = await asyncio.gather(*[e.add(f"t{n}", unique_key="k") for n in range(10)])
    assert sum(not r.existing for [r] in receipts) == 1
    assert len(await e.statuses()) == 1


async def test_a_redrive_takes_the_key_again(e: Scene) -> None:
    await e.add("a", unique_key="k")
    [a] = await e.claim()
    await e.die(a)
    await e.redrive("a")
    assert (await e.add("b", unique_key="k"))[0].existing


async def test_a_redrive_does_not_push_the_living_aside(e: Scene) -> None:
    await e.add("a", unique_key="k")
    [a] = await e.claim()
    await e.die(a)
    await e.add("b", unique_key="k")
    assert await e.refuses("a", Redrive()) == "unique"
    assert await e.statuses() == {"a": "dead", "b": "ready"}


async def test_a_restored_dependent_does_not_push_the_living_aside(e: Scene) -> None:
    await e.batch(e.new("a"), e.new("b", after="a", unique_key="k"))
    [a] = await e.claim()
    await e.die(a)
    await e.add("other", unique_key="k", delay="1h")
    await e.redrive("a")
    await e.sweep()
    [receipt] = await e.add("third", unique_key="k")
    assert (e.name(receipt.id), receipt.existing) == ("other", True)
    assert await e.status("b") == "cancelled"


async def test_a_restored_dependent_has_its_span_still(e: Scene) -> None:
    await e.batch(e.new("a"), e.new("b", after="a", unique_key="k", unique_for_ms=3_600_000))
    [a] = await e.claim()
    await e.die(a)
    await e.redrive("a")
    assert await e.status("b") == "blocked"
    [receipt] = await e.add("other", unique_key="k")
    assert (e.name(receipt.id), receipt.existing) == ("b", True)


async def test_a_span_that_is_over_keeps_no_dependent_from_being_restored(e: Scene) -> None:
    await e.batch(e.new("a"), e.new("b", after="a", unique_key="k", unique_for_ms=60_000))
    [a] = await e.claim()
    await e.die(a)
    await e.advance("2m")
    await e.redrive("a")
    assert await e.status("b") == "blocked"
    [receipt] = await e.add("other", unique_key="k")
    assert (e.name(receipt.id), receipt.existing) == ("b", True)


async def test_a_known_id_is_told_before_its_key(e: Scene) -> None:
    await e.add("a", unique_key="k")
    await e.add("b", unique_key="other")
    [receipt] = await e.add("b", unique_key="k")
    assert (e.name(receipt.id), receipt.existing) == ("b", True)
