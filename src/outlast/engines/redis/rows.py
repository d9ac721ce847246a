"""Records as the scripts keep them, and what becomes of them on this side: tasks and leases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from outlast.core.model import Lease, SignalIn, Step, Task
from outlast.core.states import Lane, Ms, State, status_of
from outlast.engines.redis.wire import MAX_ATTEMPTS, MAX_LOSSES, NEEDS, json


class Rest(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The map in a record. What is absent is as usual, None, false or empty."""

    max_attempts: int = MAX_ATTEMPTS
    max_losses: int = MAX_LOSSES
    needs: str = NEEDS
    awaits: int = 0
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
    body: bytes | None
    """Payload and meta; None: they have a key of their own."""
    rest: Rest


class Head(Struct, frozen=True):
    """What tasks that came, started or ended together have in common."""

    ended: bool
    """A second map follows the cursors."""
    state: State
    type: str
    queue: str
    lane: Lane
    followed: bool
    session_id: str | None
    workflow_id: str | None
    attempt: int
    number: int
    losses: int
    version: int
    created_at: Ms
    run_at: Ms
    updated_at: Ms
    rank: int
    priority: int
    started_at: Ms | None
    completed_at: Ms | None
    worker: str | None


_decode_rest: Final = msgspec.msgpack.Decoder(Rest).decode
_decode_ended: Final = msgspec.msgpack.Decoder(Ended).decode


@lru_cache(1024)
def _head(raw: bytes) -> Head:
    (
        mark, state, type_, queue, lane, followed, session_id, workflow_id, attempt, number,
        losses, version, created_at, run_at, updated_at, rank, priority, started_at, completed_at,
        _fence, worker, _last_fence,
    ) = raw.decode().split("\x1f")  # fmt: skip
    run_at = run_at or created_at
    updated_at = updated_at or completed_at or started_at or created_at
    return Head(
        ended=mark == "e",
        state=state,  # type: ignore[arg-type]
        type=type_,
        queue=queue,
        lane=lane,  # type: ignore[arg-type]
        followed=followed == "1",
        session_id=session_id or None,
        workflow_id=workflow_id or None,
        attempt=int(attempt),
        number=int(number),
        losses=int(losses),
        version=int(version),
        created_at=int(created_at),
        run_at=int(run_at),
        updated_at=int(updated_at),
        rank=int(rank or run_at),
        priority=int(priority),
        started_at=int(started_at) if started_at else None,
        completed_at=int(completed_at) if completed_at else None,
        worker=worker or None,
    )


def _parts(raw: bytes) -> tuple[bytes, bytes, str, int, bytes | None, bytes]:
    """Head, map, id, length of the payload, body, cursors (of an ended task also a second map),
    not yet decoded: `decode` of lib.lua."""
    at = raw.index(b"\x1e")
    id_end = raw.index(b"\x1f", at + 38)
    size = raw[at + 33 : at + 38]
    map_at = id_end + 1 if size == b"apart" else id_end + 1 + int(size)
    log_at = map_at + int(raw[at + 1 : at + 9])
    return (
        raw[:at],
        raw[map_at:log_at],
        raw[at + 38 : id_end].decode(),
        int(raw[at + 25 : at + 33]),
        None if size == b"apart" else raw[id_end + 1 : map_at],
        raw[log_at:],
    )


def decode_row(raw: bytes) -> Row:
    common, map_, task_id, cut, body, after = _parts(raw)
    like = _alike(common, map_)
    rest = like.rest
    if _head(common).ended:
        ended = _decode_ended(after.partition(b"\x1e")[2])
        rest = structs.replace(rest, result=ended.result, attempts=ended.attempts)
    seq = int(raw[len(common) + 9 : len(common) + 25])
    return structs.replace(like, id=task_id, seq=seq, cut=cut, body=body, rest=rest)


@lru_cache(1024)
def _alike(common: bytes, map_: bytes) -> Row:
    """What tasks that came, started or ended together have in common, never to be changed."""
    shared = {name: getattr(_head(common), name) for name in _SHARED}
    return Row(id="", seq=0, cut=0, body=None, rest=_decode_rest(map_), **shared)


_SHARED: Final = tuple(set(Row.__struct_fields__).intersection(Head.__struct_fields__))

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


def leases_of(fence: int, found: Sequence[Any]) -> Iterator[Lease]:
    """From records, or {record, body, steps, inbox} of tasks with more than that. Tasks that came
    together differ in a few fields only: the others are read once."""
    alike: dict[tuple[bytes, bytes], Lease] = {}
    for each in found:
        raw, apart, steps, inbox = (each, b"", (), ()) if isinstance(each, bytes) else each
        common, map_, task_id, cut, body, _ = _parts(raw)
        like = alike.get((common, map_))
        if like is None:
            like = alike[common, map_] = _lease(fence, _head(common), map_)
        if body is None:
            body = apart
        lease = structs.replace(like, id=task_id, payload=body[:cut], meta=body[cut:])
        if steps or inbox:
            known = tuple(Step(key, value) for key, value, _ in steps_of(steps))
            lease = structs.replace(lease, steps=known, inbox=signals_of(inbox))
        yield lease


def _lease(fence: int, head: Head, map_: bytes) -> Lease:
    """Without what is a task's own."""
    rest = _decode_rest(map_)
    return Lease(
        id="",
        fence=fence,
        type=head.type,
        queue=head.queue,
        lane=head.lane,
        payload=b"",
        attempt=head.attempt,
        number=head.number,
        max_attempts=rest.max_attempts,
        losses=head.losses,
        max_losses=rest.max_losses,
        priority=head.priority,
        timeout_ms=rest.timeout_ms,
        run_at=head.run_at,
        created_at=head.created_at,
        limits=rest.limits,
        session_id=head.session_id,
        user_id=rest.user_id,
        parent_id=rest.parent_id,
        workflow_id=head.workflow_id,
        unique_key=rest.unique_key,
    )


def task_of(row: Row, after: tuple[str, ...], lease_until: Ms | None, now: Ms) -> Task:
    """Of a record with its body."""
    rest, body = row.rest, row.body or b""
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
