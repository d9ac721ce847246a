"""Arguments of scripts: values of the protocol as Lua's MessagePack can read them.

It knows no binary strings and counts in doubles, which end at 2**53: documents travel as text, and
fences as decimal text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from outlast.core.errors import BadInput
from outlast.core.model import NewTask, Outcome, Turn

json: Final = msgspec.json.Encoder().encode
pack: Final = msgspec.msgpack.Encoder().encode


def plain(value: Any) -> Any:
    """Any value of the protocol, for the verbs that are not hot."""
    if isinstance(value, bytes):
        return text(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, msgspec.Struct):
        fields = {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        tag = value.__struct_config__.tag
        return fields if tag is None else {"type": tag, **fields}
    return value


def text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"Documents are JSON in UTF-8; this one is not: {error}") from error


def tasks_in(tasks: Sequence[NewTask]) -> list[dict[str, object]]:
    return [_task_in(task) for task in tasks]


def _task_in(task: NewTask) -> dict[str, object]:
    # Written out: this is the enqueue's hot path. An empty list would be a table in Lua.
    return {
        "id": task.id,
        "type": task.type,
        "payload": text(task.payload),
        "meta": text(task.meta),
        "queue": task.queue,
        "lane": task.lane,
        "priority": task.priority,
        "run_at": task.run_at,
        "delay_ms": task.delay_ms,
        "max_attempts": task.max_attempts,
        "max_losses": task.max_losses,
        "timeout_ms": task.timeout_ms,
        "overdue_after_ms": task.overdue_after_ms,
        "max_age_ms": task.max_age_ms,
        "limits": task.limits or None,
        "unique_key": task.unique_key,
        "unique_for_ms": task.unique_for_ms,
        "digest": task.digest,
        "after": task.after or None,
        "needs": task.needs,
        "hold": task.hold,
        "session_id": task.session_id,
        "user_id": task.user_id,
        "parent_id": task.parent_id,
        "workflow_id": task.workflow_id,
        "tags": task.tags or None,
        "attrs": task.attrs or None,
        "fair_key": task.fair_key,
        "followed": task.followed,
    }


def turn_in(turn: Turn) -> dict[str, object]:
    return {
        "token": str(turn.token),
        "worker": turn.worker,
        "lease_ms": turn.lease_ms,
        "wants": [(want.queue, want.lane, want.n) for want in turn.wants],
        "room": turn.room,
        "outcomes": [_outcome_in(outcome) for outcome in turn.outcomes],
        "info": None if turn.info is None else json(turn.info).decode(),
        "pressure": turn.pressure,
        "leaving": turn.leaving,
    }


def _outcome_in(outcome: Outcome) -> dict[str, object]:
    """What differs from an outcome that says nothing."""
    said: dict[str, object] = {
        "id": outcome.id,
        "fence": str(outcome.fence),
        "state": outcome.state,
        "verdict": outcome.verdict,
    }
    for name in _OPTIONAL:
        value = getattr(outcome, name)
        if value:
            said[name] = value
    for name in _DOCUMENTS:
        value = getattr(outcome, name)
        if value is not None:
            said[name] = text(value)
    if outcome.error is not None:
        said["told"] = in_short(outcome.error)
    if outcome.park is not None:
        said["awaits"] = outcome.awaits
    if outcome.steps:
        said["steps"] = plain(outcome.steps)
    if outcome.events:
        said["events"] = [{"kind": e.kind, "data": text(e.data)} for e in outcome.events]
    if outcome.spawn:
        said["spawn"] = tasks_in(outcome.spawn)
    return said


_OPTIONAL: Final = (
    "lane", "delay_ms", "park", "after", "refund", "fingerprint", "reason", "timeout_ms",
    "charges", "pauses",
)  # fmt: skip
_DOCUMENTS: Final = ("result", "error", "progress")


def in_short(error: bytes) -> str:
    """What the history and the log keep of an error."""
    told = msgspec.json.decode(error)
    return json({name: told.get(name) for name in ("code", "type", "message")}).decode()
