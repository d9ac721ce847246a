"""What can be wrong with a PostgreSQL server, and the cure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from outlast.core.checks import CROWDED, Check
from outlast.engines._shared import statements
from outlast.engines.postgres.db import PACKAGE, too_old

if TYPE_CHECKING:
    from outlast.engines.postgres.engine import PostgresEngine

HELD_S: Final = 300
"""A transaction that is open for so long keeps vacuum from removing what was claimed since."""
DEAD_ROWS: Final = 100_000
DURABILITY: Final = "Set fsync and synchronous_commit to on."


async def opened(engine: PostgresEngine) -> AsyncIterator[Check]:
    for check in await engine._on(lambda conn: _look(conn, engine)):
        yield check


async def _look(conn: asyncpg.Connection, engine: PostgresEngine) -> list[Check]:
    settings, sql = engine._settings, statements(PACKAGE, "doctor.sql")
    facts = await conn.fetchrow(sql["facts"])
    release, named, fsync, sync, pages, autovacuum, most, used, pid = facts
    return [
        server(release, named),
        *_written(fsync, sync, pages),
        connections(used, most, settings.pool_size),
        pooler(conn.get_server_pid() != pid, listens=settings.listen == settings.dsn),
        _wake_ups(settings.listen, heard=engine._bell is not None and engine._bell.listens),
        _rights(await conn.fetchval(sql["lacking"], settings.schema), settings.schema),
        _held(await conn.fetchrow(sql["held"], HELD_S)),
        _vacuum(autovacuum, await conn.fetchrow(sql["dead"], settings.schema, DEAD_ROWS)),
    ]


def server(release: int, named: str) -> Check:
    old = too_old(release)
    if old is not None:
        return Check("server", "fail", f"PostgreSQL {named}: {old}", "Upgrade the server.")
    return Check("server", "ok", f"PostgreSQL {named}")


def _written(fsync: str, sync: str, pages: str) -> Iterator[Check]:
    for name, value, lost in (
        ("fsync", fsync, "a power cut can damage the whole database"),
        ("synchronous_commit", sync, "a crash loses what was acknowledged last"),
        ("full_page_writes", pages, "a power cut can damage pages"),
    ):
        if value == "off":
            fix = f"alter system set {name} = on; select pg_reload_conf();"
            yield Check(name, "warn", f"{name} is off: {lost}.", fix)
        else:
            yield Check(name, "ok", value)


def connections(used: int, most: int, pool_size: int) -> Check:
    told = f"{used} of {most} connections are used; this pool takes up to {pool_size}."
    if used >= most * CROWDED:
        fix = "Raise max_connections, lower ?pool_size=, or put PgBouncer before it."
        return Check("connections", "warn", told, fix)
    return Check("connections", "ok", told)


def pooler(seen: bool, *, listens: bool) -> Check:
    """A pooler hands out process ids of its own."""
    if not seen:
        return Check("pooler", "ok", "none: a direct connection")
    if listens:
        fix = "Add &listen_url= with the server's own address, or &listen=off to poll."
        return Check("pooler", "warn", "A pooler such as PgBouncer: LISTEN is lost in it.", fix)
    return Check("pooler", "ok", "A pooler such as PgBouncer; listening goes around it.")


def _wake_ups(listen: str | None, *, heard: bool) -> Check:
    if listen is None:
        return Check("wake-ups", "ok", "listen=off: a counter is looked at while somebody waits")
    if not heard:
        told = "Nothing to listen at: what others enqueue is found by polling, up to a second late."
        return Check("wake-ups", "warn", told, "Correct &listen_url=, or poll with &listen=off.")
    return Check("wake-ups", "ok", "A connection listens.")


def _rights(lacking: str | None, schema: str) -> Check:
    if lacking is None:
        return Check("rights", "ok", f"This user may do everything in schema {schema}.")
    fix = (
        f"grant usage on schema {schema} to USER; grant select, insert, update, delete on all "
        f"tables in schema {schema} to USER; grant usage on all sequences in schema {schema} "
        "to USER;"
    )
    return Check("rights", "fail", f"This user may not use {schema}.{lacking}.", fix)


def _held(held: Any) -> Check:
    if held is None:
        return Check("snapshots", "ok", "No transaction is held open.")
    who, held_s, cure = held
    told = f"{who} has held a transaction for {held_s:,} s: vacuum cannot clean up behind it."
    return Check("snapshots", "warn", told, cure)


def _vacuum(autovacuum: str, dead: Any) -> Check:
    if autovacuum == "off":
        fix = "alter system set autovacuum = on; select pg_reload_conf();"
        return Check("vacuum", "warn", "autovacuum is off: tables grow without end.", fix)
    if dead is not None:
        table, rows, live = dead
        told = f"{table} has {rows:,} dead rows and {live:,} live ones."
        return Check("vacuum", "warn", told, f"vacuum {table}; and let autovacuum run more often.")
    return Check("vacuum", "ok", "autovacuum keeps up")
