"""The store alone: the fastest plain way of putting as many comparable records in.

Per task, and only this: one record of as many bytes as ours has there, found by its id, and one
entry of the log, found by its place. No queue, no index that a claim or a search would need, no
check for what is there already. A thousand tasks at a time, each thousand as durable as ours.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from adapter import FOLDER, URL, batches

SCHEME = urlsplit(URL).scheme
# What makes a row, a document or a value as long as ours of a no-op that waits, and its event.
BYTES = {"sqlite": (170, 60), "redis": (220, 92), "postgresql": (128, 52), "mongodb": (350, 131)}
RECORD, ENTRY = (b"x" * n for n in BYTES[SCHEME])
SEED = int.from_bytes(os.urandom(8)) << 64

Many = Callable[[list[UUID]], object]


def _ids(n: int) -> Iterator[list[UUID]]:
    """Ascending, as ours."""
    made = SEED
    for size in batches(n):
        yield [UUID(int=made + i) for i in range(size)]
        made += size


class Raw:
    def prepare(self) -> None:
        """Made when it is needed."""

    def bulk(self, n: int) -> float:
        if SCHEME == "postgresql":
            return asyncio.run(_copy(n))
        many = {"sqlite": _sqlite, "redis": _redis, "mongodb": _mongodb}[SCHEME]()
        since = time.perf_counter()
        for ids in _ids(n):
            many(ids)
        return time.perf_counter() - since


def _sqlite() -> Many:
    conn = sqlite3.connect(FOLDER / "raw.db", isolation_level=None)
    for pragma in ("journal_mode=wal", "synchronous=full", "wal_autocheckpoint=4000"):
        conn.execute(f"pragma {pragma}")
    conn.execute("create table task (id text primary key, record blob) without rowid")
    conn.execute("create table log (seq integer primary key, entry blob)")

    def many(ids: list[UUID]) -> None:
        conn.execute("begin immediate")
        conn.executemany("insert into task values (?, ?)", [(str(id), RECORD) for id in ids])
        conn.executemany("insert into log (entry) values (?)", [(ENTRY,)] * len(ids))
        conn.execute("commit")

    return many


def _redis() -> Many:
    from hiredis import Reader, pack_command

    at = urlsplit(URL)
    link = socket.create_connection((at.hostname, at.port))
    reader = Reader()

    def send(commands: list[Any]) -> None:
        link.sendall(b"".join([pack_command(command) for command in commands]))
        left = len(commands)
        while left:
            reader.feed(link.recv(1 << 18))
            while reader.gets() is not False:
                left -= 1

    def many(ids: list[UUID]) -> None:
        commands: list[Any] = []
        for id in ids:
            commands += [("SET", f"task:{id}", RECORD), ("XADD", "log", "*", "e", ENTRY)]
        send(commands)

    send([("SELECT", at.path[1:])])
    return many


def _mongodb() -> Many:
    from pymongo import MongoClient, WriteConcern

    client: MongoClient[dict[str, object]] = MongoClient(URL)
    db = client.get_default_database(write_concern=WriteConcern("majority"))
    db.create_collection("raw_task")
    db.create_collection("raw_log")

    def many(ids: list[UUID]) -> None:
        tasks: list[dict[str, object]] = [{"_id": str(id), "record": RECORD} for id in ids]
        db.raw_task.insert_many(tasks, ordered=False)
        db.raw_log.insert_many([{"entry": ENTRY} for _ in ids], ordered=False)

    return many


async def _copy(n: int) -> float:
    import asyncpg

    conn = await asyncpg.connect(URL)
    await conn.execute("create table raw_task (id uuid primary key, record bytea)")
    await conn.execute("create table raw_log (seq bigint primary key, entry bytea)")
    seq = 0
    since = time.perf_counter()
    for ids in _ids(n):
        tasks = [(id, RECORD) for id in ids]
        entries = [(seq + i, ENTRY) for i in range(len(ids))]
        seq += len(ids)
        async with conn.transaction():
            await conn.copy_records_to_table("raw_task", records=tasks)
            await conn.copy_records_to_table("raw_log", records=entries)
    return time.perf_counter() - since


ADAPTER = Raw()
