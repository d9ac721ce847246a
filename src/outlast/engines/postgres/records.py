"""Small versioned documents; the definition of a limit goes along as integers."""

from __future__ import annotations

from typing import Any, Final

from outlast.core.limits import Limit
from outlast.core.model import Put, Record
from outlast.engines.postgres.db import decode

PUT: Final = "select * from outlast.put($1, $2, $3, $4, $5, $6, $7)"


def arguments(put: Put, skew_ms: int) -> tuple[Any, ...]:
    limit = None
    if put.kind == "limit" and put.value is not None:
        limit = definition(put.value)
    return skew_ms, put.kind, put.key, put.value, put.expect, put.ttl_ms, limit


def definition(value: bytes) -> list[int | None]:
    """The columns of a definition."""
    limit = Limit.from_json(decode(value))
    rate = [limit.slots, limit.rate_units, limit.rate_period_ms]
    trip = limit.trip
    if limit.cap is not None:  # volume and window without permille: what sql/gate.sql calls a cap
        cap = limit.cap.to_json()
        return [*rate, None, cap["units"], cap["span_ms"], None]
    if trip is None:
        return [*rate, None, None, None, None]
    return [*rate, trip.permille, trip.volume, trip.window_ms, trip.open_ms]


def written(put: Put, row: Any) -> tuple[Record | None, set[str]]:
    """The record as it is now, None where nothing was written; and the topics to ring."""
    if row is None:
        return None, set()
    heard = set(row["topics"])
    if put.kind == "queue":
        heard.add(f"queue:{put.key}")
    if put.value is None:
        return None, heard
    record = Record(
        kind=put.kind,
        key=put.key,
        value=put.value,
        version=row["version"],
        expires_at=row["expires_at"],
    )
    return record, heard
