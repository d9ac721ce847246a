"""Records as the scripts keep them, and what becomes of them on this side: tasks and leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from outlast.core.model import Lease, SignalIn, Step, Task
from outlast.core.states import Lane, Ms, State, status_of
from outlast.engines.redis.wire import json


class Rest(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The map at the end of a record. What is absent is None, false or empty."""

    max_attempts: int
    max_losses: int
    needs: str
    awaits: int
    parked: str | None = None
    wake_at: Ms | None = None
    hold: str | None = None
    cancel: str | None = None
    timeout_ms: int | None = None
    overdue_after_ms: int | None = None
    overdue_at: Ms | None = None
    overdue: bool = False
    max_age_ms: int | None = None
    expires_at: Ms | None = None
    kept: Ms | None = None
    limits: tuple[tuple[str, int], ...] = ()
    fair_key: str | None = None
    user_id: str | None = None
    parent_id: str | None = None
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


class Ended(Struct):
    """A second map behind it, of a task that succeeded at once."""

    attempts: tuple[str, ...]
    result: str | None = None


class Row(Struct, kw_only=True):
    """A record: `task:<id>`, written by lib.lua."""

    id: str
    type: str
    queue: str
    lane: Lane
    state: State
    seq: int
    priority: int
    rank: int
    run_at: Ms
    created_at: Ms
    updated_at: Ms
    attempt: int
    number: int
    losses: int
    version: int
    cut: int
    followed: bool
    session_id: str | None
    workflow_id: str | None
    started_at: Ms | None
    completed_at: Ms | None
    worker: str | None
    rest: Rest


_decode_rest: Final = msgspec.msgpack.Decoder(Rest).decode
_decode_both: Final = msgspec.msgpack.Decoder(tuple[Rest, Ended]).decode


def decode_row(raw: bytes) -> Row:
    """`decode` of lib.lua."""
    head, middle, tail = raw.split(b"\x1e", 2)
    (
        state, mark, type_, queue, lane, followed, session_id, workflow_id, attempt, number,
        losses, version, created_at, run_at, updated_at, rank, priority, started_at, completed_at,
        _fence, worker, _last_fence,
    ) = head.decode().split("\x1f")  # fmt: skip
    task_id, seq, cut, _cursors = middle.decode().split("\x1f")
    if mark == "e":
        rest, ended = _decode_both(b"\x92" + tail)  # as an array of both
        rest = structs.replace(rest, result=ended.result, attempts=ended.attempts)
    else:
        rest = _decode_rest(tail)
    return Row(
        id=task_id,
        type=type_,
        queue=queue,
        lane=lane,  # type: ignore[arg-type]
        state=state,  # type: ignore[arg-type]
        seq=int(seq),
        priority=int(priority),
        rank=int(rank),
        run_at=int(run_at),
        created_at=int(created_at),
        updated_at=int(updated_at),
        attempt=int(attempt),
        number=int(number),
        losses=int(losses),
        version=int(version),
        cut=int(cut),
        followed=followed == "1",
        session_id=session_id or None,
        workflow_id=workflow_id or None,
        started_at=int(started_at) if started_at else None,
        completed_at=int(completed_at) if completed_at else None,
        worker=worker or None,
        rest=rest,
    )


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
    rest = row.rest
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
        max_attempts=rest.max_attempts,
        losses=row.losses,
        max_losses=rest.max_losses,
        priority=row.priority,
        timeout_ms=rest.timeout_ms,
        run_at=row.run_at,
        created_at=row.created_at,
        limits=rest.limits,
        session_id=row.session_id,
        user_id=rest.user_id,
        parent_id=rest.parent_id,
        workflow_id=row.workflow_id,
        unique_key=rest.unique_key,
        meta=body[row.cut :],
        steps=tuple(Step(key, value) for key, value, _ in steps_of(found[2])) if found[2] else (),
        inbox=signals_of(found[3]) if found[3] else (),
    )


def task_of(row: Row, body: bytes, after: tuple[str, ...], lease_until: Ms | None, now: Ms) -> Task:
    rest = row.rest
    return Task(
        id=row.id,
        type=row.type,
        queue=row.queue,
        lane=row.lane,
        priority=row.priority,
        state=row.state,
        parked=rest.parked,
        status=status_of(row.state, rest.parked, row.lane, lease_until, now),
        payload=body[: row.cut],
        result=_bytes(rest.result),
        error=_bytes(rest.error),
        attempts=f"[{','.join(map(_attempt, rest.attempts))}]".encode(),
        progress=_bytes(rest.progress),
        attempt=row.attempt,
        number=row.number,
        max_attempts=rest.max_attempts,
        losses=row.losses,
        max_losses=rest.max_losses,
        timeout_ms=rest.timeout_ms,
        overdue_after_ms=rest.overdue_after_ms,
        overdue_at=rest.overdue_at,
        max_age_ms=rest.max_age_ms,
        run_at=row.run_at,
        created_at=row.created_at,
        started_at=row.started_at,
        updated_at=row.updated_at,
        completed_at=row.completed_at,
        worker=row.worker,
        lease_until=lease_until,
        limits=rest.limits,
        reason=rest.reason,
        fingerprint=rest.fingerprint,
        session_id=row.session_id,
        user_id=rest.user_id,
        tags=rest.tags,
        parent_id=rest.parent_id,
        workflow_id=row.workflow_id,
        unique_key=rest.unique_key,
        after=after,
        needs=rest.needs,
        awaits=rest.awaits,
        version=row.version,
        followed=row.followed,
        meta=body[row.cut :],
    )


def _attempt(told: str) -> str:
    """An attempt as JSON, from the text of `history` in ends.lua; a loaded one is JSON already."""
    if told.startswith("{"):
        return told
    number, worker, lane, started_at, ended_at, outcome, error = told.split("\x1f", 6)
    return (
        f'{{"number":{number},"worker":{json(worker).decode()},"lane":"{lane}",'
        f'"started_at":{started_at},"ended_at":{ended_at},"outcome":"{outcome}"'
        + (f',"error":{error}}}' if error else "}")
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
