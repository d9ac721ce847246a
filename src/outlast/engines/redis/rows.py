"""Records as the scripts keep them, and what becomes of them on this side: tasks and leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from outlast.core.model import Lease, SignalIn, Step, Task
from outlast.core.states import Lane, Ms, State, status_of


class Row(Struct, kw_only=True, omit_defaults=True):
    """A record: `task:<id>`, written by lib.lua. What is absent is None, false or zero."""

    id: str
    type: str
    queue: str
    lane: Lane
    priority: int
    rank: int
    state: State
    seq: int
    cut: int
    needs: str
    attempt: int
    number: int
    max_attempts: int
    losses: int
    max_losses: int
    run_at: Ms
    created_at: Ms
    updated_at: Ms
    awaits: int
    version: int
    followed: bool
    parked: str | None = None
    wake_at: Ms | None = None
    hold: str | None = None
    worker: str | None = None
    cancel: str | None = None
    timeout_ms: int | None = None
    overdue_after_ms: int | None = None
    overdue_at: Ms | None = None
    overdue: bool = False
    max_age_ms: int | None = None
    expires_at: Ms | None = None
    started_at: Ms | None = None
    completed_at: Ms | None = None
    kept: Ms | None = None
    limits: tuple[tuple[str, int], ...] = ()
    fair_key: str | None = None
    session_id: str | None = None
    user_id: str | None = None
    parent_id: str | None = None
    workflow_id: str | None = None
    unique_key: str | None = None
    tags: tuple[str, ...] = ()
    attrs: tuple[tuple[str, str], ...] = ()
    steps: bool = False
    inbox: dict[str, int] = {}
    edges: bool = False
    reason: str | None = None
    fingerprint: str | None = None
    progress: str | None = None
    error: str | None = None
    result: str | None = None
    attempts: tuple[str, ...] = ()


decode_row: Final = msgspec.msgpack.Decoder(Row).decode
_decode_step: Final = msgspec.msgpack.Decoder(tuple[int, str, Ms]).decode
_decode_signal: Final = msgspec.msgpack.Decoder(tuple[str, str, Ms]).decode


def member_of(row: Row) -> bytes:
    """Where it stands in its ready set, as lib.lua writes it."""
    return f"{row.priority:05d}{row.rank:016d}{row.id}".encode()


def steps_of(flat: Sequence[bytes]) -> list[tuple[str, bytes, Ms]]:
    """(key, value, at), in the order they were written, from HGETALL."""
    found = [(_decode_step(flat[i + 1]), flat[i].decode()) for i in range(0, len(flat), 2)]
    return [(key, value.encode(), at) for (_, value, at), key in sorted(found)]


def signals_of(entries: Sequence[bytes]) -> tuple[SignalIn, ...]:
    return tuple(
        SignalIn(name, data.encode(), at) for name, data, at in map(_decode_signal, entries)
    )


def lease_of(fence: int, found: Sequence[Any]) -> Lease:
    """From {record, body, steps, inbox}."""
    row = decode_row(found[0])
    body: bytes = found[1]
    return Lease(
        id=row.id,
        fence=fence,
        type=row.type,
        queue=row.queue,
        lane=row.lane,
        payload=body[: row.cut],
        attempt=row.attempt,
        number=row.number,
        max_attempts=row.max_attempts,
        losses=row.losses,
        max_losses=row.max_losses,
        priority=row.priority,
        timeout_ms=row.timeout_ms,
        run_at=row.run_at,
        created_at=row.created_at,
        limits=row.limits,
        session_id=row.session_id,
        user_id=row.user_id,
        parent_id=row.parent_id,
        workflow_id=row.workflow_id,
        unique_key=row.unique_key,
        meta=body[row.cut :],
        steps=tuple(Step(key, value) for key, value, _ in steps_of(found[2])) if found[2] else (),
        inbox=signals_of(found[3]) if found[3] else (),
    )


def task_of(row: Row, body: bytes, after: tuple[str, ...], lease_until: Ms | None, now: Ms) -> Task:
    return Task(
        id=row.id,
        type=row.type,
        queue=row.queue,
        lane=row.lane,
        priority=row.priority,
        state=row.state,
        parked=row.parked,
        status=status_of(row.state, row.parked, row.lane, lease_until, now),
        payload=body[: row.cut],
        result=_bytes(row.result),
        error=_bytes(row.error),
        attempts=f"[{','.join(row.attempts)}]".encode(),
        progress=_bytes(row.progress),
        attempt=row.attempt,
        number=row.number,
        max_attempts=row.max_attempts,
        losses=row.losses,
        max_losses=row.max_losses,
        timeout_ms=row.timeout_ms,
        overdue_after_ms=row.overdue_after_ms,
        overdue_at=row.overdue_at,
        max_age_ms=row.max_age_ms,
        run_at=row.run_at,
        created_at=row.created_at,
        started_at=row.started_at,
        updated_at=row.updated_at,
        completed_at=row.completed_at,
        worker=row.worker,
        lease_until=lease_until,
        limits=row.limits,
        reason=row.reason,
        fingerprint=row.fingerprint,
        session_id=row.session_id,
        user_id=row.user_id,
        tags=row.tags,
        parent_id=row.parent_id,
        workflow_id=row.workflow_id,
        unique_key=row.unique_key,
        after=after,
        needs=row.needs,
        awaits=row.awaits,
        version=row.version,
        followed=row.followed,
        meta=body[row.cut :],
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
