"""Calls that share a transaction, and those that meet in the middle of one.

What is submitted in one turn of the event loop is one transaction, in that order: the tests use it
to put two calls exactly where they must not harm each other.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import AutoReconnect, ServerSelectionTimeoutError

from outlast.core.codec import dumps
from outlast.core.errors import EngineDown
from outlast.core.ids import new_fence, new_id
from outlast.core.limits import Limit
from outlast.core.model import (
    Cancel,
    Change,
    Deal,
    EventQuery,
    Forget,
    Item,
    Lease,
    NewEvent,
    NewTask,
    Outcome,
    Put,
    TaskQuery,
    Turn,
    Want,
    WorkerInfo,
)
from outlast.engine import connect
from outlast.engines.mongo import db, read
from outlast.engines.mongo import engine as mongo_engine
from outlast.engines.mongo.db import Link
from outlast.engines.mongo.engine import MongoEngine

INFO = WorkerInfo(host="here", pid=os.getpid())


@pytest.fixture
async def other(url: str, engine: MongoEngine) -> AsyncIterator[MongoEngine]:
    """Another process on the same database."""
    other = MongoEngine(Link(url))
    await other.open()
    yield other
    await other.close()


def task(**fields: object) -> NewTask:
    return NewTask(id=new_id(), type="work", **fields)  # type: ignore[arg-type]


def turn(worker: str, *outcomes: Outcome, room: int = 0, queues: tuple[str, ...] = ()) -> Turn:
    wants = tuple(Want(queue, "primary", 1) for queue in queues or ("default",))
    return Turn(
        token=new_fence(), worker=worker, room=room, wants=wants if room else (),
        outcomes=outcomes, info=INFO,
    )  # fmt: skip


def completed(lease: Lease) -> Outcome:
    return Outcome(id=lease.id, fence=lease.fence, state="completed")


async def claim(engine: MongoEngine, worker: str, room: int = 1) -> list[Lease]:
    return list((await engine.exchange(turn(worker, room=room))).leases)


async def turns(engine: MongoEngine) -> int:
    state = await engine._link.db.meta.find_one({"_id": "log"})
    assert state is not None
    return int(state["turn"])


async def in_one(engine: MongoEngine, *calls: Awaitable[Any]) -> list[Any]:
    """The answers of calls that shared a transaction."""
    before = await turns(engine)
    async with asyncio.timeout(30):
        answers = await asyncio.gather(*calls)
    assert await turns(engine) == before + 1
    return list(answers)


# the commit ---------------------------------------------------------------------------------------


async def test_a_block_whose_commit_was_not_answered_says_so(
    engine: MongoEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs it again would enqueue again."""

    async def lost(session: AsyncClientSession) -> None:
        await session.commit_transaction()
        error = AutoReconnect("the reply was lost")
        error._add_error_label(db.UNKNOWN_COMMIT)
        raise error

    async def block() -> None:
        async with engine.transaction() as session:
            await engine.enqueue([task()], within=session)

    with monkeypatch.context() as patched:
        patched.setattr(mongo_engine, "commit", lost)
        with pytest.raises(EngineDown, match="not known"):
            await block()
    assert len((await engine.tasks(TaskQuery())).items) == 1


@pytest.mark.parametrize("made", [True, False])
async def test_a_commit_without_an_answer_is_not_made_again(
    engine: MongoEngine, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    """Each of those who shared it is told that nobody knows; what it did is there once, or not."""

    async def lost(session: AsyncClientSession) -> None:
        if made:
            await session.commit_transaction()
        error = AutoReconnect("the reply was lost")
        error._add_error_label(db.UNKNOWN_COMMIT)
        raise error

    mine = task()
    with monkeypatch.context() as patched:
        patched.setattr(db, "commit", lost)
        answers = await asyncio.gather(
            engine.append([NewEvent(kind="notice", data=b"{}")]),
            engine.put([Put(kind="k", key="a", value=b"1")]),
            engine.put([Put(kind="k", key="b", value=b"1", expect=0)]),
            engine.enqueue([mine]),
            return_exceptions=True,
        )
    for answer in answers:
        assert isinstance(answer, EngineDown)
        assert "not known" in str(answer)
    events = (await engine.events(EventQuery(kinds=("notice",)))).items
    records = await engine.get("k")
    assert len(events) == made
    assert [(r.key, r.version) for r in records] == ([("a", 1), ("b", 1)] if made else [])
    [receipt] = await engine.enqueue([mine])
    assert receipt.existing is made


async def test_a_commit_that_was_not_made_begins_again(
    engine: MongoEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tries = db.commit, []

    async def refused(session: AsyncClientSession) -> None:
        tries.append(session)
        if len(tries) == 1:
            await session.abort_transaction()
            error = AutoReconnect("no such transaction")
            error._add_error_label(db.TRANSIENT)
            raise error
        await real(session)

    monkeypatch.setattr(db, "commit", refused)
    one, two = task(), task()
    await asyncio.gather(engine.enqueue([one]), engine.enqueue([two]))
    assert len(tries) == 2
    assert {t.id for t in (await engine.tasks(TaskQuery())).items} == {one.id, two.id}


async def test_a_server_that_is_away_is_waited_for_once(
    engine: MongoEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by one after the other of those who asked together."""
    tries = []

    async def away(session: AsyncClientSession) -> None:
        tries.append(session)
        raise ServerSelectionTimeoutError("no primary")

    monkeypatch.setattr(db, "start", away)
    asked = [engine.enqueue([task()]) for _ in range(3)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(answer) for answer in answers] == 3 * [EngineDown]
    assert len(tries) == 1


# what was read ahead ------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [Cancel("enough"), Forget()])
async def test_a_line_read_ahead_is_not_claimed_from_once_somebody_left_it(
    engine: MongoEngine, change: Change
) -> None:
    """The turn with an outcome reads the heads of both queues, and has room for one task."""
    running, first, last = task(), task(), task(queue="other")
    await engine.enqueue([running])
    [lease] = await claim(engine, "w1")
    await engine.enqueue([first, last])
    deal, _, late = await in_one(
        engine,
        engine.exchange(turn("w1", completed(lease), room=1, queues=("default", "other"))),
        engine.alter([last.id], change),
        engine.exchange(turn("w2", room=1, queues=("other",))),
    )
    assert [lease.id for lease in deal.leases] == [first.id]
    assert late.leases == ()
    found = (await engine.tasks(TaskQuery.of(id=last.id))).items
    assert [t.state for t in found] == (["cancelled"] if isinstance(change, Cancel) else [])


async def test_a_line_read_ahead_by_one_turn_is_not_taken_for_that_of_the_next(
    engine: MongoEngine,
) -> None:
    """What the first turn read of the other queue lacks what came since."""
    one, two, first, better = task(), task(), task(), task(queue="other", priority=0)
    late = task(queue="other")
    await engine.enqueue([one, two])
    held = await claim(engine, "w1", 2)
    await engine.enqueue([first, late])
    _, _, deal = await in_one(
        engine,
        engine.exchange(turn("w1", completed(held[0]), room=1, queues=("default", "other"))),
        engine.enqueue([better]),
        engine.exchange(turn("w1", completed(held[1]), room=1, queues=("third", "other"))),
    )
    assert [lease.id for lease in deal.leases] == [better.id]


# limits -------------------------------------------------------------------------------------------


async def test_a_slot_freed_after_its_line_was_closed_opens_it_again(engine: MongoEngine) -> None:
    """Three turns of one transaction: a slot is freed, taken, the next refused; one more freed."""
    limit = Limit("k", slots=2)
    await engine.put([Put(kind="limit", key="k", value=dumps(limit.to_json()))])
    tasks = [task(limits=(("k", 1),)) for _ in range(4)]
    await engine.enqueue(tasks)
    [one] = await claim(engine, "w1")
    [two] = await claim(engine, "w2")
    deal, _ = await in_one(
        engine,
        engine.exchange(turn("w1", completed(one), room=2)),
        engine.exchange(turn("w2", completed(two))),
    )
    assert [lease.id for lease in deal.leases] == [tasks[2].id]
    assert [lease.id for lease in await claim(engine, "w2")] == [tasks[3].id]


# other processes ----------------------------------------------------------------------------------


async def items_of(*tasks: NewTask) -> dict[str, list[Item]]:
    """Tasks as another engine would hand them over, by kind."""
    source = connect(f"memory://{new_id()}")
    await source.open()
    await source.enqueue(tasks)
    found: dict[str, list[Item]] = {}
    cursor: str | None = None
    while True:
        page = await source.dump(cursor)
        for item in page.items:
            found.setdefault(item.kind, []).append(item)
        if (cursor := page.next) is None:
            await source.close()
            return found


async def test_an_edge_loaded_while_its_upstream_runs_is_followed(
    engine: MongoEngine, other: MongoEngine
) -> None:
    """Whoever runs it claimed it before anybody waited for it."""
    up = task()
    down = task(after=(up.id,))
    items = await items_of(up, down)
    await engine.load(items["task"])
    [lease] = await claim(other, "w1")
    await engine.load(items["edge"])
    await other.exchange(turn("w1", completed(lease)))
    assert [lease.id for lease in await claim(other, "w1")] == [down.id]


class Between:
    """The log, in which something happens just before a page is read."""

    def __init__(self, real: Any, happens: Callable[[], Awaitable[object]]) -> None:
        self.meta, self.client = real.meta, real.client
        self._log = real.event
        self._happens = happens

    @property
    def event(self) -> Between:
        return self

    def find(self, *asked: Any, **how: Any) -> Between:
        self._cursor = self._log.find(*asked, **how)
        return self

    async def to_list(self) -> list[Any]:
        await self._happens()
        found: list[Any] = await self._cursor.to_list()
        return found


async def test_a_reader_is_told_of_what_is_pruned_under_its_hands(
    engine: MongoEngine, other: MongoEngine
) -> None:
    [seen] = await engine.append([NewEvent(kind="seen", data=b"{}")])
    await engine.append([NewEvent(kind="pruned", data=b"{}")])
    await engine.put([Put(kind="retention", key="log", value=b'{"age_ms":0}')])
    other.skew_ms = 60_000
    between: Any = Between(engine._link.db, other.sweep)
    page = await read.events(between, EventQuery(after=seen))
    assert page.items == ()
    assert page.reset


async def test_a_repeated_turn_in_the_same_transaction_answers_with_its_leases(
    engine: MongoEngine,
) -> None:
    mine = task(payload=b'{"n":1}')
    await engine.enqueue([mine])
    asked = turn("w1", room=1)
    first: Deal
    first, again = await in_one(engine, engine.exchange(asked), engine.exchange(asked))
    assert first.leases == again.leases
    assert [lease.payload for lease in again.leases] == [mine.payload]
