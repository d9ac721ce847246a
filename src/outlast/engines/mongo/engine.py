"""The MongoDB engine: the protocol's verbs, each handed to a transaction or to a plain read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import PyMongoError

from outlast.core.errors import BadInput
from outlast.core.model import (
    Altered,
    Change,
    Count,
    Cursor,
    Deal,
    EventPage,
    EventQuery,
    GaugeView,
    Item,
    Memory,
    NewEvent,
    NewTask,
    Page,
    Put,
    Receipt,
    Record,
    Swept,
    Task,
    TaskId,
    TaskQuery,
    Turn,
    WorkerId,
    WorkerView,
)
from outlast.core.states import Ms
from outlast.engine import Durability, Engine, Watch
from outlast.engines.mongo import copy, read, records
from outlast.engines.mongo.alter import alter
from outlast.engines.mongo.beat import beat, is_beat
from outlast.engines.mongo.db import Link, Patience, Writer, abort, commit, start, transient
from outlast.engines.mongo.enqueue import enqueue
from outlast.engines.mongo.exchange import exchange
from outlast.engines.mongo.schema import Database, migrate
from outlast.engines.mongo.sweep import quiet, sweep
from outlast.engines.mongo.tx import NO_RULES, Held, Tx
from outlast.engines.mongo.wake import Bell

T = TypeVar("T")


def connect(url: str) -> Engine:
    """`mongodb://host:27017/outlast?replicaSet=rs0`: every option of MongoDB's own URLs.

    The path is the database, `outlast` when there is none. One database is one namespace.
    """
    return MongoEngine(Link(url))


class MongoEngine:
    """Tasks in one database of a replica set."""

    durability: Durability = "replicated"
    """Every commit waits for the journals of a majority of the members."""

    def __init__(self, link: Link) -> None:
        self.skew_ms = 0
        self._link = link
        self._rules = NO_RULES
        self._held: Held = {}
        self._writer = Writer(link, self._begin, self._committed)
        self._bell = Bell(link)
        self._joined: dict[AsyncClientSession, set[str]] = {}

    # life ----------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._link.open:
            return
        await self._link.connect()
        try:
            await self.migrate()
        except BaseException:
            await self._link.close()
            raise

    async def close(self) -> None:
        await self._writer.close()
        await self._bell.close()
        await self._link.close()

    async def migrate(self) -> int:
        return await self._read(lambda db: migrate(db, f"{self._link.where}, {self._link.name}"))

    async def now(self) -> Ms:
        return await self._read(self._now)

    # work ----------------------------------------------------------------------------------------

    async def enqueue(
        self, tasks: Sequence[NewTask], *, within: object | None = None
    ) -> list[Receipt]:
        if within is not None:
            return await self._enqueue_within(tasks, within)
        return await self._write(lambda tx: enqueue(tx, tasks))

    async def exchange(self, turn: Turn) -> Deal:
        if is_beat(turn):
            kept = await self._read(lambda db: beat(db, turn, self.skew_ms))
            if kept is not None:
                return kept
        ids = [o.id for o in turn.outcomes if o.id not in self._held]
        return await self._write(lambda tx: exchange(tx, turn), ids)

    async def alter(self, ids: Sequence[TaskId], change: Change) -> list[Altered]:
        return await self._write(lambda tx: alter(tx, ids, change), ids)

    async def sweep(self, budget: int = 500, *, gone: Sequence[WorkerId] = ()) -> Swept:
        if not gone and await self._read_at(quiet):
            return Swept()
        return await self._write(lambda tx: sweep(tx, budget, gone))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[object]:
        """A session in a transaction, for as long as the block lasts: commits at its end.

        Every other write of the namespace waits meanwhile, so keep it short.
        """
        async with self._link.client.start_session() as session:
            await self._take_turn(session)
            topics = self._joined[session] = set()
            try:
                yield session
            except BaseException:
                await abort(session)
                raise
            finally:
                del self._joined[session]
            try:
                await commit(session)
            except PyMongoError as error:
                if transient(error):  # the server says that it was not made
                    raise self._link.explain(error) from error
                raise self._link.unsure(error) from error
        self._bell.ring(topics)

    async def _take_turn(self, session: AsyncClientSession) -> None:
        """With the counter in hand nobody can conflict with the block."""
        patience = Patience(self._link)
        while True:
            try:
                await start(session)
                await self._begin(session)
                return
            except PyMongoError as error:
                await abort(session)
                if not transient(error) or not await patience.wait():
                    raise self._link.explain(error) from error

    async def _enqueue_within(self, tasks: Sequence[NewTask], within: object) -> list[Receipt]:
        if not isinstance(within, AsyncClientSession) or not within.in_transaction:
            raise BadInput(
                "within= takes a session of PyMongo's AsyncMongoClient that is in a transaction: "
                "that of `async with app.engine.transaction()`, or your own.",
                field="within",
            )
        # An error of the server passes as it is: the caller's with_transaction() reads its labels.
        db = self._link.database(within.client)
        tx = await Tx.begin(db, within, self.skew_ms, NO_RULES)
        tx.careful = True  # a transaction that is not ours cannot begin again
        try:
            receipts = await enqueue(tx, tasks)
            await tx.flush()
        finally:
            await tx.sent()
        if within in self._joined:
            self._joined[within] |= tx.topics
        return receipts

    # reading -------------------------------------------------------------------------------------

    async def tasks(self, query: TaskQuery) -> Page[Task]:
        return await self._read_at(lambda db, now: read.tasks(db, query, now))

    async def memory(self, task_id: TaskId) -> Memory:
        return await self._read(lambda db: read.memory(db, task_id))

    async def count(self, query: TaskQuery, by: Sequence[str] = ()) -> list[Count]:
        return await self._read_at(lambda db, now: read.count(db, query, by, now))

    async def workers(self) -> list[WorkerView]:
        return await self._read_at(read.workers)

    async def gauges(self, keys: Sequence[str] | None = None) -> list[GaugeView]:
        return await self._read_at(lambda db, now: read.gauges(db, keys, now))

    # the log -------------------------------------------------------------------------------------

    async def append(self, events: Sequence[NewEvent]) -> list[Cursor]:
        ids = [event.task_id for event in events if event.task_id]
        return await self._write(lambda tx: _append(tx, events), ids)

    async def events(self, query: EventQuery) -> EventPage:
        return await self._read(lambda db: read.events(db, query))

    # small documents -----------------------------------------------------------------------------

    async def put(self, puts: Sequence[Put]) -> list[Record | None]:
        return await self._write(lambda tx: _put(tx, puts))

    async def get(self, kind: str, keys: Sequence[str] | None = None) -> list[Record]:
        return await self._read_at(lambda db, now: read.records(db, kind, keys, now))

    # whole things --------------------------------------------------------------------------------

    async def dump(self, after: Cursor | None = None, limit: int = 500) -> Page[Item]:
        return await self._read_at(lambda db, now: copy.dump(db, after, limit, now))

    async def load(self, items: Sequence[Item]) -> int:
        return await self._write(lambda tx: copy.load(tx, items))

    # wake-ups ------------------------------------------------------------------------------------

    def watch(self, topics: Collection[str]) -> AbstractAsyncContextManager[Watch]:
        _ = self._link.client  # refuse now if the engine is closed
        return self._bell.watching(topics)

    # inside --------------------------------------------------------------------------------------

    async def _begin(self, session: AsyncClientSession) -> Tx:
        return await Tx.begin(self._link.db, session, self.skew_ms, self._rules, self._held)

    def _committed(self, tx: Tx) -> None:
        tx.committed()
        self._rules = tx.rules
        self._bell.ring(tx.topics)

    async def _write(self, fn: Callable[[Tx], Awaitable[T]], ids: Collection[TaskId] = ()) -> T:
        return await self._writer.run(fn, ids)

    async def _read(self, fn: Callable[[Database], Awaitable[T]]) -> T:
        try:
            return await fn(self._link.db)
        except PyMongoError as error:
            raise self._link.explain(error) from error

    async def _read_at(self, fn: Callable[[Database, Ms], Awaitable[T]]) -> T:
        async def at(db: Database) -> T:
            return await fn(db, await self._now(db))

        return await self._read(at)

    async def _now(self, db: Database) -> Ms:
        return await read.now_of(db, self.skew_ms)


async def _append(tx: Tx, events: Sequence[NewEvent]) -> list[Cursor]:
    docs = await tx.docs({event.task_id for event in events if event.task_id})
    return [str(tx.log_told(event, docs.get(event.task_id or ""))) for event in events]


async def _put(tx: Tx, puts: Sequence[Put]) -> list[Record | None]:
    return [await records.put(tx, put) for put in puts]
