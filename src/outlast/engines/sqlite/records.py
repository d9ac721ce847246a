"""Small versioned documents, and what follows when one defines a limit."""

from __future__ import annotations

from typing import Final

from outlast.core.limits import Limit, resolve
from outlast.core.model import Put, Record
from outlast.engines.sqlite.tx import Tx, decode

_ANY: Final = Limit("any", slots=1)


def put(tx: Tx, put: Put) -> Record | None:
    """Compare-and-set of one record; a limit's change opens the lines it governs."""
    row = tx.row(
        "select version, expires_at, value from record where kind = ? and key = ?",
        (put.kind, put.key),
    )
    expired = row is not None and row[1] is not None and row[1] <= tx.now
    version = 0 if row is None or expired else row[0]
    if put.expect is not None and put.expect != version:
        return None
    before = None if row is None else row[2]
    written = None
    if put.value is None:
        tx.execute("delete from record where kind = ? and key = ?", (put.kind, put.key))
    else:
        expires_at = None if put.ttl_ms is None else tx.now + put.ttl_ms
        # The version goes on counting over a deletion by time, so that an old reader still loses.
        number = (row[0] if row else 0) + 1
        tx.execute(
            "insert or replace into record (kind, key, value, version, expires_at) "
            "values (?, ?, ?, ?, ?)",
            (put.kind, put.key, put.value, number, expires_at),
        )
        written = Record(
            kind=put.kind, key=put.key, value=put.value, version=number, expires_at=expires_at
        )
    if put.kind == "limit" and put.value != before:
        limit_changed(tx, put.key, before)
    if put.kind == "queue":
        tx.topics.add(f"queue:{put.key}")
    return written


def limit_changed(tx: Tx, key: str, before: bytes | None) -> None:
    """Let every line that the definition governs be looked at; a changed rate starts afresh."""
    old = None if before is None else Limit.from_json(decode(before))
    tx.definitions_changed()
    keys = {key for (key,) in tx.rows("select key from gauge union select key from line")}
    for other in keys:
        if resolve(other, {key: _ANY}) is None:
            continue
        new = tx.limit(other)
        if (old and old.rate) != (new and new.rate):
            tx.gauge(other).tat_us = 0
        if new is None or new.trip is None:
            tx.gauge(other).open_until = 0
        tx.open_key(other)
