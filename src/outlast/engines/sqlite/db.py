"""Connections to one SQLite file: a writer thread with group commit, a reader, checkpoints.

All writes of a process go through one thread. It takes whatever jobs have queued up, runs them in
one `BEGIN IMMEDIATE` transaction and answers them all after the one COMMIT, so that fifty
concurrent enqueues cost one fsync. A job that fails takes nobody along: the batch is rolled back
and run again one by one. A job that cannot be run again has a transaction to itself.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import apsw

from outlast.core.errors import EngineDown, EngineFull, OutlastError
from outlast.engines._payloads import at_path
from outlast.engines._shared import statements

T = TypeVar("T")

PACKAGE: Final = "outlast.engines.sqlite"
SCHEMA_VERSION: Final = 1
# Before this release a WAL that two connections write and checkpoint can be corrupted
# (sqlite.org/wal.html#walresetbug).
SAFE_SQLITE: Final = 3_051_003
BUSY_S: Final = 30.0
CHECKPOINT_PAGES: Final = 4_000  # 16 MB of WAL
RESTART_PAGES: Final = 16_000  # 64 MB: wait for readers and start the WAL anew
BATCH: Final = 512

SYNCHRONOUS: Final = {"fsync": "full", "memory": "normal"}


def open_connection(path: str, durability: str) -> apsw.Connection:
    """A connection with our settings; errors say what to do."""
    try:
        conn = apsw.Connection(path)
        conn.set_busy_handler(_patience())
        conn.create_scalar_function("at_path", _at_path, 2, deterministic=True)
        _to_wal(conn)
        conn.pragma("synchronous", SYNCHRONOUS[durability])
        conn.pragma("wal_autocheckpoint", 0)  # an elected process does it, see checkpoint()
        conn.pragma("temp_store", "memory")
        conn.pragma("cache_size", -65_536)
        conn.pragma("journal_size_limit", 67_108_864)
    except apsw.Error as error:
        raise explain(error, path) from error
    return conn


def _at_path(*values: Any) -> str | None:
    payload, path = values
    return at_path(payload, path.split("."))


def _to_wal(conn: apsw.Connection) -> None:
    """SQLite asks no busy handler here, so processes that open a new file together would fail."""
    wait, tries = _patience(), 0
    while True:
        try:
            conn.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            if not wait(tries):
                raise
            tries += 1


def _patience() -> Callable[[int], bool]:
    """Waits for another process's commit, 0.2 to 2 ms at a time.

    SQLite's own busy_timeout backs off to 100 ms, which starves one of two busy processes.
    """
    since = 0.0

    def wait(tries: int) -> bool:
        nonlocal since
        if tries == 0:
            since = time.monotonic()
        time.sleep(random.uniform(0.0002, 0.002))  # noqa: S311  # jitter, not a secret
        return time.monotonic() - since < BUSY_S

    return wait


def explain(error: Exception, path: str) -> OutlastError:
    """The apsw error as one of ours, with the cure in the message."""
    where = f"SQLite file {path!r}"
    if isinstance(error, OutlastError):
        return error
    if isinstance(error, apsw.FullError):
        return EngineFull(f"{where}: the disk is full. Nothing was written; free some space.")
    if isinstance(error, apsw.BusyError):
        return EngineDown(f"{where}: another process held the write lock for {BUSY_S:.0f} s.")
    if isinstance(error, apsw.CantOpenError):
        return EngineDown(f"{where} cannot be opened: does the folder exist, may you write there?")
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError):
        return EngineDown(f"{where} is not writable for this user.")
    if isinstance(error, apsw.NotADBError | apsw.CorruptError):
        return EngineDown(f"{where} is damaged or no SQLite database: {error}")
    if isinstance(error, apsw.IOError) and "disk" in str(error).lower():
        return EngineFull(f"{where}: {error}. Nothing was written; check the disk's space.")
    return EngineDown(f"{where}: {type(error).__name__}: {error}")


class Job(Generic[T]):
    """A function to run in a write transaction, and where its answer goes."""

    __slots__ = ("error", "fn", "future", "loop", "once", "result")

    def __init__(
        self, fn: Callable[[Any], T], loop: asyncio.AbstractEventLoop, *, once: bool
    ) -> None:
        self.fn = fn
        self.once = once
        self.loop = loop
        self.future: asyncio.Future[T] = loop.create_future()
        self.result: T | None = None
        self.error: BaseException | None = None


class Writer:
    """The one thread of this process that writes.

    `begin` makes what the jobs work on (a transaction object with `flush()`); `committed` is told
    it after COMMIT, still in the writer's thread.
    """

    def __init__(
        self,
        path: str,
        durability: str,
        begin: Callable[[apsw.Connection], Any],
        committed: Callable[[Any], None],
    ) -> None:
        self.path = path
        self.conn = open_connection(path, durability)
        self._begin = begin
        self._committed = committed
        self._jobs: deque[Job[Any]] = deque()
        self._ready = threading.Condition(threading.Lock())
        self._closing = False
        self._checkpointer: threading.Thread | None = None
        if path != ":memory:":
            self.conn.set_wal_hook(self._wal_grew)
        self._thread = threading.Thread(target=self._run, name="outlast-sqlite", daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[[Any], T], *, once: bool = False) -> asyncio.Future[T]:
        """Run `fn(tx)` in a transaction; done when it is committed. `once`: it cannot be run again,
        so that neither others nor a full disk may roll it back unseen."""
        if self._closing:
            raise EngineDown(f"SQLite file {self.path!r}: the engine is closed.")
        job = Job(fn, asyncio.get_running_loop(), once=once)
        with self._ready:
            self._jobs.append(job)
            self._ready.notify()
        return job.future

    def close(self) -> None:
        """Finish what was submitted, then close the connection."""
        with self._ready:
            self._closing = True
            self._ready.notify()
        self._thread.join()
        if self._checkpointer is not None:
            self._checkpointer.join()
        with suppress(apsw.Error):
            self.conn.close()

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._jobs and not self._closing:
                    self._ready.wait()
                if not self._jobs:
                    return
                batch = self._next()
            self._commit(batch)
            _answer(batch)

    def _next(self) -> list[Job[Any]]:
        """Those that share the next transaction."""
        batch = [self._jobs.popleft()]
        while self._jobs and len(batch) < BATCH and not (batch[0].once or self._jobs[0].once):
            batch.append(self._jobs.popleft())
        return batch

    def _commit(self, batch: list[Job[Any]], *, again: bool = False) -> None:
        try:
            self.conn.execute("begin immediate")
            tx = self._begin(self.conn)
            for job in batch:
                job.result = job.fn(tx)
            tx.flush()
            self.conn.execute("commit")
        except Exception as error:
            with suppress(apsw.Error):
                self.conn.execute("rollback")
            can_repeat = not (again or batch[0].once or self.path == ":memory:")
            if isinstance(error, apsw.FullError) and can_repeat:
                # What the WAL holds twice may be all the space there is to be had.
                checkpoint(self.path, RESTART_PAGES)
                self._commit(batch, again=True)
            elif len(batch) == 1:
                batch[0].error = explain(error, self.path) if _ours(error) else error
            elif isinstance(error, apsw.BusyError):  # nobody's fault, and all have waited for it
                for job in batch:
                    job.error = explain(error, self.path)
            else:
                for job in batch:
                    self._commit([job], again=again)
            return
        self._committed(tx)

    def _wal_grew(self, _conn: apsw.Connection, _name: str, pages: int) -> int:
        running = self._checkpointer is not None and self._checkpointer.is_alive()
        if pages >= CHECKPOINT_PAGES and not running and not self._closing:
            self._checkpointer = threading.Thread(
                target=checkpoint, args=(self.path, pages), name="outlast-checkpoint", daemon=True
            )
            self._checkpointer.start()
        return apsw.SQLITE_OK


def _ours(error: Exception) -> bool:
    return isinstance(error, apsw.Error | OutlastError)


def _answer(batch: Iterable[Job[Any]]) -> None:
    """Resolve the futures, one wake-up per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job[Any]]] = {}
    for job in batch:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        with suppress(RuntimeError):  # the caller's loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_resolve, jobs)


def _resolve(jobs: list[Job[Any]]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)


def checkpoint(path: str, pages: int) -> None:
    """Move the WAL into the file, if no other process is doing it: the lock file elects one."""
    with suppress(OSError, apsw.Error):
        lock = os.open(f"{path}-checkpoint", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            conn = apsw.Connection(path)
            try:
                conn.pragma("journal_mode")  # until it has read the file it knows of no WAL
                # PASSIVE moves nearly everything beside the writers; RESTART then has little left
                # to do while it holds the write lock.
                conn.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                if pages >= RESTART_PAGES:
                    conn.set_busy_handler(_patience())
                    conn.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
            finally:
                conn.close()
        finally:
            os.close(lock)


class Reader:
    """A thread with a connection of its own, so that long reads hold up no write."""

    def __init__(self, path: str, durability: str) -> None:
        self.path = path
        self.conn = open_connection(path, durability)
        self._lock = threading.Lock()

    async def run(self, fn: Callable[[apsw.Connection], T]) -> T:
        return await asyncio.to_thread(self._read, fn)

    def _read(self, fn: Callable[[apsw.Connection], T]) -> T:
        with self._lock:
            try:
                self.conn.execute("begin")  # one snapshot for all statements of the read
                try:
                    return fn(self.conn)
                finally:
                    self.conn.execute("commit")
            except apsw.Error as error:
                raise explain(error, self.path) from error

    def close(self) -> None:
        with self._lock, suppress(apsw.Error):
            self.conn.close()


def migrate(conn: apsw.Connection, path: str) -> int:
    """Create the schema if there is none; the version it has."""
    if apsw.SQLITE_VERSION_NUMBER < SAFE_SQLITE:
        raise EngineDown(
            "This apsw bundles an unsafe SQLite: pip install -U apsw (3.51.3 or later)."
        )
    try:
        conn.execute("begin immediate")
        try:
            version = 0
            if row(conn, "select 1 from sqlite_schema where name = 'meta'") is not None:
                version = value(conn, "select value from meta where name = 'schema'")
            if version > SCHEMA_VERSION:
                raise EngineDown(
                    f"SQLite file {path!r} has schema {version}, newer than this release "
                    f"({SCHEMA_VERSION}): upgrade outlast."
                )
            if version == 0:
                _create(conn)
            conn.execute("commit")
        except BaseException:
            conn.execute("rollback")
            raise
    except apsw.Error as error:
        raise explain(error, path) from error
    return SCHEMA_VERSION


def _create(conn: apsw.Connection) -> None:
    conn.execute(files(PACKAGE).joinpath("schema.sql").read_text())
    conn.execute(
        "insert into meta values ('schema', ?), ('limits', 1), ('pruned', 0)", (SCHEMA_VERSION,)
    )


def sql(file: str) -> dict[str, str]:
    return statements(PACKAGE, file)


def rows(conn: apsw.Connection, statement: str, values: Any = ()) -> list[Any]:
    return conn.execute(statement, values).fetchall()


def row(conn: apsw.Connection, statement: str, values: Any = ()) -> Any:
    """The first row, or None."""
    return conn.execute(statement, values).fetchone()


def value(conn: apsw.Connection, statement: str, values: Any = ()) -> Any:
    """The first column of the first row."""
    return conn.execute(statement, values).get


def usable(path: str) -> None:
    """Refuse a path that cannot work, before SQLite makes half of one."""
    if path == ":memory:":
        return
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise EngineDown(f"SQLite file {path!r}: the folder {str(folder)!r} does not exist.")
