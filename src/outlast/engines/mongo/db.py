"""The connection to a replica set, what can be wrong with it, and the one transaction at a time.

Every transaction begins with the counter of the log (`tx.py`), so the whole fleet has one writer at
a time; who comes too early waits in the server (`Patience`). Within a process callers do not even
compete: whatever jobs have queued up run in one transaction and are answered after its commit, so
that fifty concurrent enqueues cost one. A job that fails takes nobody along: the transaction is
aborted and its jobs run one by one. Where only the answer to the commit is missing, nothing runs
again: it may have been made, and each of those who asked is told that nobody knows.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from bson.codec_options import CodecOptions, TypeDecoder, TypeRegistry
from bson.int64 import Int64
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import (
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    ExecutionTimeout,
    InvalidURI,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import Primary
from pymongo.uri_parser import parse_uri
from pymongo.write_concern import WriteConcern

from outlast.core.errors import EngineDown, EngineFull, OutlastError, TooLarge, UnknownEngine
from outlast.core.text import safe_url
from outlast.engines.mongo.schema import Database, Document
from outlast.engines.mongo.tx import Again, Tx

T = TypeVar("T")

DEFAULT_DATABASE: Final = "outlast"
OLDEST_WIRE: Final = 17  # MongoDB 6.0
BUSY_S: Final = 30.0
"""How long a transaction tries to get its turn."""
STUCK_S: Final = 2.0
"""A transaction that did nothing for so long while others wait: its process must be gone."""
BATCH: Final = 128
MAJORITY: Final = WriteConcern("majority", j=True)
SNAPSHOT: Final = ReadConcern("snapshot")
TRANSIENT: Final = "TransientTransactionError"
UNKNOWN_COMMIT: Final = "UnknownTransactionCommitResult"
NOW: Final[Document] = {"$toLong": "$$NOW"}
PROMISE_MS: Final = 30
"""So long a turn is kept for whoever was told that it is his."""
WAIT: Final[Document] = {
    "update": "meta",
    "updates": [
        {
            "q": {"_id": "log", "$expr": {"$lt": ["$promised", NOW]}},
            "u": [
                {"$set": {"waits": {"$add": ["$waits", 1]}}},
                {"$set": {"promised": {"$add": [NOW, PROMISE_MS]}}},
            ],
        }
    ],
    # Sent anew before long: in the server it is tried every ms at first, then every 5, and from
    # half a second on every 10, so that who had waited long lost against whoever came later.
    "maxTimeMS": 40,
    "writeConcern": {"w": 1},
}
AGAIN_S: Final = 0.002
"""Somebody else was promised the turn, and will have begun by then."""
LOOK_S: Final = 1.0
POLITE_S: Final = 0.006
"""Longer than a write that waits in the server sleeps between two tries."""
SETTINGS: Final[Document] = {
    "connecttimeoutms": 5_000,
    "serverselectiontimeoutms": 5_000,
    "sockettimeoutms": 20_000,
}

FULL_CODES: Final = {14031, 8000}  # OutOfDiskSpace; Atlas says 8000 when over its quota
LOGIN_CODES: Final = {18, 8000}
UNAUTHORIZED: Final = 13


def too_old(wire: int) -> str | None:
    """What is wrong with a server that speaks up to this version of the protocol, if anything."""
    if wire >= OLDEST_WIRE:
        return None
    return "is too old: upgrade the server to MongoDB 6.0 or later."


class PlainInts(TypeDecoder):
    """BSON's 64-bit integers as Python's own: msgspec encodes no subclass of int."""

    bson_type = Int64

    def transform_bson(self, value: Any) -> Any:
        return int(value)


class Link:
    """One client and the database of one namespace."""

    def __init__(self, url: str) -> None:
        try:
            parsed = parse_uri(url, validate=True, warn=False)
        except (InvalidURI, ConfigurationError, ValueError) as error:
            raise UnknownEngine(
                f"{safe_url(url)!r} is no MongoDB address ({error}): write "
                "mongodb://host:27017/outlast?replicaSet=rs0."
            ) from error
        self.name: str = parsed["database"] or DEFAULT_DATABASE
        self.where = f"MongoDB at {', '.join(f'{h}:{p}' for h, p in parsed['nodelist'])}"
        self.url = url
        # Whoever waits for a transaction of ours finds it by this name (see Patience).
        self.app_name = f"outlast/{self.name}"
        given = {name.lower() for name in parsed["options"]}
        self._settings = {name: v for name, v in SETTINGS.items() if name not in given}
        self._client: AsyncMongoClient[Document] | None = None
        self.waits = 0
        """How often we have waited for others."""

    @property
    def open(self) -> bool:
        return self._client is not None

    @property
    def client(self) -> AsyncMongoClient[Document]:
        if self._client is None:
            raise EngineDown(
                "The engine is not open: use `async with app:` or `await engine.open()`."
            )
        return self._client

    def database(self, client: AsyncMongoClient[Document]) -> Database:
        return client.get_database(
            self.name,
            codec_options=CodecOptions(type_registry=TypeRegistry([PlainInts()])),
            read_preference=Primary(),
            read_concern=ReadConcern("majority"),
            write_concern=MAJORITY,
        )

    @property
    def db(self) -> Database:
        return self.database(self.client)

    async def connect(self) -> None:
        """Connect, and refuse a server that could not keep our promises."""
        client: AsyncMongoClient[Document] = AsyncMongoClient(
            self.url, appname=self.app_name, **self._settings
        )
        try:
            self._check(await client.admin.command("hello"))
        except PyMongoError as error:
            await client.close()
            raise self.explain(error) from error
        except OutlastError:
            await client.close()
            raise
        self._client = client

    def _check(self, hello: Document) -> None:
        sharded = hello.get("msg") == "isdbgrid"
        if not sharded and "setName" not in hello:
            raise EngineDown(
                f"{self.where} is not a replica set, and without one there are no transactions: "
                "start mongod with --replSet rs0 and run rs.initiate() once (one node is enough)."
            )
        old = too_old(hello["maxWireVersion"])
        if old is not None:
            raise EngineDown(f"{self.where} {old}")
        if not hello.get("isWritablePrimary"):
            raise EngineDown(
                f"{self.where} is not the primary: name all members and the replica set, as in "
                "mongodb://a,b,c/outlast?replicaSet=rs0, without directConnection."
            )

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def explain(self, error: Exception) -> Exception:
        """The driver's error as one of ours, with the cure in the message."""
        if not isinstance(error, PyMongoError):
            return error
        if isinstance(error, DocumentTooLarge):
            return TooLarge(f"{self.where}: a task with its result has more than 16 MB.")
        if isinstance(error, OperationFailure):
            text = str((error.details or {}).get("errmsg", error))
            if error.code in FULL_CODES and ("disk" in text.lower() or "quota" in text):
                return EngineFull(f"{self.where}: no space left. Nothing was written; free some.")
            if error.code in LOGIN_CODES:
                return EngineDown(
                    f"{self.where} refused the user or the password of the URL: correct them, or "
                    "name the database that knows the user, as in ?authSource=admin."
                )
            if error.code == UNAUTHORIZED:
                return EngineDown(
                    f"{self.where}: this user needs the role readWrite on {self.name!r}: {text}"
                )
            return EngineDown(f"{self.where}: {text}")
        if "SSL handshake failed" in str(error):
            return EngineDown(
                f"{self.where} does not speak TLS as the URL asks ({_short(error)}): correct "
                "tls= and tlsCAFile= in the URL, or set up TLS there."
            )
        if isinstance(error, ServerSelectionTimeoutError):
            return EngineDown(
                f"{self.where} cannot be reached, or has no primary: {_short(error)}. Does it run, "
                "is the name behind replicaSet= right, and does it want tls=true?"
            )
        if isinstance(error, ConnectionFailure):
            return EngineDown(f"{self.where}: the connection broke: {_short(error)}")
        return EngineDown(f"{self.where}: {type(error).__name__}: {_short(error)}")

    def unsure(self, error: PyMongoError) -> EngineDown:
        """The answer to a commit that the server does not call off."""
        return EngineDown(
            f"{self.explain(error)} Whether this was written is not known: look, or repeat what "
            "may be repeated."
        )


def _short(error: Exception) -> str:
    """Without the description of the whole topology."""
    return str(error).partition(" (configured timeouts")[0].partition(", Timeout:")[0]


# transactions ------------------------------------------------------------------------------------


async def start(session: AsyncClientSession) -> None:
    await session.start_transaction(
        read_concern=SNAPSHOT, write_concern=MAJORITY, read_preference=Primary()
    )


async def commit(session: AsyncClientSession) -> None:
    """Commit; when the answer was lost, ask again: the same transaction commits once."""
    since = time.monotonic()
    while True:
        try:
            await session.commit_transaction()
            return
        except PyMongoError as error:
            lost = error.has_error_label(UNKNOWN_COMMIT)
            if not lost or time.monotonic() - since > BUSY_S:
                raise
        await asyncio.sleep(0.05)


async def abort(session: AsyncClientSession) -> None:
    with suppress(PyMongoError):
        if session.in_transaction:
            await session.abort_transaction()


def transient(error: Exception) -> bool:
    """Did somebody else have the turn, or was the primary replaced? Then it goes again."""
    return (
        isinstance(error, PyMongoError)
        and error.has_error_label(TRANSIENT)
        and not isinstance(error, ServerSelectionTimeoutError)
    )


class Patience:
    """Waits for the turn of one transaction, and ends the one of a process that is gone.

    It waits in the server: a write outside of transactions to a document that a transaction has
    written is tried again there, every few ms, until that is over. (When everybody came back with
    a transaction every few ms, two processes did 4.1k tasks a second and four 3.5k where one did
    4.6k.) That write promises the turn to one of those who wait: when all of them began at once,
    four processes began two transactions for each that they committed. The counter keeps how many
    have waited: whoever has the turns sees that there are others, and lets them (`Writer`).

    A server keeps the transaction of a killed process for 60 s (transactionLifetimeLimitSeconds),
    which is longer than any lease. Whoever has waited for a second looks, then every second:
    a transaction of this namespace that did nothing for two of them is ended. Should its process be
    alive after all, it begins again.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._since = time.monotonic()
        self._seen: dict[bytes, tuple[tuple[int, int], float]] = {}

    async def wait(self) -> bool:
        """Until it is our turn, or may be; False when it took too long."""
        over, until = False, time.monotonic() + LOOK_S
        with suppress(PyMongoError):  # the primary is being replaced
            while not over and time.monotonic() < until:
                over = await self._asked()
        if not over:
            with suppress(PyMongoError):  # not allowed to look: the server ends it after 60 s
                await self._end_stuck(time.monotonic())
            await asyncio.sleep(0.05)
        return time.monotonic() - self._since < BUSY_S

    async def _asked(self) -> bool:
        try:
            told = await self._link.db.command(dict(WAIT))  # the driver writes into it
        except ExecutionTimeout:
            return False
        if not told["n"]:
            await asyncio.sleep(AGAIN_S)
            return False
        self._link.waits += 1
        return True

    async def _end_stuck(self, now: float) -> None:
        cursor = await self._link.client.admin.aggregate(
            [
                {"$currentOp": {"allUsers": False, "idleSessions": True}},
                {"$match": {"type": "idleSession", "appName": self._link.app_name}},
            ]
        )
        for idle in await cursor.to_list():
            doing = idle.get("transaction")
            if doing is None:
                continue
            session = idle["lsid"]["id"]
            state = (doing["parameters"]["txnNumber"], doing["timeActiveMicros"])
            before, since = self._seen.get(session, (None, now))
            if before != state:
                self._seen[session] = (state, now)
            elif now - since >= STUCK_S:
                await self._link.client.admin.command("killSessions", [{"id": session}])


class Unsure(Exception):
    """A commit was asked for, and whether it was made is not known."""

    def __init__(self, why: PyMongoError) -> None:
        super().__init__(str(why))
        self.why = why


class Job(Generic[T]):
    """A function to run in a transaction, the tasks it is about, and where its answer goes."""

    __slots__ = ("error", "fn", "future", "ids", "result")

    def __init__(self, fn: Callable[[Tx], Awaitable[T]], ids: Collection[str]) -> None:
        self.fn = fn
        self.ids = ids
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.result: T | None = None
        self.error: Exception | None = None


class Writer:
    """The transactions of this process, one at a time.

    `begin` makes what the jobs work on; `committed` is told it after the commit.
    """

    def __init__(
        self,
        link: Link,
        begin: Callable[[AsyncClientSession], Awaitable[Tx]],
        committed: Callable[[Tx], None],
    ) -> None:
        self._link = link
        self._begin = begin
        self._committed = committed
        self._jobs: deque[Job[Any]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._waits = 0
        """How often others had waited for us or each other when we last looked."""
        self._contended = False
        self._not_before = 0.0

    async def run(self, fn: Callable[[Tx], Awaitable[T]], ids: Collection[str] = ()) -> T:
        """Run `fn(tx)` in a transaction; the answer once it is committed.

        `ids` are the tasks it will ask for: those of all jobs are read in one go.
        """
        _ = self._link.client  # refuse now if the engine is closed
        job = Job(fn, ids)
        self._jobs.append(job)
        if self._task is None or self._task.done():
            # It starts in the next turn of the loop: callers of this one share a transaction.
            self._task = asyncio.create_task(self._work(), name="outlast-mongo")
        return await job.future

    async def close(self) -> None:
        """Finish what was submitted."""
        if self._task is not None:
            await self._task

    async def _work(self) -> None:
        while self._jobs:
            await asyncio.sleep(max(self._not_before - time.monotonic(), 0))
            batch = [self._jobs.popleft() for _ in range(min(len(self._jobs), BATCH))]
            await self._commit(batch)
            _answer(batch)

    async def _commit(self, batch: list[Job[Any]]) -> None:
        patience, careful = Patience(self._link), False
        if self._contended:  # asking costs one command, a transaction in vain costs three
            await patience.wait()
        while True:
            try:
                tx = await self._try(batch, careful=careful)
            except Again:
                careful = True
                continue
            except Unsure as unsure:
                for job in batch:
                    job.error = self._link.unsure(unsure.why)
                return
            except Exception as error:
                if transient(error) and await patience.wait():
                    continue
                if len(batch) == 1 or isinstance(error, ConnectionFailure):
                    # Whom the server does not answer it will not answer one by one either.
                    for job in batch:
                        job.error = self._busy() if transient(error) else self._link.explain(error)
                    return
                for job in batch:
                    await self._commit([job])
                return
            waits = tx.state["waits"] - self._link.waits
            self._contended, self._waits = waits != self._waits, waits
            if self._contended:  # others want a turn, too
                self._not_before = time.monotonic() + POLITE_S
            self._committed(tx)
            return

    async def _try(self, batch: list[Job[Any]], *, careful: bool) -> Tx:
        async with self._link.client.start_session() as session:
            await start(session)
            try:
                tx = await self._begin(session)
                tx.careful = careful
                try:
                    await tx.docs(this for job in batch for this in job.ids)
                    for job in batch:
                        job.result = await job.fn(tx)
                    await tx.flush()
                finally:
                    await tx.sent()
            except BaseException:
                await abort(session)
                raise
            try:
                await commit(session)
            except PyMongoError as error:
                if transient(error):  # the server says that it was not made
                    raise
                raise Unsure(error) from error
        return tx

    def _busy(self) -> EngineDown:
        return EngineDown(
            f"{self._link.where}: other transactions held the log of {self._link.name!r} for "
            f"{BUSY_S:.0f} s. Keep `engine.transaction()` blocks short, and enqueue in them with "
            "within=."
        )


def _answer(batch: Iterable[Job[Any]]) -> None:
    for job in batch:
        if job.future.done():
            continue  # whoever asked has gone
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
