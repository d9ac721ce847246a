"""Where a task stands: the fields that repeat others so that two indexes answer every question.

`place` and `order`: the line it stands in, and its place there. `labels`: what it can be found by,
and its alarms, moments at which something has to happen to it; with the label of all (`ANY`) they
are found in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import msgspec

from outlast.core.states import Ms
from outlast.engines.mongo.schema import Document

PLACED: Final = {"state", "parked", "lane", "priority", "rank", "worker", "cancel", "completed_at"}
"""Fields that place and order are made of."""
LABELED: Final = ("type", "session_id", "user_id", "parent_id", "workflow_id")
LABELS: Final = {"attrs", "wake_at", "expires_at", "overdue_at", "overdue", "unsettled"}
"""Fields that labels are made of, as far as they change; and state, for one that expires."""

ANY: Final = ""
"""The label that every task has."""

_encode: Final = msgspec.json.Encoder().encode


def ready_in(queue: str, lane: str) -> str:
    return f"ready\0{queue}\0{lane}"


def waiting_in(key: str, queue: str, lane: str) -> str:
    """In line for a limit."""
    return f"limit:{key}\0{queue}\0{lane}"


def run_by(worker: str) -> list[str]:
    return [f"run\0{worker}", stopping(worker)]


def stopping(worker: str) -> str:
    """Run by a worker that is to stop it."""
    return f"run!\0{worker}"


READY: Final[Document] = {"place": {"$gte": "ready\0", "$lt": "ready\1"}}
THROTTLED: Final[Document] = {"place": {"$gte": "limit:", "$lt": "limit;"}}
SIGNALLED: Final[Document] = {"place": {"$gte": "signal:", "$lt": "signal;"}}
RUNNING: Final[Document] = {"place": {"$gte": "run\0", "$lt": "run~"}}


def waiting_for(key: str) -> Document:
    """Whoever is in line for a limit, in whatever lane."""
    return {"place": {"$gte": f"limit:{key}\0", "$lt": f"limit:{key}\1"}}


def place_of(task: Any) -> str:
    if task.state == "running":
        return run_by(task.worker)[task.cancel is not None]
    if task.state != "pending":
        return str(task.state)
    if task.parked is None:
        return ready_in(task.queue, task.lane)
    if task.parked.startswith("limit:"):
        return waiting_in(task.parked.removeprefix("limit:"), task.queue, task.lane)
    return str(task.parked)


def order_of(task: Any) -> str:
    if task.state == "running":
        return ""
    return claim_order(task) if task.state == "pending" else _moment(task.completed_at or 0)


def claim_order(task: Any) -> str:
    """Fixed width, so that texts compare as the numbers do."""
    return f"{max(task.priority, 0):05d}{_moment(task.rank)}{task.id}"


def _moment(at: Ms) -> str:
    return f"{max(at, 0):016d}"


def ended_before(state: str, at: Ms) -> Document:
    return {"place": state, "order": {"$lt": _moment(at)}}


def label(name: str, value: str) -> str:
    """As JSON: `["tag","red"]`, `["attr.city","Bern"]`, `["type","work"]`."""
    return _encode((name, value)).decode()


def labels_of(task: Any) -> tuple[str, ...]:
    """What it can be found by, and its alarms."""
    named = _names(tuple(getattr(task, name) for name in LABELED), task.tags, task.attrs)
    alarms = _alarms(task)
    return (*named, *alarms) if alarms else named


@lru_cache(maxsize=1024)  # tasks of a batch are mostly alike
def _names(
    values: tuple[str | None, ...], tags: tuple[str, ...], attrs: tuple[tuple[str, str], ...]
) -> tuple[str, ...]:
    pairs = [*zip(LABELED, values, strict=True), *(("tag", tag) for tag in tags)]
    pairs += [(f"attr.{name}", value) for name, value in attrs]
    return tuple(dict.fromkeys([ANY, *(label(n, v) for n, v in pairs if v is not None)]))


def _alarms(task: Any) -> list[str]:
    alarms = []
    if task.wake_at is not None:
        alarms.append(f"wake {_moment(task.wake_at)}")
    if task.expires_at is not None and task.state == "pending":
        alarms.append(f"expires {_moment(task.expires_at)}")
    if task.overdue_at is not None and not task.overdue:
        alarms.append(f"overdue {_moment(task.overdue_at)}")
    if task.unsettled:
        alarms.append("unsettled")
    return alarms


def alarmed(name: str, until: Ms | None = None) -> Document:
    """Tasks with an alarm, up to a moment. By the hint `lookup` the earliest come first."""
    last = f"{name}~" if until is None else f"{name} {_moment(until)}"
    return {"labels": {"$elemMatch": {"$gte": name, "$lte": last}}}


def stands(task: Any) -> Document:
    """All three, for a new document."""
    return {"place": place_of(task), "order": order_of(task), "labels": labels_of(task)}


def stands_now(task: Any, changed: Iterable[str]) -> Document:
    """What of it a change of some fields changes."""
    fields = set(changed)
    made: Document = {}
    if not fields.isdisjoint(PLACED):
        made |= {"place": place_of(task), "order": order_of(task)}
    expires = task.expires_at is not None and "state" in fields
    if expires or not fields.isdisjoint(LABELS):
        made["labels"] = labels_of(task)
    return made
