"""The Redis and Valkey engine: the protocol's verbs, each handed to its script."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from redis.exceptions import NoPermissionError

from outlast.core.errors import EngineDown, UnknownEngine, Unsupported
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
from outlast.engines.redis import copy, log, read, records
from outlast.engines.redis.alter import alter, sweep
from outlast.engines.redis.enqueue import Enqueuing
from outlast.engines.redis.exchange import exchange
from outlast.engines.redis.link import OLDEST_REDIS, Link, Target, too_old
from outlast.engines.redis.wake import Bell, Watching

SCHEMA_VERSION: Final = 1
SENTINEL_PORT: Final = 26379
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
_NO_TRANSACTION: Final = (
    "Redis has no transaction that a script could join: enqueue after your own commit, or use "
    "PostgreSQL, MongoDB or SQLite."
)


def connect(url: str) -> Engine:
    """`redis://host:6379/0?namespace=jobs`, `rediss://…` over TLS, `valkey://…`,
    `redis+sentinel://h1,h2,h3:26379/mymaster`.

    Everything of a namespace lies under `{namespace}:`. `replicas=1`: that many replicas have a
    write before it is acknowledged. Other parameters go to the driver.
    """
    parts = urlsplit(url)
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    namespace = settings.pop("namespace", "outlast")
    if not _NAMESPACE.fullmatch(namespace):
        raise UnknownEngine(
            f"?namespace={namespace!r}: use letters, digits, '_', '.', ':' and '-', at most 100."
        )
    replicas = settings.pop("replicas", "0")
    if not replicas.isdigit():
        raise UnknownEngine(f"?replicas={replicas!r}: write how many must have a write, as in 1.")
    return RedisEngine(_target(parts, settings, int(replicas)), namespace)


def _target(parts: SplitResult, settings: dict[str, str], replicas: int) -> Target:
    user, at, hosts = parts.netloc.rpartition("@")
    shown = hosts or "localhost"
    if not parts.scheme.endswith("+sentinel"):
        _check_database(parts.path.strip("/"))
        scheme = {"valkey": "redis"}.get(parts.scheme, parts.scheme)
        url = urlunsplit((scheme, parts.netloc, parts.path, urlencode(settings), ""))
        return Target(url, shown, replicas=replicas)
    primary, _, database = parts.path.strip("/").partition("/")
    _check_database(database)
    if not hosts or not primary:
        raise UnknownEngine(
            "A URL of sentinels names them and the primary that they watch, as in "
            "redis+sentinel://h1:26379,h2:26379,h3:26379/mymaster?namespace=jobs."
        )
    url = urlunsplit(("redis", f"{user}{at}localhost", database, urlencode(settings), ""))
    sentinels = []
    for each in hosts.split(","):
        host, _, port = each.partition(":")
        sentinels.append((host, int(port) if port.isdigit() else SENTINEL_PORT))
    return Target(url, f"{primary} of {shown}", tuple(sentinels), primary, replicas)


def _check_database(name: str) -> None:
    """The driver would leave it out, and so take everybody to the same tasks."""
    if name and not name.isdecimal():
        raise UnknownEngine(
            f"The databases of Redis have numbers, {name!r} is none: to keep tasks apart write "
            f"/0?namespace={name.rpartition('/')[2]}."
        )


class RedisEngine:
    """Tasks in one namespace of a server, shared by any number of machines."""

    def __init__(self, target: Target, namespace: str) -> None:
        self.skew_ms = 0
        self._target = target
        self._url = target.url
        self._shown = target.shown
        self._prefix = f"{{{namespace}}}:"
        self._link: Link | None = None
        self._enqueuing: Enqueuing | None = None
        self._bell: Bell | None = None

    @property
    def durability(self) -> Durability:
        """After a failover what the new primary says: it may be set otherwise."""
        if self._link is None:
            return "memory"
        if self._target.replicas:
            return "replicated"
        said = self._link.settings
        always = said.get("appendonly") == "yes" and said.get("appendfsync") == "always"
        pauses = said.get("no-appendfsync-on-rewrite") == "yes"
        return "fsync" if always and not pauses else "memory"

    # life ----------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._link is not None:
            return
        try:
            link = Link(self._target, self._prefix)
        except (TypeError, ValueError) as error:
            raise UnknownEngine(
                f"The URL of Redis at {self._shown} is wrong ({error}): write "
                "redis://user:password@host:6379/0?namespace=jobs."
            ) from error
        try:
            await self._look_at(link)
            await _migrate(link)
        except BaseException:
            await link.close()
            raise
        self._link = link
        self._enqueuing = Enqueuing(link)
        self._bell = Bell(link)

    async def _look_at(self, link: Link) -> None:
        """What the server promises, and whether it would throw tasks away."""
        if self._target.sentinels:
            await link.find()
        await link.do("PING")
        told = await _hello(link)
        old = too_old(told.get("server", ""), told.get("version", str(OLDEST_REDIS)))
        if old is not None:
            raise EngineDown(f"Redis at {self._shown} {old}")
        # In a cluster it leads to its primary, like every node that has not the slot.
        if told.get("role") in ("replica", "slave") and told.get("mode") != "cluster":
            raise EngineDown(
                f"Redis at {self._shown} is a read-only replica: connect to the primary."
            )
        policy = link.settings.get("maxmemory-policy", "noeviction")
        if policy != "noeviction" and link.settings.get("maxmemory", "0") != "0":
            raise EngineDown(
                f"Redis at {self._shown} has maxmemory-policy {policy}: it would delete tasks when "
                "its memory is full. Set it to noeviction, or use another server for caches."
            )
        if policy != "noeviction":
            warnings.warn(
                f"Redis at {self._shown} has maxmemory-policy {policy}: once a maxmemory is set it "
                "will delete tasks. Set it to noeviction.",
                stacklevel=3,
            )

    async def close(self) -> None:
        bell, self._bell = self._bell, None
        link, self._link = self._link, None
        self._enqueuing = None
        if bell is not None:
            await bell.close()
        if link is not None:
            await link.close()

    async def migrate(self) -> int:
        return await _migrate(self._open())

    async def now(self) -> Ms:
        return await read.now(self._open(), self.skew_ms)

    # work ----------------------------------------------------------------------------------------

    async def enqueue(
        self, tasks: Sequence[NewTask], *, within: object | None = None
    ) -> list[Receipt]:
        if within is not None:
            raise Unsupported(_NO_TRANSACTION)
        if self._enqueuing is None:
            raise self._closed()
        return await self._enqueuing.enqueue(tasks, self.skew_ms)

    async def exchange(self, turn: Turn) -> Deal:
        return await exchange(self._open(), turn, self.skew_ms)

    async def alter(self, ids: Sequence[TaskId], change: Change) -> list[Altered]:
        return await alter(self._open(), ids, change, self.skew_ms)

    async def sweep(self, budget: int = 500, *, gone: Sequence[WorkerId] = ()) -> Swept:
        return await sweep(self._open(), budget, gone, self.skew_ms)

    def transaction(self) -> AbstractAsyncContextManager[object]:
        raise Unsupported(_NO_TRANSACTION)

    # reading -------------------------------------------------------------------------------------

    async def tasks(self, query: TaskQuery) -> Page[Task]:
        return await read.tasks(self._open(), query, await self.now())

    async def memory(self, task_id: TaskId) -> Memory:
        return await read.memory(self._open(), task_id)

    async def count(self, query: TaskQuery, by: Sequence[str] = ()) -> list[Count]:
        return await read.count(self._open(), query, by, await self.now())

    async def workers(self) -> list[WorkerView]:
        return await read.workers(self._open(), await self.now())

    async def gauges(self, keys: Sequence[str] | None = None) -> list[GaugeView]:
        return await read.gauges(self._open(), keys, await self.now())

    # the log -------------------------------------------------------------------------------------

    async def append(self, events: Sequence[NewEvent]) -> list[Cursor]:
        return await log.append(self._open(), events, self.skew_ms)

    async def events(self, query: EventQuery) -> EventPage:
        return await log.events(self._open(), query)

    # small documents -----------------------------------------------------------------------------

    async def put(self, puts: Sequence[Put]) -> list[Record | None]:
        return await records.put(self._open(), puts, self.skew_ms)

    async def get(self, kind: str, keys: Sequence[str] | None = None) -> list[Record]:
        return await records.get(self._open(), kind, keys, await self.now())

    # whole things --------------------------------------------------------------------------------

    async def dump(self, after: Cursor | None = None, limit: int = 500) -> Page[Item]:
        return await copy.dump(self._open(), after, limit, await self.now())

    async def load(self, items: Sequence[Item]) -> int:
        return await copy.load(self._open(), items, self.skew_ms)

    # wake-ups ------------------------------------------------------------------------------------

    def watch(self, topics: Collection[str]) -> AbstractAsyncContextManager[Watch]:
        if self._bell is None:
            raise self._closed()
        return Watching(self._bell, topics)

    # inside --------------------------------------------------------------------------------------

    def _open(self) -> Link:
        if self._link is None:
            raise self._closed()
        return self._link

    def _closed(self) -> EngineDown:
        return EngineDown("The engine is not open: use `async with app:` or `await engine.open()`.")


async def _hello(link: Link) -> dict[str, str]:
    """What the server is; nothing when this user may not ask."""
    try:
        pairs = await link.pairs("HELLO")
    except EngineDown as refused:
        if isinstance(refused.__cause__, NoPermissionError):
            return {}
        raise
    return {k.decode(): v.decode() for k, v in pairs if isinstance(v, bytes)}


async def _migrate(link: Link) -> int:
    """There is one schema so far. A newer one is refused: this release would not understand it."""
    await link.do("HSETNX", f"{link.prefix}meta", "schema", SCHEMA_VERSION)
    version = int(await link.do("HGET", f"{link.prefix}meta", "schema"))
    if version > SCHEMA_VERSION:
        raise EngineDown(
            f"The namespace {link.prefix[:-1]} was made by a newer Outlast (schema {version}); "
            "upgrade this process."
        )
    return version
