"""Two connections in each other's way, each held where it matters by a lock of a third.

Every statement of a function sees what was committed before it began, and whoever waits for a lock
goes on with what came before the wait: what was read before it may no longer be true.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from outlast.core.ids import new_fence
from outlast.core.model import (
    Change,
    Charge,
    Deal,
    EventQuery,
    Forget,
    Outcome,
    Redrive,
    TaskQuery,
    Turn,
    Want,
    WorkerInfo,
)
from outlast.engines.postgres import alter, enqueue, exchange, read
from outlast.engines.postgres.copy import Dumping
from outlast.engines.postgres.db import in_schema
from outlast.engines.postgres.engine import PostgresEngine
from tests.conformance.language import Scene

INFO = WorkerInfo(host="test", pid=1)
WAITING = """select count(*) from pg_stat_activity
where wait_event_type = 'Lock' and wait_event <> 'object'"""  # that one is of notifications


class Race(Scene):
    """A scene in which statements are stopped half-way."""

    engine: PostgresEngine

    @asynccontextmanager
    async def holding(self, *statements: str) -> AsyncIterator[asyncpg.Connection]:
        """A transaction that has done these, and holds their locks until the end of the block."""
        async with self.engine.transaction() as conn:
            for statement in statements:
                await conn.execute(self.sql(statement))
            yield conn

    def sql(self, statement: str) -> str:
        return in_schema(statement, self.engine._settings.schema)

    async def do(self, *statements: str) -> None:
        async with self.holding(*statements):
            pass

    def row(self, name: str) -> str:
        """Locks a task."""
        return f"select 1 from outlast.task where id = '{self.id(name)}' for update"  # noqa: S608

    async def stopped(self, *calls: asyncio.Task[Any]) -> None:
        """Until each of them waits for a lock, or has ended."""
        async with asyncio.timeout(30):
            while await self.engine._value(WAITING) < sum(not call.done() for call in calls):
                pass

    async def once(self, statement: str, *values: object) -> list[Any]:
        """A call whose deadlock is an error: the engine would try again, a second later."""
        pool = self.engine._open_pool()
        return list(await pool.fetch(self.sql(statement), *values))

    def new_turn(self, worker: str, n: int, *outcomes: Outcome, queue: str = "default") -> Turn:
        lanes = (Want(queue, "primary", n), Want(queue, "retry", n))
        return Turn(
            token=new_fence(),
            worker=worker,
            wants=lanes if n else (),
            room=n,
            outcomes=outcomes,
            info=INFO,
        )

    async def turn_on(self, conn: asyncpg.Connection, turn: Turn) -> Deal:
        """A turn in a transaction that is still open."""
        marks = exchange.Marks()
        arguments = exchange.arguments(turn, self.engine.skew_ms, marks)
        rows = await conn.fetch(self.sql(exchange.EXCHANGE), *arguments)
        deal, _ = exchange.deal(turn, rows, marks)
        for lease in deal.leases:
            self._owner[lease.id, lease.fence] = turn.worker
        return deal

    async def alter_on(self, conn: asyncpg.Connection, name: str, change: Change) -> None:
        arguments = alter.arguments([self.id(name)], change, self.engine.skew_ms)
        [row] = await conn.fetch(self.sql(alter.ALTER), *arguments)
        assert row["applied"]


@pytest.fixture
def e(engine: PostgresEngine) -> Race:
    return Race(engine)


start = asyncio.ensure_future


# limits ------------------------------------------------------------------------------------------


async def test_a_gauge_made_anew_during_a_wait_is_locked_all_the_same(e: Race) -> None:
    await e.limit("b", slots=1)
    await e.add("two", limits=["a", "b"])
    await e.add("one", limits=["b"], queue="other")
    await e.do("insert into outlast.gauge (key) values ('a'), ('b')")
    async with e.holding() as open_turn:
        async with e.holding("select 1 from outlast.gauge where key = 'a' for update"):
            first = start(e.claims(worker="w1"))
            await e.stopped(first)
            await e.do("delete from outlast.gauge where key = 'b'")  # as a sweep, when it is idle
            await e.do("insert into outlast.gauge (key) values ('b')")
            deal = await e.turn_on(open_turn, e.new_turn("w2", 1, queue="other"))
            assert e.names(deal.leases) == ["one"]
        await e.stopped(first)
    assert await first == []
    assert await e.used("b") == {"b": 1}


async def test_a_line_is_not_dropped_under_who_was_just_parked_in_it(e: Race) -> None:
    await e.limit("k", slots=1)
    await e.add("a", "b", limits=["k"])
    [a] = await e.claim()
    assert await e.claim() == []
    assert await e.parked("b") == "limit:k"
    # A statement that deletes lines stops after it has begun, before it looks at anything.
    await e.do(
        """create function outlast.stop() returns trigger language plpgsql as
        $$ begin perform pg_advisory_xact_lock(1); return null; end $$""",
        """create trigger stop before delete on outlast.line
        for each statement execute function outlast.stop()""",
    )
    async with e.holding("select pg_advisory_xact_lock(1)"):
        dropping = start(e.hand(e.patch(a, "completed"), n=1))  # takes the last one of the line
        await e.stopped(dropping)
        adding = start(e.add("c", limits=["k"]))
        await e.stopped(dropping, adding)
    [b] = (await dropping).leases
    await adding
    assert await e.claims() == []
    await e.finish(b)
    assert await e.claims() == ["c"]


async def test_a_limit_that_is_raised_while_somebody_is_parked_lets_him_pass(e: Race) -> None:
    await e.limit("k", rate="1/h")
    await e.add("a", "b", limits=["k"])
    async with e.holding() as open_turn:
        deal = await e.turn_on(open_turn, e.new_turn("w", 2))
        assert e.names(deal.leases) == ["a"]
        raising = start(e.limit("k", rate="100/h"))
        await e.stopped(raising)
    await raising
    assert await e.claims() == ["b"]


async def test_a_circuit_that_is_defined_while_an_attempt_ends_turns(e: Race) -> None:
    await e.add("a", limits=["k"])
    [a] = await e.claim()
    async with e.holding(e.row("a")):
        ending = start(e.die(a, charges=[Charge("k", ok=False)]))
        await e.stopped(ending)
        await e.limit("k", trip={"rate": 1.0, "volume": 1})
    await ending
    assert (await e.gauge("k")).circuit == "open"


async def test_a_turn_that_has_gauges_waits_for_nobody_who_makes_one(e: Race) -> None:
    await e.limit("a", slots=1)
    await e.add("held", "full", limits=["a"])
    await e.claim()
    await e.add("next", limits=["b"])
    await e.add("other", limits=["b"], queue="other")
    async with e.holding() as open_turn:
        await e.turn_on(open_turn, e.new_turn("w2", 1, queue="other"))
        claiming = start(e.turn("w1", n=1))
        await e.stopped(claiming)
        assert claiming.done()
        assert claiming.result().again
    assert await e.claims() == ["next"]


# turns -------------------------------------------------------------------------------------------


async def test_who_is_being_claimed_is_passed_over(e: Race) -> None:
    await e.add("a", "b")
    async with e.holding() as open_turn:
        deal = await e.turn_on(open_turn, e.new_turn("w1", 1))
        other = start(e.claim(1, "w2"))
        await e.stopped(other)
    assert e.names([*deal.leases, *await other]) == ["a", "b"]


async def test_the_first_turn_of_a_worker_repeated_while_it_runs_claims_once(e: Race) -> None:
    await e.add("a", "b")
    turn = e.new_turn("w", 1)
    async with e.holding() as open_turn:
        deal = await e.turn_on(open_turn, turn)
        assert e.names(deal.leases) == ["a"]
        repeated = start(e.engine.exchange(turn))
        await e.stopped(repeated)
    assert (await repeated).leases == deal.leases
    assert await e.statuses() == {"a": "running", "b": "ready"}


async def test_a_beat_beside_the_first_turn_does_not_forget_its_token(e: Race) -> None:
    await e.add("a", "b")
    turn = e.new_turn("w", 1)
    async with e.holding() as open_turn:
        deal = await e.turn_on(open_turn, turn)
        beat = start(e.engine.exchange(e.new_turn("w", 0)))
        await e.stopped(beat)
    await beat
    assert (await e.engine.exchange(turn)).leases == deal.leases
    assert await e.statuses() == {"a": "running", "b": "ready"}


# dependencies ------------------------------------------------------------------------------------


async def test_who_comes_after_a_task_that_was_not_there_yet_is_told_of_its_end(e: Race) -> None:
    await e.add("first")
    async with e.holding() as open_turn:
        async with e.holding(e.row("first")):
            async with e.holding() as late:
                await e.engine.enqueue([e.new("up", queue="other")], within=late)
                adding = start(e.add("down", after=["first", "up"]))
                await e.stopped(adding)
            [up] = await e.claim(queue="other")
            await e.turn_on(open_turn, e.new_turn("w1", 0, e.patch(up, "completed")))
        await e.stopped(adding)
    await adding
    [first] = await e.claim()
    await e.finish(first)
    assert await e.claims() == ["down"]


async def test_who_goes_on_after_a_task_that_was_not_there_yet_is_told_of_its_end(e: Race) -> None:
    await e.add("first", "down")
    first, down = await e.claim(2)
    async with e.holding() as open_turn:
        async with e.holding(e.row("first")):
            async with e.holding() as late:
                await e.engine.enqueue([e.new("up", queue="other")], within=late)
                waiting = start(e.snooze(down, after=["first", "up"]))
                await e.stopped(waiting)
            [up] = await e.claim(queue="other", worker="w2")
            await e.turn_on(open_turn, e.new_turn("w2", 0, e.patch(up, "completed")))
        await e.stopped(waiting)
    await waiting
    await e.finish(first)
    [down] = await e.claim()
    await e.die(down)
    await e.redrive("down")  # waits for whom it still has to hear of
    assert await e.status("down") == "ready"


async def test_a_known_task_gets_no_upstream_while_it_is_being_stored(e: Race) -> None:
    await e.add("up")
    await e.cancel("up")
    async with e.holding() as late:
        await e.engine.enqueue([e.new("a")], within=late)
        again = start(e.add("a", after="up"))
        await e.stopped(again)
    [receipt] = await again
    assert receipt.existing
    assert await e.claims() == ["a"]


async def dead_with_dependents_left_over(e: Race) -> None:
    """One whose death could not be told to anybody, because somebody held them."""
    await e.add("up", max_losses=1)
    await e.add("a", after="up", unique_key="a")
    await e.add("b", after="up")
    assert await e.claims() == ["up"]
    async with e.holding(e.row("a"), e.row("b")):
        await e.engine.sweep(gone=["w1"])
    assert await e.statuses() == {"a": "blocked", "b": "blocked", "up": "dead"}


async def test_a_redrive_during_a_sweep_keeps_its_dependents(e: Race) -> None:
    await dead_with_dependents_left_over(e)
    key = "select 1 from outlast.reservation where key = 'a' for update"
    async with e.holding(key, e.row("b")):
        sweeping = start(e.engine.sweep())  # tells a, but leaves b for the next sweep
        await e.stopped(sweeping)
        redriving = start(e.redrive("up"))
        await e.stopped(sweeping, redriving)
    await asyncio.gather(sweeping, redriving)
    await e.sweep()
    assert await e.statuses() == {"a": "blocked", "b": "blocked", "up": "ready"}
    [up] = await e.claim(worker="w2")
    await e.finish(up)
    assert sorted(await e.claims(2, worker="w2")) == ["a", "b"]


async def test_a_redrive_waits_for_whoever_ends_meanwhile(e: Race) -> None:
    await e.add("one", "two")
    await e.add("down", after=["one", "two"])
    for lease in await e.claim(2):
        await e.die(lease)
    await e.redrive("two")
    assert await e.status("down") == "cancelled"
    [two] = await e.claim()
    async with e.holding() as open_change:
        await e.alter_on(open_change, "one", Redrive())
        ending = start(e.finish(two))
        await e.stopped(ending)
    await ending
    [one] = await e.claim()
    await e.finish(one)
    assert await e.claims() == ["down"]


# one order of locks ------------------------------------------------------------------------------


async def test_batches_take_their_keys_in_one_order(e: Race) -> None:
    one = [e.new(f"a{k}", unique_key=k) for k in ("k1", "k2", "k4")]
    two = [e.new(f"b{k}", unique_key=k) for k in ("k4", "k3", "k1")]
    async with e.holding() as late:
        await e.engine.enqueue([e.new(k, unique_key=k) for k in ("k2", "k3")], within=late)
        calls = [start(e.once(enqueue.ENQUEUE, *enqueue.arguments(b, 0))) for b in (one, two)]
        await e.stopped(*calls)
    [first, second] = await asyncio.gather(*calls)
    assert sorted(row["existing"] for row in [*first, *second]) == [False] * 2 + [True] * 4


async def test_outcomes_take_their_tasks_in_one_order(e: Race) -> None:
    await e.add("a", "b", "c")
    a, b, c = await e.claim(3)
    outcomes = [e.patch(lease, "completed") for lease in (c, b, a)]
    turn = e.new_turn("w1", 0, *outcomes)
    new = [e.new("down", after=["a", "b", "c"])]
    async with e.holding(e.row("b")):
        ending = start(e.once(exchange.EXCHANGE, *exchange.arguments(turn, 0, exchange.Marks())))
        await e.stopped(ending)
        adding = start(e.once(enqueue.ENQUEUE, *enqueue.arguments(new, 0)))
        await e.stopped(ending, adding)
    await asyncio.gather(ending, adding)
    assert await e.claims() == ["down"]


# reading -----------------------------------------------------------------------------------------


class Between:
    """A connection on which something happens after its first query."""

    def __init__(self, conn: asyncpg.Connection, happens: Callable[[], Awaitable[Any]]) -> None:
        self._conn = conn
        self._happens = [happens]

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._conn, name)
        if not name.startswith("fetch"):
            return method

        async def fetch(*values: Any) -> Any:
            found = await method(*values)
            while self._happens:
                await self._happens.pop()()
            return found

        return fetch


async def test_a_reader_is_told_of_a_prune_between_its_looks(e: Race) -> None:
    await e.add("a", "b")
    start_of_log = (await e.engine.events(EventQuery(limit=1))).next
    await e.put("retention", "log", {"age_ms": 0})
    await e.advance("1s")
    async with e.engine.transaction() as conn:
        between = Between(conn, e.sweep)
        page = await read.events(between, EventQuery(after=start_of_log), e.engine._settings.schema)
    assert (page.reset, page.items) == (True, ())
    assert page.next is not None and int(page.next) > int(start_of_log)


async def test_a_task_that_is_forgotten_during_a_dump_spoils_no_page(e: Race) -> None:
    await e.add("a", "b")
    pool = e.engine._open_pool()
    async with pool.acquire() as conn:
        between = Between(conn, lambda: e.change("a", Forget()))
        page = await Dumping(between, e.engine._settings.schema, 9, 0).page("task:")
    assert {json.loads(item.data)["task"]["id"] for item in page.items} == {e.id("a"), e.id("b")}


async def test_a_task_that_moves_during_a_count_is_counted_once(e: Race) -> None:
    await e.add("a", "b")
    [a] = await e.claim()

    async def moves() -> None:
        await e.release(a)
        await e.cancel("b")

    pool = e.engine._open_pool()
    async with pool.acquire() as conn:
        counts = await read.count(
            Between(conn, moves), TaskQuery(), ["status"], 0, e.engine._settings.schema
        )
    assert {count.by: count.n for count in counts} == {("ready",): 1, ("running",): 1}
