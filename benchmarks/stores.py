"""The stores under test: real servers of `tests/servers`, set to keep what they acknowledge.

One server per run serves all subjects alike; each measurement gets an empty space of its own in it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol

from subjects import CACHE

ROOT: Final = Path(__file__).resolve().parent.parent
CALM_S: Final = 60.0


class Store(Protocol):
    """Where the subjects of one engine keep their tasks."""

    about: str

    @property
    def pid(self) -> int | None:
        """The process at the root of the server, if there is one."""

    def take(self, folder: Path) -> str:
        """The URL of an empty space."""

    def drop(self, url: str) -> None: ...

    def settle(self, url: str) -> None:
        """Let the server finish what a bulk load leaves it to do later."""

    def stop(self) -> None: ...


class Sqlite:
    """Files in the folder of the measurement; there is no server."""

    about = "SQLite, WAL, fsync at every commit"
    pid = None

    def take(self, folder: Path) -> str:
        return f"sqlite:///{folder / 'outlast.db'}"

    def drop(self, url: str) -> None:
        """Its folder goes."""

    def settle(self, url: str) -> None:
        """Nobody works behind its back."""

    def stop(self) -> None:
        """Nothing runs."""


class Redis:
    """A numbered database per space."""

    about = "Valkey, append-only file, `appendfsync everysec`"

    def __init__(self) -> None:
        self._server = _server("redis").Server()
        self._free = list(range(16))
        self._server.run()

    @property
    def pid(self) -> int | None:
        return _pid(self._server)

    def _client(self, url: str) -> Any:
        return import_module("redis").Redis.from_url(url)

    def take(self, folder: Path) -> str:
        return f"{self._server.url}/{self._free.pop(0)}"

    def drop(self, url: str) -> None:
        with self._client(url) as client:
            client.execute_command("FLUSHDB", "SYNC")  # now, not while the next one is measured
            self._rewrite(client)
        self._free.insert(0, int(url.rpartition("/")[2]))

    def settle(self, url: str) -> None:
        with self._client(url) as client:
            told = client.info("persistence")
            if told["aof_current_size"] > 1.5 * told["aof_base_size"]:
                self._rewrite(client)

    def _rewrite(self, client: Any) -> None:
        """A new append-only file now: not when it has doubled, in the middle of a measurement."""
        until = time.monotonic() + CALM_S
        client.bgrewriteaof()
        names = ("aof_rewrite_in_progress", "aof_rewrite_scheduled")
        while any(client.info("persistence")[name] for name in names):
            if time.monotonic() > until:
                raise RuntimeError("Valkey does not finish rewriting its append-only file.")
            time.sleep(0.02)

    def stop(self) -> None:
        self._server.stop()


class PostgreSQL:
    """A database per space."""

    about = "PostgreSQL 16, `fsync` and `synchronous_commit` on, 512 MB of shared buffers"

    def __init__(self) -> None:
        settings = {"fsync": "on", "synchronous_commit": "on", "shared_buffers": "512MB"}
        self._server = _server("postgresql").Server(**settings)
        self._numbers = count(1)
        self._server.run()

    @property
    def pid(self) -> int | None:
        return _pid(self._server)

    def take(self, folder: Path) -> str:
        name = f"bench{next(self._numbers)}"
        self._run(self._server.url, f"create database {name}", "checkpoint")
        return str(self._server.url).replace("/postgres", f"/{name}")

    def drop(self, url: str) -> None:
        name = url.rpartition("/")[2]
        self._run(self._server.url, f"drop database {name} with (force)")

    def settle(self, url: str) -> None:
        self._run(url, "vacuum analyze", "checkpoint")

    def _run(self, url: str, *statements: str) -> None:
        with self._connect(url) as connection:
            for statement in statements:
                connection.execute(statement)

    def _connect(self, url: str) -> Any:
        return import_module("psycopg").connect(url, autocommit=True)

    @contextmanager
    def snapshot(self, url: str) -> Iterator[None]:
        """A transaction that is left open: nothing that dies meanwhile can be cleaned up."""
        with self._connect(url) as connection:
            connection.execute("begin isolation level repeatable read")
            connection.execute("select count(*) from pg_class")
            yield
            connection.execute("rollback")

    def stop(self) -> None:
        self._server.stop()


class MongoDB:
    """A database per space."""

    about = "MongoDB 6, a replica set of one with its journal on disk"

    def __init__(self) -> None:
        settings = ("--wiredTigerEngineConfigString", "cache_size=1G")
        self._server = _server("mongodb").Server(settings=settings, on_disk=True)
        self._numbers = count(1)
        self._server.run()
        self._client = import_module("pymongo").MongoClient(self._server.url)

    @property
    def pid(self) -> int | None:
        return _pid(self._server)

    def take(self, folder: Path) -> str:
        return str(self._server.url).replace("/?", f"/bench{next(self._numbers)}?")

    def drop(self, url: str) -> None:
        self._client.drop_database(url.rpartition("/")[2].partition("?")[0])

    def settle(self, url: str) -> None:
        self._client.admin.command("fsync")

    def stop(self) -> None:
        self._client.close()
        self._server.stop()


STORES: Final[dict[str, Callable[[], Store]]] = {
    "sqlite": Sqlite,
    "redis": Redis,
    "postgresql": PostgreSQL,
    "mongodb": MongoDB,
}


@contextmanager
def running(engine: str) -> Iterator[Store]:
    """The store of an engine for the length of a run, its data below the cache."""
    CACHE.mkdir(parents=True, exist_ok=True)
    tempfile.tempdir = str(CACHE)
    store = STORES[engine]()
    try:
        yield store
    finally:
        store.stop()


def _server(name: str) -> Any:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return import_module(f"tests.servers.{name}")


def _pid(server: Any) -> int | None:
    pid: int | None = server.pid
    return pid
