"""Approvals: the questions that tasks ask people (`ctx.ask`), open ones listed, and answered.

An open question is no record of its own: it is a task that is parked on the signal of the answer,
and its progress says what is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

import msgspec
from msgspec.structs import replace

from outlast.app import Outlast
from outlast.core.errors import Conflict
from outlast.core.model import Json, Page, Signal, Task, TaskId, TaskQuery, Term
from outlast.core.secret import MASK
from outlast.core.states import Ms
from outlast.handle import alter
from outlast.steps import ANSWER
from outlast.stream import fetch
from outlast.views import View, iso

# All signals that begin with it: the character behind a colon is a semicolon.
_OPEN: Final = (
    Term("status", ("blocked",)),
    Term("parked", (f"signal:{ANSWER}",), ">"),
    Term("parked", (f"signal:{ANSWER[:-1]};",), "<"),
)


async def approvals(app: Outlast, query: TaskQuery) -> Page[View]:
    """The open questions of tasks that fit, those of the newest tasks first."""
    page = await app.engine.tasks(replace(query, terms=(*query.terms, *_OPEN)))
    return Page(tuple(_views(app, page.items)), page.next)


async def respond(app: Outlast, task_id: TaskId, answer: Json) -> Task:
    """Answer what a task asks now; `Conflict` when it asks nothing, or the deadline has passed,
    though no worker may have seen that yet: the answer would be kept, and nobody would read it."""
    task = await fetch(app.engine, task_id)
    app.check(task.type)
    asked = _asked(task)
    if asked is None:
        raise Conflict(f"Task {task_id} asks nothing now: it is {task.status}.")
    deadline = cast(Ms | None, asked["deadline"])
    if deadline is not None and await app.engine.now() > deadline:
        raise Conflict(f"Task {task_id} asks no more: the deadline was {iso(deadline)}.")
    await alter(app.engine, task_id, Signal(str(asked["signal"]), answer))
    return await fetch(app.engine, task_id)


def _views(app: Outlast, tasks: tuple[Task, ...]) -> Iterator[View]:
    for task in tasks:
        asked = _asked(task)
        if asked is not None:
            shown = _question(app.redactor.shown(task.progress or b"{}")) or {}
            yield {
                "task_id": task.id,
                "type": task.type,
                "question": shown.get("question", MASK),
                "action": shown.get("action", MASK),
                "signal": asked["signal"],
                "deadline": iso(asked["deadline"]),  # type: ignore[arg-type]  # by ctx.ask
                "asked_at": iso(task.updated_at),
                "session_id": task.session_id,
                "user_id": task.user_id,
                "workflow_id": task.workflow_id,
                "tags": task.tags,
            }


def _asked(task: Task) -> dict[str, object] | None:
    """What it asks, as `ctx.ask` put it; None when it does not wait for an answer."""
    asked = _question(task.progress or b"{}")
    signal = str(asked.get("signal")) if asked is not None else ""
    waits = signal.startswith(ANSWER) and task.parked == f"signal:{signal}"
    return asked if waits else None


def _question(progress: Json) -> dict[str, object] | None:
    """That of a progress, which has what a handler says beside it, too, and may be hidden."""
    data = msgspec.json.decode(progress).get("data")
    asked = data.get("question") if isinstance(data, dict) else None
    return asked if isinstance(asked, dict) else None
