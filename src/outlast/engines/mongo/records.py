"""Small versioned documents, and what follows when one defines a limit."""

from __future__ import annotations

from typing import Final

from pymongo import DeleteOne, ReplaceOne

from outlast.core.limits import Limit, resolve
from outlast.core.model import Put, Record
from outlast.engines.mongo.documents import decode
from outlast.engines.mongo.schema import Document
from outlast.engines.mongo.tx import Tx

_ANY: Final = Limit("any", slots=1)


def record_of(found: Document) -> Record:
    return Record(
        kind=found["_id"]["kind"],
        key=found["_id"]["key"],
        value=found["value"],
        version=found["version"],
        expires_at=found.get("expires_at"),
    )


def document_of(record: Record) -> Document:
    name = {"kind": record.kind, "key": record.key}
    document: Document = {"_id": name, "value": record.value, "version": record.version}
    if record.expires_at is not None:
        document["expires_at"] = record.expires_at
    return document


async def put(tx: Tx, put: Put) -> Record | None:
    """Compare-and-set of one record; a limit's change opens the lines it governs."""
    name = {"kind": put.kind, "key": put.key}
    found = await tx.select("record", {"_id": name})
    old = record_of(found[0]) if found else None
    expired = old is not None and old.expires_at is not None and old.expires_at <= tx.now
    version = 0 if old is None or expired else old.version
    if put.expect is not None and put.expect != version:
        return None
    written = None
    if put.value is None:
        tx.write("record", DeleteOne({"_id": name}))
    else:
        written = Record(
            kind=put.kind,
            key=put.key,
            value=put.value,
            # It goes on counting over a deletion by time, so that an old reader still loses.
            version=(old.version if old else 0) + 1,
            expires_at=None if put.ttl_ms is None else tx.now + put.ttl_ms,
        )
        tx.write("record", ReplaceOne({"_id": name}, document_of(written), upsert=True))
    before = None if old is None else old.value
    if put.value != before:
        await changed(tx, put.kind, put.key, before)
    if put.kind == "queue":
        tx.topics.add(f"queue:{put.key}")
    return written


async def changed(tx: Tx, kind: str, key: str, before: bytes | None) -> None:
    """A record was written or is gone: what hangs on it?"""
    if kind == "limit":
        await _limit_changed(tx, key, before)
    elif kind == "queue":
        await tx.rules_changed()


async def _limit_changed(tx: Tx, key: str, before: bytes | None) -> None:
    """Let every line that the definition governs be looked at; a changed rate starts afresh."""
    old = None if before is None else Limit.from_json(decode(before))
    await tx.rules_changed()
    keys = {g["_id"] for g in await tx.select("gauge", {}, only=("_id",))}
    keys |= {line["_id"]["key"] for line in await tx.select("line", {}, only=("_id",))}
    governed = [other for other in sorted(keys) if resolve(other, {key: _ANY}) is not None]
    await tx.load_gauges(governed)
    await tx.load_lines(governed)
    for other in governed:
        new, gauge = tx.limit(other), await tx.gauge(other)
        if (old and old.rate) != (new and new.rate):
            gauge.tat_us = 0
        if new is None or new.trip is None:
            gauge.open_until = 0
        await tx.open_key(other)
