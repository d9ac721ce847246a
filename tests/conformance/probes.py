"""How much work a call makes the store do, each engine by its own means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from outlast.engine import Engine


class Work:
    """`steps` grows with the rows a store looks at; it is the same for the same rows."""

    steps = 0


@contextmanager
def _sqlite(engine: Any) -> Iterator[Work]:
    """Steps of SQLite's virtual machine, over all statements of the writer."""
    work = Work()

    def profiled(event: dict[str, Any]) -> None:
        work.steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    connection: apsw.Connection = engine._writer.conn
    connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, profiled)
    try:
        yield work
    finally:
        connection.trace_v2(0, None)


@contextmanager
def _redis(engine: Any) -> Iterator[Work]:
    """Commands, those of scripts included, and the keys they looked up."""
    import redis  # only who tests this engine has its driver

    def looked() -> int:
        stats = client.info("commandstats")
        calls = sum(v["calls"] for name, v in stats.items() if name != "cmdstat_info")
        keys = client.info("stats")
        return calls + int(keys["keyspace_hits"]) + int(keys["keyspace_misses"])

    work = Work()
    client = redis.Redis.from_url(engine._url)
    try:
        before = looked()
        yield work
        work.steps = looked() - before
    finally:
        client.close()


@contextmanager
def _postgres(engine: Any) -> Iterator[Work]:
    """Rows that scans of the schema's tables fetched, as the server's own statistics count them."""
    work = Work()
    query = (
        "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint "
        "from pg_stat_xact_user_tables where schemaname = $1"
    )

    async def counted(statement: str, *values: object, **_: object) -> list[Any]:
        async with engine._pool.acquire() as conn, conn.transaction():
            before = await conn.fetchval(query, engine._settings.schema)
            rows: list[Any] = await conn.fetch(
                statement.replace("outlast.", f"{engine._settings.schema}."), *values
            )
            work.steps += await conn.fetchval(query, engine._settings.schema) - before
            return rows

    engine._rows = counted
    try:
        yield work
    finally:
        del engine._rows


@contextmanager
def _mongo(engine: Any) -> Iterator[Work]:
    """Commands, and the index entries and documents that they looked at.

    Without inserts: the hint that follows a commit would be counted now and then.
    """
    import pymongo  # only who tests this engine has its driver

    counted = ("find", "getMore", "update", "delete", "findAndModify", "aggregate")

    def looked() -> int:
        did = client.admin.command("serverStatus")["metrics"]
        calls = sum(int(did["commands"][name]["total"]) for name in counted)
        seen = did["queryExecutor"]
        return calls + int(seen["scanned"]) + int(seen["scannedObjects"])

    work = Work()
    client: Any = pymongo.MongoClient(engine._link.url)
    try:
        before = looked()
        yield work
        work.steps = looked() - before
    finally:
        client.close()


PROBES: dict[str, Callable[[Any], Any]] = {
    "SqliteEngine": _sqlite,
    "RedisEngine": _redis,
    "PostgresEngine": _postgres,
    "MongoEngine": _mongo,
}


async def cost(engine: Engine, call: Callable[[], Any]) -> int:
    """The steps that one awaited call costs."""
    with PROBES[type(engine).__name__](engine) as work:
        await call()
    steps: int = work.steps
    return steps
