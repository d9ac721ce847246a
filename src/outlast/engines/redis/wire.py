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


def named(field: str, name: str | None) -> str | None:
    """A name that stands in the head of a record, where these two divide."""
    if name is not None and ("\x1e" in name or "\x1f" in name):
        raise BadInput(f"{field} must not contain the characters 0x1E and 0x1F", field=field)
    return name


class Sorts:
    """What tasks of one call have in common travels once; each names its sort."""

    def __init__(self) -> None:
        self._places: dict[tuple[object, ...], int] = {}

    def tasks_in(self, tasks: Sequence[NewTask]) -> list[list[object]]:
        return [self._task_in(task) for task in tasks]

    def _task_in(self, task: NewTask) -> list[object]:
        # Written out: this is the enqueue's hot path.
        sort = (
            task.type, task.queue, task.lane, task.followed, task.priority, task.max_attempts,
            task.max_losses, task.needs, task.timeout_ms,
        )  # fmt: skip
        if sort not in self._places:
            named("type", task.type)
            named("queue", task.queue)
        place = self._places.setdefault(sort, len(self._places) + 1)
        named("id", task.id)
        named("session_id", task.session_id)
        named("workflow_id", task.workflow_id)
        body = text(task.payload + task.meta)
        came: list[object] = [task.id, place, len(task.payload), body]
        own = {n: value for n in _OWN if (value := getattr(task, n)) is not None and value != ()}
        if task.delay_ms:
            own["delay_ms"] = task.delay_ms
        rest = {n: value for n in _REST if (value := getattr(task, n)) is not None and value != ()}
        if rest:
            own["rest"] = rest
        if own:
            came.append(own)
        return came

    def sorts_in(self) -> list[tuple[object, ...]]:
        """As the tasks that were packed so far name them."""
        return [(*sort[:5], _rest_of(*sort[5:])) for sort in self._places]


def _rest_of(attempts: object, losses: object, needs: object, timeout_ms: object) -> object:
    rest = {"max_attempts": attempts, "max_losses": losses, "needs": needs, "awaits": 0}
    return rest if timeout_ms is None else {**rest, "timeout_ms": timeout_ms}


_OWN: Final = ("session_id", "workflow_id", "run_at", "after", "unique_for_ms", "digest")
_REST: Final = (
    "overdue_after_ms", "max_age_ms", "limits", "unique_key", "hold", "user_id", "parent_id",
    "tags", "attrs", "fair_key",
)  # fmt: skip


def turn_in(turn: Turn) -> dict[str, object]:
    return {
        "token": str(turn.token),
        "worker": named("worker", turn.worker),
        "lease_ms": turn.lease_ms,
        "wants": [(want.queue, want.lane, want.n) for want in turn.wants],
        "room": turn.room,
        "outcomes": [_outcome_in(outcome) for outcome in turn.outcomes],
        "info": None if turn.info is None else json(turn.info).decode(),
        "pressure": turn.pressure,
        "leaving": turn.leaving,
    }


def _outcome_in(outcome: Outcome) -> list[object]:
    """[id, fence, state, verdict], and what else it says: a map, or the result alone."""
    said: dict[str, object] = {}
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
        sorts = Sorts()
        tasks = sorts.tasks_in(outcome.spawn)
        said["spawn"] = {"tasks": tasks, "sorts": sorts.sorts_in()}
    plainly: list[object] = [outcome.id, str(outcome.fence), outcome.state, outcome.verdict]
    if not said:
        return plainly
    return [*plainly, said["result"] if said.keys() == {"result"} else said]


_OPTIONAL: Final = (
    "lane", "delay_ms", "park", "after", "refund", "fingerprint", "reason", "timeout_ms",
    "charges", "pauses",
)  # fmt: skip
_DOCUMENTS: Final = ("result", "error", "progress")


def in_short(error: bytes) -> str:
    """What the history and the log keep of an error."""
    told = msgspec.json.decode(error)
    return json({name: told.get(name) for name in ("code", "type", "message")}).decode()
