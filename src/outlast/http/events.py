"""Server-sent events: the log of one task, or of all of them, live and resumable.

The `id:` of a frame is the cursor of its event; `Last-Event-ID` (or `?after=`) goes on behind it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from random import random
from typing import Final

from fastapi import APIRouter, Request
from msgspec.structs import replace
from starlette.responses import Response

from outlast.access import Principal
from outlast.app import Outlast
from outlast.core.errors import BadInput, suggest
from outlast.core.model import Cursor, Event, EventQuery, Task
from outlast.core.states import FINAL
from outlast.http.doc import doc
from outlast.http.door import Guarded, principal_of, visible
from outlast.http.live import EventStream
from outlast.http.state import live_of, outlast_of
from outlast.stream import fetch, find, tail
from outlast.views import View, event_view, log_view, task_view, to_json

router = APIRouter(prefix="/api/v1", tags=["events"], route_class=Guarded)

# An event may carry a mebibyte: a stream holds one page of them at a time.
PAGE: Final = 50
POLL_S: Final = 5.0
RETRY: Final = b"retry: 1000\n\n"
"""Browsers wait three seconds or more before they come back, unless told."""
FILTERS: Final = ("after", "kinds", "session_id", "workflow_id")


@router.get(
    "/tasks/{task_id}/stream",
    **doc(
        "Follow a task: state, progress, chunk, step, rollback, reset, done",
        right="look",
        query={"after": "go on behind this event id, as the header Last-Event-ID does"},
        stream=True,
    ),
)
async def stream_task(request: Request, task_id: str) -> Response:
    """Server-sent events from the first on, or behind the one that is named; the stream ends
    behind `done`. 204 when nothing will come any more."""
    engine = outlast_of(request).engine
    task = await fetch(engine, await visible(request, task_id))
    query = EventQuery(task_id=task.id, after=_after(request), limit=PAGE)
    page = await engine.events(replace(query, limit=1))  # refuses a cursor that is none
    if query.after is not None and task.state in FINAL and not page.items and not page.reset:
        return Response(status_code=204)  # nothing will come: a browser stops coming back
    frames = _task_frames(outlast_of(request), query)
    return EventStream(live_of(request), frames, principal_of(request))


@router.get(
    "/events",
    **doc(
        "Follow all tasks in one stream, from now on unless a cursor is given",
        right="look",
        query={
            "after": "go on behind this event id, as the header Last-Event-ID does",
            "kinds": "only these kinds of events, separated by commas",
            "session_id": "only events of this session",
            "workflow_id": "only events of this workflow",
        },
        stream=True,
    ),
)
async def stream_all(request: Request) -> Response:
    """Server-sent events of everything that the caller may see."""
    for name in request.query_params:
        if name not in FILTERS:
            hint = suggest(name, FILTERS) or "."
            raise BadInput(f"There is no filter {name!r}{hint}", field=name)
    engine, principal = outlast_of(request).engine, principal_of(request)
    kinds = request.query_params.get("kinds", "").split(",")
    query = EventQuery(
        after=_after(request) or "$",
        kinds=tuple(kind for kind in kinds if kind),
        session_id=principal.session_id or request.query_params.get("session_id"),
        workflow_id=request.query_params.get("workflow_id"),
        limit=PAGE,
    )
    page = await engine.events(replace(query, limit=1))
    if query.after == "$":
        query = replace(query, after=page.next)
    frames = _all_frames(outlast_of(request), query, principal)
    return EventStream(live_of(request), frames, principal)


async def _task_frames(app: Outlast, query: EventQuery) -> AsyncGenerator[bytes, None]:
    """The task's events; the last one is always a `done`, also when the log has forgotten it."""
    yield RETRY
    kind, may_lack_end = "", query.after is None
    async for event in tail(app.engine, query, until_done=True, poll_s=_poll_s()):
        kind = event.kind
        may_lack_end = may_lack_end or kind == "reset"
        ending = await _ending(app, event)
        if kind == "done" and not ending:
            event = replace(event, kind="state")  # it was redriven: this end was not the end
        yield frame(event, event_view(event, app.redactor) | ending)
    if kind != "done" and may_lack_end:
        task = await find(app.engine, query.task_id or "")
        if task is not None:
            yield await _late_end(app, task)


async def _all_frames(
    app: Outlast, query: EventQuery, principal: Principal
) -> AsyncGenerator[bytes, None]:
    # An id without data moves a browser's cursor: it resumes here even if no event ever came.
    yield RETRY + f"id: {query.after}\n\n".encode()
    async for event in tail(app.engine, query):
        if _may_see(principal, event):
            yield frame(event, log_view(event, app.redactor))


def _may_see(principal: Principal, event: Event) -> bool:
    if event.kind == "audit":
        return principal.may("operate") and not principal.is_scoped
    if event.task_id is None:
        return principal.owns(event.session_id, None)
    return principal.covers(event.type or "", event.queue or "")


def _poll_s() -> float:
    """Hints are seldom lost, and a thousand idle streams that look every second take a fifth of a
    core; apart from each other, so that they do not all look at once."""
    return POLL_S * (0.8 + 0.4 * random())  # noqa: S311  # no secret


def frame(event: Event, view: View) -> bytes:
    """One event on the wire; the JSON has no line breaks."""
    if event.kind == "reset":
        view["at"] = None  # it happened here, not in the log
    kind, cursor = event.kind.encode(), event.cursor.encode()
    return b"event: %b\nid: %b\ndata: %b\n\n" % (kind, cursor, to_json(view))


async def _ending(app: Outlast, event: Event) -> View:
    """For a `done`: what the record says, unless a redrive has changed that since."""
    if event.kind != "done" or event.task_id is None:
        return {}
    task = await find(app.engine, event.task_id)
    return _end_of(app, task) if task is not None and task.completed_at == event.at else {}


async def _late_end(app: Outlast, task: Task) -> bytes:
    end = await app.engine.events(EventQuery(after="$"))
    done = Event(
        cursor=end.next,
        kind="done",
        at=task.completed_at or task.updated_at,
        data=b"{}",
        task_id=task.id,
        attempt=task.number,
    )
    return frame(done, event_view(done, app.redactor) | _end_of(app, task))


def _end_of(app: Outlast, task: Task) -> View:
    view = task_view(task, app.redactor)
    end = {name: view[name] for name in ("status", "result", "error", "reason")}
    # The record keeps the last failure; a task that completed did not end with it.
    return {**end, "error": None} if task.state == "completed" else end


def _after(request: Request) -> Cursor | None:
    return request.headers.get("last-event-id") or request.query_params.get("after") or None
