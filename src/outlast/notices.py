"""Notifications: what an end user is told about the tasks of a session.

They are no second store: a notification is a `done`, `overdue` or `question` event of the session
that nobody has acknowledged. So none is lost when a server dies, and one that is pushed again has
the same id. What was acknowledged is one record per session: everything up to a cursor, and single
ids behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal
from uuid import UUID, uuid5

import msgspec
from msgspec import Struct

from outlast.core.errors import BadInput
from outlast.core.model import PRIORITIES, Cursor, Event, EventQuery, Put, Task, TaskQuery
from outlast.core.redact import REDACTOR
from outlast.core.secret import MASK
from outlast.core.states import FINAL, Ms
from outlast.engine import Engine

KINDS: Final = ("done", "overdue", "question", "escalation")
PAGE: Final = 200
MOST: Final = 1_000
"""Acknowledgements that may lie ahead of the first notification that has none."""
OWN: Final = "outlast."
WORKFLOW: Final = "outlast.workflow"
LONGEST: Final = 1_000
"""Characters of a question that a notification has; `GET /approvals` has all of it."""
LONGER_MS: Final = 30 * 86_400_000
"""Acknowledgements outlive what they are about by this: a task may be overdue long before it is
over, and what is old goes a piece at a time."""
_SPACE: Final = UUID("8a4b1f0e-5c1d-4c55-9f0a-0b6f2f6f7a11")

NoticeType = Literal[
    "task_completed",
    "task_failed",
    "task_cancelled",
    "task_overdue",
    "task_question",
    "workflow_escalated",
]
Action = Literal["retrieve_result", "show_error", "wait", "answer", "none"]
Named = Literal["critical", "high", "normal", "low"]


class Notice(Struct, frozen=True, kw_only=True):
    """One notification. It is what goes over the wire, names and all."""

    notification_id: str
    type: NoticeType
    task_id: str
    task_type: str
    message: str
    action: Action
    timestamp: Ms
    priority: Named


class Preferences(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a session wants to be told."""

    types: tuple[NoticeType, ...] = (
        "task_completed", "task_failed", "task_overdue", "task_question", "workflow_escalated",
    )  # fmt: skip
    min_priority: Named = "low"
    push: bool = True
    """Over an open connection, at once; else only when asked for."""

    def want(self, notice: Notice) -> bool:
        urgent = PRIORITIES[notice.priority] <= PRIORITIES[self.min_priority]
        return urgent and notice.type in self.types


class Pending(Struct, frozen=True):
    """Notifications that wait to be acknowledged, oldest first; `more` when there are others,
    which come behind `next`."""

    items: tuple[Notice, ...]
    more: bool
    next: Cursor | None


class _Acked(Struct, frozen=True):
    """Everything up to `upto`, and these beyond it."""

    upto: Cursor | None = None
    ids: tuple[str, ...] = ()


async def pending(
    engine: Engine, session_id: str, limit: int = 50, after: Cursor | None = None
) -> Pending:
    """What the session has not acknowledged yet, as far as its preferences want it; from the
    oldest on, or behind a cursor."""
    acked, _ = await _acked(engine, session_id)
    wanted = await preferences(engine, session_id)
    found: list[tuple[Notice, Cursor]] = []
    start = after or acked.upto
    query = EventQuery(session_id=session_id, kinds=KINDS, after=start, limit=PAGE)
    while len(found) <= limit:
        page = await engine.events(query)
        if not page.items:
            break
        shown = [event for event in page.items if not _is_own(event)]
        fresh = [event for event in shown if notice_id(event) not in acked.ids]
        told = zip(await notices(engine, fresh), fresh, strict=True)
        found += [(notice, event.cursor) for notice, event in told if wanted.want(notice)]
        query = msgspec.structs.replace(query, after=page.next)
    more = len(found) > limit
    items = tuple(notice for notice, _ in found[:limit])
    return Pending(items, more, found[limit - 1][1] if more else query.after)


async def acknowledge(engine: Engine, session_id: str, ids: Sequence[str]) -> list[str]:
    """Tell that these have arrived; which of them had not been acknowledged before."""
    while True:
        acked, version = await _acked(engine, session_id)
        told = set(acked.ids) | set(ids)
        known: set[str] = set()
        upto, gap = acked.upto, False
        query = EventQuery(session_id=session_id, kinds=KINDS, after=acked.upto, limit=PAGE)
        while (page := await engine.events(query)).items:
            for event in page.items:
                id = notice_id(event)
                known.add(id)
                gap = gap or not (id in told or _is_own(event))
                if not gap:
                    upto = event.cursor
                    told.discard(id)
            if gap and told <= known:
                break
            query = msgspec.structs.replace(query, after=page.next)
        new = [id for id in dict.fromkeys(ids) if id in known and id not in acked.ids]
        left = tuple(sorted(told & known))
        if len(left) > MOST:
            raise BadInput(
                f"More than {MOST} notifications were acknowledged, and older ones were not:"
                " acknowledge those first.",
                field="ids",
            )
        value = msgspec.json.encode(_Acked(upto, left))
        ttl_ms = await _kept_ms(engine)
        put = Put(kind="notices", key=session_id, value=value, expect=version, ttl_ms=ttl_ms)
        [written] = await engine.put([put])
        if written is not None:
            return new


async def preferences(engine: Engine, session_id: str) -> Preferences:
    found = await engine.get("preferences", [session_id])
    return msgspec.json.decode(found[0].value, type=Preferences) if found else Preferences()


async def set_preferences(engine: Engine, session_id: str, wanted: Preferences) -> None:
    value = msgspec.json.encode(wanted)
    await engine.put([Put(kind="preferences", key=session_id, value=value)])


def notice_id(event: Event) -> str:
    """The same for the same end of the same task, whoever asks and however often."""
    return str(uuid5(_SPACE, f"{event.task_id} {event.kind} {event.attempt} {event.at}"))


async def notices(engine: Engine, events: Sequence[Event]) -> list[Notice]:
    """Events of a session in the words of an end user."""
    ids = tuple(dict.fromkeys(event.task_id for event in events if event.task_id is not None))
    tasks: dict[str, Task] = {}
    if ids:
        page = await engine.tasks(TaskQuery.of(id=ids, limit=len(ids)))
        tasks = {task.id: task for task in page.items}
    return [_notice(event, tasks.get(event.task_id or "")) for event in events]


def _is_own(event: Event) -> bool:
    """Is it the end of work of Outlast's own, of which people know nothing? They know workflows."""
    own = (event.type or "").startswith(OWN) and event.type != WORKFLOW
    return own and event.kind in ("done", "overdue")


def _notice(event: Event, task: Task | None) -> Notice:
    told: Mapping[str, object] = msgspec.json.decode(REDACTOR.shown(event.data))
    what = str(told.get("status", "completed")) if event.kind == "done" else event.kind
    kind, action, words = _WORDS[what]
    name = event.type or "task"
    if what == "escalation":
        name, said = str(told.get("name", MASK)), str(told.get("notify") or told.get("rule", MASK))
    elif task is not None and task.type == WORKFLOW:
        name, said = str(msgspec.json.decode(task.payload).get("name", MASK)), ""
    else:
        said = str(told.get("question", ""))
    return Notice(
        notification_id=notice_id(event),
        type=kind,
        task_id=event.task_id or "",
        task_type=name,
        message=words.format(name, said[:LONGEST]),
        action=action,
        timestamp=event.at,
        priority=_named(2 if task is None else task.priority),
    )


_WORDS: Final[Mapping[str, tuple[NoticeType, Action, str]]] = {
    "completed": ("task_completed", "retrieve_result", "Your {} is ready."),
    "dead": ("task_failed", "show_error", "Your {} has failed."),
    "cancelled": ("task_cancelled", "none", "Your {} was cancelled."),
    "overdue": ("task_overdue", "wait", "Your {} takes longer than expected; it is still running."),
    "question": ("task_question", "answer", "Your {} asks: {}"),
    "escalation": ("workflow_escalated", "none", "Your {}: {}"),
}


def _named(priority: int) -> Named:
    if priority <= 0:
        return "critical"
    return "high" if priority == 1 else "normal" if priority == 2 else "low"


async def _acked(engine: Engine, session_id: str) -> tuple[_Acked, int]:
    found = await engine.get("notices", [session_id])
    if not found:
        return _Acked(), 0
    return msgspec.json.decode(found[0].value, type=_Acked), found[0].version


async def _kept_ms(engine: Engine) -> Ms | None:
    """For longer than the log keeps what was acknowledged, which would be told again: for ever,
    unless the log, or the tasks in every final state, are kept for a time."""
    rules = {rule.key: msgspec.json.decode(rule.value) for rule in await engine.get("retention")}
    log, *ages = (rules.get(key, {}).get("age_ms") for key in ("log", *sorted(FINAL)))
    spans = [log, None if None in ages else max(ages)]
    return min((span + LONGER_MS for span in spans if span is not None), default=None)
