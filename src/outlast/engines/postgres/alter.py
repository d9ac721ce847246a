"""alter: a change as the arguments of one function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import structs

from outlast.core.model import (
    Altered,
    Change,
    EditPayload,
    Redrive,
    Resolve,
    Signal,
)
from outlast.engines.postgres.enqueue import text
from outlast.engines.postgres.read import is_id

ALTER: Final = "select * from outlast.alter($1, $2, $3, $4, $5)"


def arguments(ids: Sequence[str], change: Change, skew_ms: int) -> tuple[Any, ...]:
    """Bytes go beside the rest of the change."""
    body = None
    match change:
        case Redrive() | EditPayload():
            body = change.payload
        case Resolve():
            body = change.result
        case Signal():
            body = change.data
    fields = structs.asdict(change)
    rest = {name: value for name, value in fields.items() if not isinstance(value, bytes)}
    known = [task_id for task_id in ids if is_id(task_id)]
    return skew_ms, known, type(change).__name__, text(rest), body


def answers(ids: Sequence[str], rows: Sequence[Any]) -> tuple[list[Altered], set[str]]:
    """One per id, in order, and the topics to ring."""
    heard: set[str] = set()
    altered = []
    found = iter(rows)
    for task_id in ids:
        if not is_id(task_id):
            altered.append(Altered(task_id, False, "not_found"))
            continue
        _, applied, why, state, topics = next(found)
        altered.append(Altered(task_id, applied, why, state))
        if applied:
            heard.update(topics)
    return altered, heard
