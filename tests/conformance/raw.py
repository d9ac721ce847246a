"""What lies in a store, in bytes, read past Outlast: for finding what should not be there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import redis.asyncio
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient


async def _sqlite(url: str) -> bytes:
    """The file, its write-ahead log and whatever else lies beside it."""
    path = Path(url.removeprefix("sqlite:///"))
    beside = path.parent.glob(f"{path.name}*")
    return b"".join(file.read_bytes() for file in beside if file.is_file())


async def _postgresql(url: str) -> bytes:
    """Every table of the schema, in PostgreSQL's own binary form."""
    parts = urlsplit(url)
    schema = parse_qs(parts.query)["namespace"][0]
    found = BytesIO()
    conn = await asyncpg.connect(parts._replace(query="").geturl())
    try:
        tables = "select tablename from pg_tables where schemaname = $1"
        for (table,) in await conn.fetch(tables, schema):
            await conn.copy_from_table(table, schema_name=schema, output=found, format="binary")
    finally:
        await conn.close()
    return found.getvalue()


async def _redis(url: str) -> bytes:
    """Every key with its value, and the append-only file."""
    address = urlsplit(url)._replace(query="").geturl()
    found: list[Any] = []
    async with redis.asyncio.Redis.from_url(address) as client:
        read: dict[bytes, Callable[[bytes], Awaitable[Any]]] = {
            b"string": client.get,
            b"hash": client.hgetall,
            b"list": lambda key: client.lrange(key, 0, -1),
            b"set": client.smembers,
            b"zset": lambda key: client.zrange(key, 0, -1),
            b"stream": client.xrange,
        }
        async for key in client.scan_iter():
            found += [key, await read[await client.type(key)](key)]
        told = await client.config_get("dir", "appenddirname")
    folder = Path(told["dir"]) / told["appenddirname"]
    return repr(found).encode() + b"".join(file.read_bytes() for file in folder.iterdir())


async def _mongodb(url: str) -> bytes:
    """Every document of the database, and of the log of operations."""
    name = urlsplit(url).path.strip("/")
    found = []
    async with AsyncMongoClient[Any](url, document_class=RawBSONDocument) as client:
        database = client[name]
        for collection in await database.list_collection_names():
            found += [document.raw async for document in database[collection].find()]
        found += [document.raw async for document in client["local"]["oplog.rs"].find()]
    return b"".join(found)


RAW: dict[str, Callable[[str], Awaitable[bytes]]] = {
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "redis": _redis,
    "mongodb": _mongodb,
}
"""Engine -> everything that it has stored at a URL."""
