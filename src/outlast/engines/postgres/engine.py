"""The PostgreSQL engine: the protocol's verbs, each one call of a function in the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import asyncpg

from outlast.core.errors import EngineDown
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
from outlast.engines._shared import Watching
from outlast.engines.postgres import alter, enqueue, exchange, read, records, sweep, within
from outlast.engines.postgres.copy import Dumping, Loading
from outlast.engines.postgres.db import (
    CUT,
    Settings,
    durability_of,
    explain,
    in_schema,
    migrate,
    open_pool,
    run,
    settings_of,
)
from outlast.engines.postgres.together import Together
from outlast.engines.postgres.wake import Bell
from outlast.engines.postgres.warm import warm

T = TypeVar("T")


def connect(url: str) -> Engine:
    """`postgresql://user:password@host/database?schema=outlast`; see `settings_of`."""
    return PostgresEngine(settings_of(url))


class PostgresEngine:
    """Tasks in one schema of a database, shared by any number of machines."""

    def __init__(self, settings: Settings) -> None:
        self.skew_ms = 0
        self._settings = settings
        self._durability: Durability = "fsync"
        self._pool: asyncpg.Pool | None = None
        self._bell: Bell | None = None
        self._together = Together(self._enqueue)
        self._marks = exchange.Marks()

    @property
    def durability(self) -> Durability:
        return self._durability

    # life ----------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._pool is not None:
            return
        pool = await open_pool(self._settings, partial(warm, schema=self._settings.schema))
        try:
            async with pool.acquire() as conn:
                await run(self._settings, lambda: migrate(conn, self._settings))
                self._durability = await durability_of(conn)  # type: ignore[assignment]
        except BaseException as error:
            pool.terminate()
            raise explain(error, self._settings) from error
        self._pool = pool
        self._bell = Bell(self._settings, pool)
        await self._bell.start()

    async def close(self) -> None:
        await self._together.close()
        pool, self._pool = self._pool, None
        bell, self._bell = self._bell, None
        if bell is not None:
            await bell.close()
        if pool is not None:
            try:
                async with asyncio.timeout(5):
                    await pool.close()
            except TimeoutError:  # somebody forgot to give a connection back
                pool.terminate()

    async def migrate(self) -> int:
        return await self._on(lambda conn: migrate(conn, self._settings))

    async def now(self) -> Ms:
        return int(await self._value("select outlast.now_ms($1)", self.skew_ms))

    # work ----------------------------------------------------------------------------------------

    async def enqueue(
        self, tasks: Sequence[NewTask], *, within: object | None = None
    ) -> list[Receipt]:
        if not tasks:
            return []
        if within is not None:
            return await self._enqueue_within(tasks, within)
        self._open_pool()
        return await self._together.enqueue(tasks)

    async def exchange(self, turn: Turn) -> Deal:
        arguments = exchange.arguments(turn, self.skew_ms, self._marks)
        rows = await self._rows(exchange.EXCHANGE, *arguments, repeatable=True)
        deal, topics = exchange.deal(turn, rows, self._marks)
        self._ring(topics)
        return deal

    async def alter(self, ids: Sequence[TaskId], change: Change) -> list[Altered]:
        rows = await self._rows(alter.ALTER, *alter.arguments(ids, change, self.skew_ms))
        altered, topics = alter.answers(ids, rows)
        self._ring(topics)
        return altered

    async def sweep(self, budget: int = 500, *, gone: Sequence[WorkerId] = ()) -> Swept:
        arguments = sweep.arguments(budget, gone, self.skew_ms)
        [row] = await self._rows(sweep.SWEEP, *arguments)
        self._ring(row["topics"])
        return sweep.swept(row)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection of the pool in a transaction: commits at the end of the block."""
        pool = self._open_pool()
        try:
            conn = await pool.acquire()
        except Exception as error:
            raise explain(error, self._settings) from error
        joined = conn.transaction()
        try:
            await self._told(joined.start)
            try:
                yield conn
            except BaseException:
                with suppress(asyncpg.PostgresError, *CUT):  # cut, it is undone as well
                    await joined.rollback()
                raise
            await self._told(joined.commit)
        finally:
            await pool.release(conn)

    async def _told(self, call: Callable[[], Awaitable[None]]) -> None:
        """Our own part of a transaction; what the block raises is the caller's."""
        try:
            await call()
        except Exception as error:
            raise explain(error, self._settings) from error

    async def _enqueue_within(self, tasks: Sequence[NewTask], joined: object) -> list[Receipt]:
        arguments = enqueue.arguments(tasks, self.skew_ms)
        call = in_schema(within.CALL, self._settings.schema)
        try:
            return await within.enqueue_within(joined, call, arguments)
        except Exception as error:
            raise explain(error, self._settings) from error

    async def _enqueue(self, tasks: Sequence[NewTask]) -> list[Receipt]:
        plain = enqueue.plain_arguments(tasks, self.skew_ms)
        if plain is not None and await self._value(enqueue.PLAIN, *plain):
            receipts = [Receipt(task.id, digest=task.digest) for task in tasks]
        else:
            arguments = enqueue.arguments(tasks, self.skew_ms)
            rows = await self._rows(enqueue.ENQUEUE, *arguments, repeatable=True)
            receipts = enqueue.receipts(rows)
        self._ring(enqueue.topics(tasks))
        return receipts

    # reading -------------------------------------------------------------------------------------

    async def tasks(self, query: TaskQuery) -> Page[Task]:
        return await self._read(read.tasks, query, self.skew_ms)

    async def memory(self, task_id: TaskId) -> Memory:
        return await self._read(read.memory, task_id)

    async def count(self, query: TaskQuery, by: Sequence[str] = ()) -> list[Count]:
        return await self._read(read.count, query, by, self.skew_ms)

    async def workers(self) -> list[WorkerView]:
        return await self._read(read.workers, await self.now())

    async def gauges(self, keys: Sequence[str] | None = None) -> list[GaugeView]:
        return await self._read(read.gauges, keys, await self.now())

    # the log -------------------------------------------------------------------------------------

    async def append(self, events: Sequence[NewEvent]) -> list[Cursor]:
        cursors = await self._on(lambda conn: self._append(conn, events))
        self._ring({"log", *(f"task:{event.task_id}" for event in events if event.task_id)})
        return cursors

    async def _append(self, conn: asyncpg.Connection, events: Sequence[NewEvent]) -> list[Cursor]:
        sql = read.read_sql(self._settings.schema)
        ids = [e.task_id for e in events if e.task_id is not None and read.is_id(e.task_id)]
        cursors = []
        async with conn.transaction():
            await conn.execute(sql["begin_log"])
            if ids:  # the events of a task are in the order of its row's locks
                await conn.execute(sql["lock_tasks"], ids)
            for e in events:
                task_id = e.task_id if e.task_id in ids else None
                place = await conn.fetchval(
                    sql["append"],
                    self.skew_ms, task_id, e.kind, e.session_id, e.workflow_id, e.data,
                )  # fmt: skip
                cursors.append(str(place))
        return cursors

    async def events(self, query: EventQuery) -> EventPage:
        return await self._read(read.events, query)

    # small documents -----------------------------------------------------------------------------

    async def put(self, puts: Sequence[Put]) -> list[Record | None]:
        written = []
        for put in puts:
            rows = await self._rows(records.PUT, *records.arguments(put, self.skew_ms))
            record, topics = records.written(put, rows[0] if rows else None)
            self._ring(topics)
            written.append(record)
        return written

    async def get(self, kind: str, keys: Sequence[str] | None = None) -> list[Record]:
        return await self._read(read.records, kind, keys, await self.now())

    # whole things --------------------------------------------------------------------------------

    async def dump(self, after: Cursor | None = None, limit: int = 500) -> Page[Item]:
        schema, skew_ms = self._settings.schema, self.skew_ms
        return await self._on(
            lambda conn: Dumping(conn, schema, limit, skew_ms).page(after), repeatable=True
        )

    async def load(self, items: Sequence[Item]) -> int:
        now = await self.now()

        async def load(conn: asyncpg.Connection) -> tuple[int, set[str]]:
            async with conn.transaction():
                loading = Loading(conn, self._settings.schema, now)
                return await loading.load(items), loading.topics

        added, topics = await self._on(load)
        self._ring(topics)
        return added

    # wake-ups ------------------------------------------------------------------------------------

    def watch(self, topics: Collection[str]) -> AbstractAsyncContextManager[Watch]:
        if self._bell is None:
            raise self._closed()
        return Watching(self._bell.watchers, topics)

    # inside --------------------------------------------------------------------------------------

    def _ring(self, topics: Collection[str]) -> None:
        if self._bell is not None:
            self._bell.ring(topics)

    def _open_pool(self) -> asyncpg.Pool:
        if self._pool is None:
            raise self._closed()
        return self._pool

    def _closed(self) -> EngineDown:
        return EngineDown("The engine is not open: use `async with app:` or `await engine.open()`.")

    async def _rows(self, statement: str, *values: object, repeatable: bool = False) -> list[Any]:
        pool = self._open_pool()
        text = in_schema(statement, self._settings.schema)
        return await run(self._settings, lambda: pool.fetch(text, *values), repeatable=repeatable)

    async def _value(self, statement: str, *values: object) -> Any:
        return (await self._rows(statement, *values, repeatable=True))[0][0]

    async def _on(
        self, fn: Callable[[asyncpg.Connection], Awaitable[T]], *, repeatable: bool = False
    ) -> T:
        pool = self._open_pool()

        async def call() -> T:
            async with pool.acquire() as conn:
                return await fn(conn)

        return await run(self._settings, call, repeatable=repeatable)

    async def _read(self, fn: Callable[..., Awaitable[T]], *values: object) -> T:
        schema = self._settings.schema
        return await self._on(lambda conn: partial(fn, conn)(*values, schema), repeatable=True)
