"""Joining the caller's transaction: all of it or nothing. The one thing an engine may refuse."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import nullcontext

import pytest

from outlast.core.errors import BadInput, OutlastError, Unsupported
from outlast.core.model import EventQuery

from .language import Scene
from .servers import NO_TRANSACTION


@pytest.fixture
async def tx(e: Scene) -> Scene:
    """The scene of an engine that has transactions to join."""
    return e


async def test_an_engine_without_a_transaction_to_join_says_so(e: Scene, engine_name: str) -> None:
    refused = pytest.raises(Unsupported) if engine_name in NO_TRANSACTION else nullcontext()
    with refused:
        async with e.engine.transaction():
            pass


async def test_what_is_enqueued_within_commits_with_it(tx: Scene) -> None:
    async with tx.engine.transaction() as connection:
        [receipt] = await tx.engine.enqueue([tx.new("a")], within=connection)
        assert not receipt.existing
        await tx.engine.enqueue([tx.new("b", after="a")], within=connection)
    assert await tx.statuses() == {"a": "ready", "b": "blocked"}
    assert await tx.log("a") == ["ready"]
    assert await tx.claims(9) == ["a"]


async def test_an_error_in_the_block_takes_everything_back(tx: Scene) -> None:
    with pytest.raises(ZeroDivisionError):
        async with tx.engine.transaction() as connection:
            await tx.engine.enqueue([tx.new("a", unique_key="k")], within=connection)
            _ = 1 / 0
    assert await tx.everything() == ([], [])
    assert not (await tx.add("b", unique_key="k"))[0].existing


async def test_nothing_is_seen_before_the_commit(tx: Scene) -> None:
    async with tx.engine.transaction() as connection:
        await tx.engine.enqueue([tx.new("a")], within=connection)
        claim = asyncio.create_task(tx.claims(9))
        await asyncio.sleep(0)
        assert not claim.done()
    assert await claim in ([], ["a"])


async def test_bad_input_within_leaves_the_transaction_usable(tx: Scene) -> None:
    async with tx.engine.transaction() as connection:
        await tx.engine.enqueue([tx.new("a")], within=connection)
        with pytest.raises(BadInput):
            await tx.engine.enqueue([tx.new("b"), tx.new("c", after="nobody")], within=connection)
    assert await tx.statuses() == {"a": "ready"}


async def test_a_closed_transaction_is_refused(tx: Scene) -> None:
    async with tx.engine.transaction() as connection:
        pass
    with pytest.raises(OutlastError):
        await tx.engine.enqueue([tx.new("a")], within=connection)
    assert await tx.statuses() == {}


async def test_a_foreign_connection_is_refused_with_the_reason(tx: Scene) -> None:
    foreign = sqlite3.connect(":memory:")
    try:
        with pytest.raises(OutlastError, match="transaction"):
            await tx.engine.enqueue([tx.new("a")], within=foreign)
    finally:
        foreign.close()
    assert await tx.statuses() == {}


async def test_writers_wait_their_turn(tx: Scene) -> None:
    async with tx.engine.transaction() as connection:
        other = asyncio.create_task(tx.add("other"))
        await tx.engine.enqueue([tx.new("a")], within=connection)
    await other
    assert await tx.statuses() == {"a": "ready", "other": "ready"}


async def test_a_reader_misses_nothing_that_was_committed_late(tx: Scene) -> None:
    """What was written first may be seen last: no reader has passed its place meanwhile."""
    async with tx.engine.transaction() as connection:
        await tx.engine.enqueue([tx.new("late")], within=connection)
        other = asyncio.create_task(tx.add("other"))
        await asyncio.wait([other], timeout=1)  # unless it must wait its turn
        reading = asyncio.create_task(tx.engine.events(EventQuery()))
        await asyncio.wait([reading], timeout=1)  # the same
    await other
    first = await reading
    rest = await tx.engine.events(EventQuery(after=first.next))
    seen = [tx.name(event.task_id) for event in (*first.items, *rest.items)]
    assert sorted(seen) == ["late", "other"]


async def test_a_hint_follows_the_commit(tx: Scene) -> None:
    async with tx.engine.watch(["queue:default"]) as watch:
        async with tx.engine.transaction() as connection:
            await tx.engine.enqueue([tx.new("a")], within=connection)
        assert await watch.wait(30)


async def _enqueued(tx: Scene, name: str, *, error: Exception | None = None) -> None:
    async with tx.engine.transaction() as connection:
        await tx.engine.enqueue([tx.new(name)], within=connection)
        if error is not None:
            raise error


async def test_who_gives_up_waiting_for_a_transaction_holds_up_nobody(tx: Scene) -> None:
    async with tx.engine.transaction():
        other = asyncio.create_task(_enqueued(tx, "other"))
        await asyncio.wait([other], timeout=0.5)  # unless it must wait its turn
        gave_up = other.cancel()
        await asyncio.wait([other])
    await tx.add("a")
    assert await tx.statuses() == ({} if gave_up else {"other": "ready"}) | {"a": "ready"}


async def test_what_others_get_wrong_takes_no_transaction_along(tx: Scene) -> None:
    async with tx.engine.transaction():  # those that must wait their turn come together
        ends = [
            asyncio.create_task(_enqueued(tx, "good")),
            asyncio.create_task(_enqueued(tx, "bad", error=ZeroDivisionError())),
            asyncio.create_task(tx.add("worse", after="nobody")),
            asyncio.create_task(_enqueued(tx, "also")),
        ]
        await asyncio.wait(ends, timeout=0.5)
    answers = await asyncio.gather(*ends, return_exceptions=True)
    kinds = [type(answer) for answer in answers]
    assert kinds == [type(None), ZeroDivisionError, BadInput, type(None)]
    assert await tx.statuses() == {"good": "ready", "also": "ready"}


async def test_slots_freed_behind_a_transaction_are_all_taken(tx: Scene) -> None:
    await tx.limit("k", slots=2)
    await tx.add("a", "b", "c", "d", limits="k")
    leases = await tx.claim(9)
    async with tx.engine.transaction():  # turns that must wait come together
        turns = [
            asyncio.create_task(tx.hand(tx.patch(lease, "completed"), n=9)) for lease in leases
        ]
        await asyncio.wait(turns, timeout=0.5)
    deals = await asyncio.gather(*turns)
    taken = tx.names([lease for deal in deals for lease in deal.leases])
    assert sorted(taken) == ["c", "d"]  # which turn gets which is theirs to settle
