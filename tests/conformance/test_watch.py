"""Watch: a hint that something may have changed. The only chapter that waits, with a deadline."""

from __future__ import annotations

import asyncio

import pytest

from outlast.core.model import Want
from outlast.core.states import Lane

from .language import Scene

SOON = 30.0
"""Seconds: far more than any engine needs, so that only a missing hint runs into it."""


async def hinted(e: Scene, topic: str, act: object) -> bool:
    async with e.engine.watch([topic]) as watch:
        while await watch.wait(0):
            pass  # hints may be late: those of the preparation are none of ours
        await act  # type: ignore[misc]
        return await watch.wait(SOON)


async def test_a_new_task_is_news_for_its_queue(e: Scene) -> None:
    assert await hinted(e, "queue:default", e.add("a"))


async def test_a_retry_is_news_for_its_queue(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    assert await hinted(e, "queue:default", e.fail(a))


async def test_a_released_dependent_is_news_for_its_queue(e: Scene) -> None:
    await e.add("a")
    await e.add("b", after="a", queue="other")
    [a] = await e.claim()
    assert await hinted(e, "queue:other", e.finish(a))


async def test_a_freed_slot_is_news_for_the_waiters(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("a", limits="k")
    [a] = await e.claim()
    await e.add("b", limits="k", queue="other")
    assert await e.claims(queue="other") == []
    assert await hinted(e, "queue:other", e.finish(a))


async def test_a_raised_limit_is_news_for_the_waiters(e: Scene) -> None:
    await e.limit("k", slots=1)
    await e.add("a", "b", limits="k")
    await e.claim(9)
    assert await hinted(e, "queue:default", e.limit("k", slots=2))


async def test_a_resumed_queue_is_news(e: Scene) -> None:
    await e.pause()
    assert await hinted(e, "queue:default", e.resume())


async def test_a_signal_is_news_for_the_queue_it_wakes(e: Scene) -> None:
    await e.add("a", hold="go")
    assert await hinted(e, "queue:default", e.signal("a", "go"))


async def test_a_redrive_is_news_for_its_queue(e: Scene) -> None:
    await e.add("a")
    await e.cancel("a")
    assert await hinted(e, "queue:default", e.redrive("a"))


async def test_a_cancel_is_news_for_the_owner(e: Scene) -> None:
    await e.add("a")
    await e.claim(1, "w1")
    assert await hinted(e, "worker:w1", e.cancel("a"))


async def test_an_eviction_is_news_for_the_worker(e: Scene) -> None:
    await e.add("a")
    await e.claim(1, "w1")
    await e.advance("11s")
    assert await hinted(e, "worker:w1", e.sweep())


@pytest.mark.parametrize("topic", ["task", "log"])
async def test_the_end_is_news_for_whoever_waits_for_it(e: Scene, topic: str) -> None:
    await e.add("a", followed=False)
    [a] = await e.claim()
    assert await hinted(e, f"task:{a.id}" if topic == "task" else "log", e.finish(a))


async def test_a_notice_is_news_for_the_log(e: Scene) -> None:
    assert await hinted(e, "log", e.say("notice"))


async def test_nothing_happened_no_hint(e: Scene) -> None:
    async with e.engine.watch(["queue:default"]) as watch:
        while await watch.wait(0):
            pass
        assert not await watch.wait(0.02)


async def test_a_hint_before_the_wait_is_kept(e: Scene) -> None:
    async with e.engine.watch(["queue:default"]) as watch:
        await e.add("a")
        assert await watch.wait(SOON)


@pytest.mark.parametrize(
    ("lanes", "room", "told"),
    [(("primary", "retry"), 3, False), (("primary", "retry"), 2, True), (("primary",), 3, True)],
)
async def test_a_turn_that_took_all_that_it_made_ready_tells_nobody_to_look(
    e: Scene, lanes: tuple[Lane, ...], room: int, told: bool
) -> None:
    """Else every worker would look again after each of its own turns."""
    await e.add("a")
    await e.add("b", "c", after="a")
    [a] = await e.claim()
    async with e.engine.watch(["queue:default"]) as watch, e.engine.watch(["queue:x"]) as later:
        await e.add("x", queue="x")  # hints come in their order: behind this one are no others
        assert await later.wait(SOON)
        await watch.wait(0)
        wants = [Want("default", lane, room) for lane in lanes]
        deal = await e.turn(wants=wants, room=room, outcomes=[e.patch(a, "completed")])
        assert e.names(deal.leases) == ["b", "c"]
        await e.add("y", queue="x")
        assert await later.wait(SOON)
        assert await watch.wait(0) == told


async def test_a_turn_that_left_somebody_ready_says_so(e: Scene) -> None:
    """Also somebody behind a limit that this turn has freed."""
    await e.limit("k", slots=1)
    await e.add("a", "b", "c", limits="k")
    [a] = await e.claim()
    assert await e.claims() == []
    await e.add("d", after="a")
    async with e.engine.watch(["queue:default"]) as watch:
        while await watch.wait(0):
            pass
        deal = await e.turn(n=9, outcomes=[e.patch(a, "completed")])
        assert sorted(e.names(deal.leases)) == ["b", "d"]
        assert await watch.wait(SOON)


async def test_several_topics_and_several_watchers(e: Scene) -> None:
    async with e.engine.watch(["queue:x", "queue:y"]) as one, e.engine.watch(["queue:y"]) as two:
        waits = [asyncio.create_task(w.wait(SOON)) for w in (one, two)]
        await e.add("a", queue="y")
        assert all(await asyncio.gather(*waits))


async def test_a_wait_can_be_cancelled(e: Scene) -> None:
    async with e.engine.watch(["queue:x"]) as watch:
        waiting = asyncio.create_task(watch.wait(SOON))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await e.add("a", queue="x")
        assert await watch.wait(SOON)
