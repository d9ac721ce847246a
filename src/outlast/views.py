"""Records as HTTP, the command line and the dashboard show them: snake_case, times in ISO 8601.

Payloads, results and errors are JSON already and pass through as they are (`msgspec.Raw`), so a
view is for `to_json`, not for looking into. Durations are in seconds. What is secret is `***`, by
the redactor of the app; only who runs a task gets it without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec import Raw

from outlast.access import Key
from outlast.core.limits import Limit
from outlast.core.model import Event, GaugeView, Json, Record, Task, WorkerView
from outlast.core.redact import NOTHING, REDACTOR, Redactor
from outlast.core.secret import Path
from outlast.core.states import LAST, Ms
from outlast.origin import origin_id

View = dict[str, object]

to_json = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_1: Final[Ms] = -62_135_596_800_000
_NULL: Final = Raw(b"null")


def iso(at: Ms | None) -> str | None:
    """A moment in UTC with milliseconds: `2026-11-16T09:30:00.000Z`. One that no calendar has, such
    as a century after the last one, is shown as the nearest: one row must not hide the others."""
    if at is None:
        return None
    moment = _EPOCH + timedelta(milliseconds=min(max(at, _YEAR_1), LAST))
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def task_view(task: Task, redactor: Redactor | None = REDACTOR) -> View:
    """The record of a task."""
    hidden = NOTHING if redactor is None else redactor.hidden(task)
    return {
        "id": task.id,
        "type": task.type,
        "queue": task.queue,
        "lane": task.lane,
        "priority": task.priority,
        "state": task.state,
        "status": task.status,
        "parked": task.parked,
        "payload": _raw(task.payload, redactor, hidden.payload),
        "result": _raw(task.result, redactor, hidden.result),
        "error": _error(task.error, redactor),
        "attempts": _attempts(task.attempts),
        "progress": _progress(task.progress, redactor),
        "attempt": task.attempt,
        "max_attempts": task.max_attempts,
        "losses": task.losses,
        "max_losses": task.max_losses,
        "timeout": seconds(task.timeout_ms),
        "overdue_after": seconds(task.overdue_after_ms),
        "overdue_at": iso(task.overdue_at),
        "max_age": seconds(task.max_age_ms),
        "run_at": iso(task.run_at),
        "retry_at": iso(task.retry_at),
        "created_at": iso(task.created_at),
        "started_at": iso(task.started_at),
        "updated_at": iso(task.updated_at),
        "completed_at": iso(task.completed_at),
        "worker": task.worker,
        "lease_until": iso(task.lease_until),
        "limits": [key for key, _ in task.limits],
        "reason": task.reason,
        "fingerprint": task.fingerprint,
        "session_id": task.session_id,
        "user_id": task.user_id,
        "tags": task.tags,
        "parent_id": task.parent_id,
        "workflow_id": task.workflow_id,
        "origin_id": origin_id(task.meta),
        "after": task.after,
        "unique_key": task.unique_key,
        "version": task.version,
    }


def event_view(event: Event, redactor: Redactor = REDACTOR) -> View:
    """The `data` of an SSE frame: where it belongs, and the event's own fields."""
    own = _told(_decode(redactor.shown(event.data)))
    head: View = {"task_id": event.task_id, "attempt": event.attempt, "at": iso(event.at)}
    # An event's own fields come first: nobody's payload may pose as another task's.
    return {**own, **head} if isinstance(own, dict) else {**head, "data": own}


def log_view(event: Event, redactor: Redactor = REDACTOR) -> View:
    """An event in a list or in the multiplexed stream, with what tells tasks apart."""
    return {
        "cursor": event.cursor,
        "kind": event.kind,
        "type": event.type,
        "queue": event.queue,
        "session_id": event.session_id,
        "workflow_id": event.workflow_id,
        **event_view(event, redactor),
    }


def worker_view(worker: WorkerView) -> View:
    info = worker.info
    return {
        "id": worker.id,
        "host": info.host,
        "pid": info.pid,
        "version": info.version,
        "queues": info.queues,
        "types": info.types,
        "slots": info.slots,
        "running": worker.running,
        "alive": worker.alive,
        "started_at": iso(info.started_at) if info.started_at else None,
        "seen_at": iso(worker.seen_at),
        "lease_until": iso(worker.lease_until),
    }


def limit_view(limit: Limit) -> View:
    """A definition, in the words of `PUT /limits/{key}`."""
    trip = limit.trip
    return {
        "key": limit.key,
        "slots": limit.slots,
        "rate": limit.rate,
        "trip": trip
        and {
            "rate": trip.permille / 1000,
            "volume": trip.volume,
            "window": trip.window_ms / 1000,
            "open": trip.open_ms / 1000,
        },
    }


def gauge_view(gauge: GaugeView) -> View:
    limit = None if gauge.limit is None else Limit.from_json(_decode(gauge.limit))
    return {
        "key": gauge.key,
        "limit": None if limit is None else limit_view(limit),
        "used": gauge.used,
        "waiting": gauge.waiting,
        "circuit": gauge.circuit,
        "open_until": iso(gauge.open_until),
        "paused_until": iso(gauge.paused_until),
        "probe": gauge.probe,
        "holders": gauge.holders,
    }


def record_view(record: Record) -> View:
    return {
        "kind": record.kind,
        "key": record.key,
        "value": Raw(record.value),
        "version": record.version,
        "expires_at": iso(record.expires_at),
    }


def key_view(key: Key) -> View:
    """An API key, without the key."""
    return {
        "id": key.id,
        "name": key.name,
        "role": key.role,
        "queues": key.queues,
        "types": key.types,
        "read_only": key.read_only,
        "rate": key.rate,
        "quota": key.quota,
        "created_at": iso(key.created_at),
        "expires_at": iso(key.expires_at),
    }


def seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _raw(data: Json | None, redactor: Redactor | None, paths: Sequence[Path] = ()) -> Raw:
    if data is None:
        return _NULL
    return Raw(data if redactor is None else redactor.shown(data, paths))


def _error(data: Json | None, redactor: Redactor | None) -> object:
    shown = _raw(data, redactor)
    if data is None or redactor is None or redactor.traces:
        return shown
    return {**_decode(shown), "traceback": None}


def _attempts(data: Json) -> list[View]:
    if data == b"[]":
        return []
    return [
        {
            **entry,
            "started_at": iso(entry.get("started_at")),
            "ended_at": iso(entry.get("ended_at")),
            "error": entry.get("error"),
        }
        for entry in _decode(data)
    ]


def _progress(data: Json | None, redactor: Redactor | None) -> View | None:
    if data is None:
        return None
    return _with_iso(_decode(_raw(data, redactor)), "updated_at")


def _told(own: object) -> object:
    """An event's own fields, its times as everywhere."""
    if not isinstance(own, dict):
        return own
    progress = own.get("progress")
    if isinstance(progress, dict):
        own["progress"] = _with_iso(progress, "updated_at")
    return _with_iso(own, "run_at")


def _with_iso(told: View, name: str) -> View:
    at = told.get(name)
    return {**told, name: iso(at)} if isinstance(at, int) else told
