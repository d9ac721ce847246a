"""Arguments of scripts: values of the protocol as Lua's MessagePack can read them.

It knows no binary strings and counts in doubles, which end at 2**53: documents travel as text, and
fences as decimal text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from operator import attrgetter
from typing import Any, Final

import msgspec

from outlast.core.errors import BadInput
from outlast.core.model import NewTask, Outcome, Turn
from outlast.engines._shared import in_any_case

json: Final = msgspec.json.Encoder().encode
pack: Final = msgspec.msgpack.Encoder().encode

# What a record without them means: DEFAULTS in lib.lua, never to be changed.
MAX_ATTEMPTS: Final = 4
MAX_LOSSES: Final = 3
NEEDS: Final = "success"
INLINE_BODY: Final = 400
"""Bytes of payload and meta that stand in the record itself, as in lib.lua."""


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

    def tasks_in(self, tasks: Sequence[NewTask]) -> list[object]:
        """In a row, three items each: id, sort, and what is its own. As enqueue.lua reads them."""
        row: list[object] = []
        for task in tasks:
            row += (task.id, self._place(_sort_of(task)), _part(task))
        return row

    def _place(self, sort: tuple[object, ...]) -> int:
        place = self._places.get(sort)
        if place is None:
            named("type", str(sort[0]))
            named("queue", str(sort[1]))
            place = self._places[sort] = len(self._places) + 1
        return place

    def sorts_in(self) -> list[tuple[object, ...]]:
        """As the tasks that were packed so far name them."""
        return [(*sort[:5], _rest_of(sort[5:])) for sort in self._places]


def _rest_of(values: tuple[object, ...]) -> dict[str, object]:
    usual = (MAX_ATTEMPTS, MAX_LOSSES, NEEDS, None)
    names = ("max_attempts", "max_losses", "needs", "timeout_ms")
    return {n: v for n, v, u in zip(names, values, usual, strict=True) if v != u}


_OWN: Final = (
    "session_id", "workflow_id", "run_at", "after", "unique_for_ms", "digest", "delay_ms",
)  # fmt: skip
_REST: Final = (
    "overdue_after_ms", "max_age_ms", "limits", "unique_key", "hold", "user_id", "parent_id",
    "tags", "attrs", "fair_key",
)  # fmt: skip
_sort_of: Final = attrgetter(
    "type", "queue", "lane", "followed", "priority", "max_attempts", "max_losses", "needs",
    "timeout_ms",
)  # fmt: skip
_own_of: Final = attrgetter(*_OWN, *_REST)
_NOTHING: Final = _own_of(NewTask(id="", type=""))


def _part(task: NewTask) -> object:
    """The part of its record that is its own, as `decode` in lib.lua reads it; with more to say:
    that, the body if it is apart (else False), and a map."""
    task_id = named("id", task.id)
    document = task.payload + task.meta
    body = text(document)
    apart = len(document) > INLINE_BODY
    part = f"{_sizes(len(task.payload), len(document))}{task_id}\x1f{'' if apart else body}"
    own = _own_of(task)
    if own == _NOTHING:
        return [part, body] if apart else part
    named("session_id", task.session_id)
    named("workflow_id", task.workflow_id)
    return [part, body if apart else False, _told(own)]


@lru_cache(1024)
def _sizes(payload: int, body: int) -> str:
    return f"{payload:08d}{body:05d}" if body <= INLINE_BODY else f"{payload:08d}apart"


def _told(values: tuple[object, ...]) -> dict[str, object]:
    """What is there of `_own_of`, the fields of the record's map apart."""
    there = [v is not None and v != () for v in values]
    own = dict(compress(zip(_OWN, values, strict=False), there))
    rest = dict(compress(zip(_REST, values[len(_OWN) :], strict=True), there[len(_OWN) :]))
    return {**own, "rest": rest} if rest else own


def turn_in(turn: Turn) -> dict[str, object]:
    return {
        "token": str(turn.token),
        "worker": named("worker", turn.worker),
        "lease_ms": turn.lease_ms,
        "wants": [(want.queue, want.lane, want.n) for want in turn.wants],
        "room": turn.room,
        "outcomes": [x for o in turn.outcomes for x in (o.id, str(o.fence), _said(o))],
        "info": None if turn.info is None else json(turn.info).decode(),
        "pressure": turn.pressure,
        "leaving": turn.leaving,
    }


def _said(outcome: Outcome) -> object:
    """What an outcome says: a map; of a plain success the result alone, False if there is none."""
    if _success(outcome) == _SUCCESS:
        return False if outcome.result is None else text(outcome.result)
    said: dict[str, object] = {"state": outcome.state, "verdict": outcome.verdict}
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
        said["spawn"] = {"tasks": tasks, "sorts": sorts.sorts_in(), "anyway": in_any_case(outcome)}
    return said


_OPTIONAL: Final = (
    "lane", "delay_ms", "park", "after", "refund", "fingerprint", "reason", "timeout_ms",
    "charges", "pauses",
)  # fmt: skip
_DOCUMENTS: Final = ("result", "error", "progress")
_success: Final = attrgetter(
    "state", "verdict", "error", "progress", "steps", "events", "spawn", *_OPTIONAL
)
_SUCCESS: Final = _success(Outcome(id="", fence=0, state="completed"))


def in_short(error: bytes) -> str:
    """What the history and the log keep of an error."""
    told = msgspec.json.decode(error)
    return json({name: told.get(name) for name in ("code", "type", "message")}).decode()
