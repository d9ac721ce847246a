"""The SQLite engine: the protocol's verbs, each handed to the writer's thread or to the reader."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs

import apsw

from outlast.core.errors import BadInput, EngineDown, UnknownEngine, Unsupported
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
from outlast.engines.sqlite import copy, read, records
from outlast.engines.sqlite.alter import alter
from outlast.engines.sqlite.db import Reader, Writer, migrate, open_connection, usable
from outlast.engines.sqlite.enqueue import enqueue
from outlast.engines.sqlite.exchange import exchange
from outlast.engines.sqlite.sweep import sweep
from outlast.engines.sqlite.together import Together
from outlast.engines.sqlite.tx import Definitions, Tx
from outlast.engines.sqlite.wake import Bell

T = TypeVar("T")


def connect(url: str) -> Engine:
    """`sqlite:///jobs.db`, `sqlite:////var/lib/jobs.db`, `memory://`.

    `?durability=memory` commits without waiting for the disk: a power cut may lose the last ones.
    """
    scheme, _, rest = url.partition("://")
    path, _, query = rest.partition("?")
    settings = {name: values[-1] for name, values in parse_qs(query).items()}
    durability = settings.pop("durability", "memory" if scheme == "memory" else "fsync")
    if settings or durability not in ("fsync", "memory"):
        raise UnknownEngine(f"{scheme}:// takes ?durability=fsync or ?durability=memory, only.")
    if scheme == "memory":
        return SqliteEngine(":memory:", "memory")
    if not path.startswith("/") or path == "/":
        raise UnknownEngine(f"{url!r} names no file: write sqlite:///jobs.db, with three slashes.")
    return SqliteEngine(path[1:], durability)


class SqliteEngine:
    """Tasks in one file, shared by any number of processes of this machine."""

    def __init__(self, path: str, durability: str) -> None:
        self.path = path
        self.skew_ms = 0
        self._durability = durability
        self._boot = _boot_id()
        self._definitions = Definitions()
        self._writer: Writer | None = None
        self._together: Together | None = None
        self._reader: Reader | None = None
        self._bell: Bell | None = None
        self._detach: Callable[[], None] = _nothing
        self._transaction: apsw.Connection | None = None
        self._in_block: asyncio.Task[Any] | None = None
        """Who has that transaction open."""

    @property
    def durability(self) -> Durability:
        return self._durability  # type: ignore[return-value]

    # life ----------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._writer is not None:
            return
        usable(self.path)
        if self.path != ":memory:":
            await asyncio.to_thread(self._prepare)
        self._bell = Bell(self.path)
        self._detach = self._bell.attach(asyncio.get_running_loop())
        self._writer = Writer(self.path, self._durability, self._begin, self._committed)
        self._together = Together(self._writer)
        if self.path == ":memory:":
            await self.migrate()
        else:
            self._reader = Reader(self.path, self._durability)

    def _prepare(self) -> int:
        conn = open_connection(self.path, self._durability)
        try:
            return migrate(conn, self.path)
        finally:
            conn.close()

    async def close(self) -> None:
        writer, self._writer, self._together = self._writer, None, None
        reader, self._reader = self._reader, None
        self._detach()
        self._detach = _nothing
        if writer is not None:
            await asyncio.to_thread(writer.close)
        if reader is not None:
            reader.close()
        if self._bell is not None:
            self._bell.close()
            self._bell = None

    async def migrate(self) -> int:
        if self.path == ":memory:" and self._writer is not None:
            return migrate(self._writer.conn, self.path)
        return await asyncio.to_thread(self._prepare)

    async def now(self) -> Ms:
        return self._now()

    # work ----------------------------------------------------------------------------------------

    async def enqueue(
        self, tasks: Sequence[NewTask], *, within: object | None = None
    ) -> list[Receipt]:
        if within is not None:
            return self._enqueue_within(tasks, within)
        if self._together is None:
            raise self._closed()
        self._not_in_a_block()
        return await self._together.enqueue(tasks)

    async def exchange(self, turn: Turn) -> Deal:
        return await self._write(lambda tx: exchange(tx, turn))

    async def alter(self, ids: Sequence[TaskId], change: Change) -> list[Altered]:
        return await self._write(lambda tx: alter(tx, ids, change))

    async def sweep(self, budget: int = 500, *, gone: Sequence[WorkerId] = ()) -> Swept:
        return await self._write(lambda tx: sweep(tx, budget, gone))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[apsw.Connection]:
        """The writer's own connection, for as long as the block lasts: commits at its end.

        Writes of this process wait meanwhile, so keep it short and enqueue with `within=`.
        """
        if self._writer is None:
            raise self._closed()
        self._not_in_a_block()
        begun: asyncio.Future[Tx] = asyncio.get_running_loop().create_future()
        done = _Gate(begun)
        job = self._writer.submit(done.hold, once=True)
        job.add_done_callback(lambda job: _never_begun(begun, job))
        try:
            tx = await begun
        except BaseException as error:  # whoever gives up waiting must not hold up the writer
            done.finish(error)
            raise
        self._transaction = tx.conn
        self._in_block = asyncio.current_task()
        self._tx = tx
        try:
            yield tx.conn
        except BaseException as error:
            done.finish(error)
            with suppress(RolledBack):
                await job
            raise
        else:
            done.finish(None)
            await job
        finally:
            self._transaction = self._in_block = None

    def _enqueue_within(self, tasks: Sequence[NewTask], within: object) -> list[Receipt]:
        if type(within).__module__.partition(".")[0] in ("sqlite3", "_sqlite3"):
            raise Unsupported(
                "within= takes the connection of app.engine.transaction(), not one of the sqlite3 "
                "module: a second copy of SQLite on the same file in one process drops the file's "
                "locks and loses commits."
            )
        if not isinstance(within, apsw.Connection) or within is not self._transaction:
            raise BadInput(
                "within= takes the connection of an `async with app.engine.transaction()` that is "
                "still open.",
                field="within",
            )
        tx = self._begin(within)
        within.execute("savepoint outlast")
        try:
            receipts = enqueue(tx, tasks)
            tx.flush()
        except BaseException:
            within.execute("rollback to outlast")
            raise
        finally:
            within.execute("release outlast")
        self._tx.topics.update(tx.topics)
        return receipts

    # reading -------------------------------------------------------------------------------------

    async def tasks(self, query: TaskQuery) -> Page[Task]:
        return await self._read(lambda conn: read.tasks(conn, query, self._now()))

    async def memory(self, task_id: TaskId) -> Memory:
        return await self._read(lambda conn: read.memory(conn, task_id))

    async def count(self, query: TaskQuery, by: Sequence[str] = ()) -> list[Count]:
        return await self._read(lambda conn: read.count(conn, query, by, self._now()))

    async def workers(self) -> list[WorkerView]:
        return await self._read(lambda conn: read.workers(conn, self._mono(), self._boot))

    async def gauges(self, keys: Sequence[str] | None = None) -> list[GaugeView]:
        return await self._read(lambda conn: read.gauges(conn, keys, self._now()))

    # the log -------------------------------------------------------------------------------------

    async def append(self, events: Sequence[NewEvent]) -> list[Cursor]:
        return await self._write(lambda tx: _append(tx, events))

    async def events(self, query: EventQuery) -> EventPage:
        return await self._read(lambda conn: read.events(conn, query))

    # small documents -----------------------------------------------------------------------------

    async def put(self, puts: Sequence[Put]) -> list[Record | None]:
        return await self._write(lambda tx: [records.put(tx, put) for put in puts])

    async def get(self, kind: str, keys: Sequence[str] | None = None) -> list[Record]:
        return await self._read(lambda conn: read.records(conn, kind, keys, self._now()))

    # whole things --------------------------------------------------------------------------------

    async def dump(self, after: Cursor | None = None, limit: int = 500) -> Page[Item]:
        return await self._read(lambda conn: copy.dump(conn, after, limit, self._now()))

    async def load(self, items: Sequence[Item]) -> int:
        return await self._write(lambda tx: copy.load(tx, items))

    # wake-ups ------------------------------------------------------------------------------------

    def watch(self, topics: Collection[str]) -> AbstractAsyncContextManager[Watch]:
        if self._bell is None:
            raise self._closed()
        return Watching(self._bell.watchers, topics)

    # inside --------------------------------------------------------------------------------------

    def _now(self) -> Ms:
        return time.time_ns() // 1_000_000 + self.skew_ms

    def _mono(self) -> Ms:
        # Time that a sleeping machine does not count: its workers wake up with their leases.
        return time.monotonic_ns() // 1_000_000 + self.skew_ms

    def _begin(self, conn: apsw.Connection) -> Tx:
        return Tx(conn, self._now(), self._mono(), self._boot, self._definitions)

    def _committed(self, tx: Tx) -> None:
        if self._bell is not None:
            self._bell.ring(tx.topics)

    async def _write(self, fn: Callable[[Tx], T]) -> T:
        if self._writer is None:
            raise self._closed()
        self._not_in_a_block()
        return await self._writer.submit(fn)

    async def _read(self, fn: Callable[[apsw.Connection], T]) -> T:
        if self._reader is not None:
            return await self._reader.run(fn)
        return await self._write(lambda tx: fn(tx.conn))

    def _not_in_a_block(self) -> None:
        """What waits for the end of a transaction must not be waited for inside of it."""
        if self._in_block is not None and self._in_block is asyncio.current_task():
            raise BadInput(
                "Inside `async with app.engine.transaction()` this would wait for the end of the "
                "block, for ever: enqueue with within=, and do the rest before or after the block.",
                field="within",
            )

    def _closed(self) -> EngineDown:
        return EngineDown("The engine is not open: use `async with app:` or `await engine.open()`.")


class _Gate:
    """Parks the writer inside a transaction while somebody else uses its connection."""

    def __init__(self, begun: asyncio.Future[Tx]) -> None:
        self._begun = begun
        self._loop = begun.get_loop()
        self._open = threading.Event()
        self._error: BaseException | None = None

    def hold(self, tx: Tx) -> None:
        self._loop.call_soon_threadsafe(self._begin, tx)
        self._open.wait()
        if self._error is not None:
            raise RolledBack from self._error

    def _begin(self, tx: Tx) -> None:
        if not self._begun.done():
            self._begun.set_result(tx)

    def finish(self, error: BaseException | None) -> None:
        self._error = error
        self._open.set()


class RolledBack(Exception):  # not an error of ours: the block's own is raised
    """The block of a transaction raised; nothing of it was written."""


def _never_begun(begun: asyncio.Future[Tx], job: asyncio.Future[None]) -> None:
    """The transaction ended before it began: its error is the answer."""
    error = None if job.cancelled() else job.exception()
    if error is not None and not begun.done():
        begun.set_exception(error)


def _append(tx: Tx, events: Sequence[NewEvent]) -> list[Cursor]:
    tx.write_events()
    cursors = []
    held = tx.held({event.task_id for event in events if event.task_id})
    for event in events:
        task = held.get(event.task_id) if event.task_id else None
        tx.log_told(event, task.seq if task else None, task.number if task else 0)
        tx.write_events()
        cursors.append(str(tx.conn.last_insert_rowid()))
    return cursors


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _nothing() -> None:
    return None
