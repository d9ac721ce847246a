"""The log over HTTP, of one task or of all of them: streams, sockets and long polls.

The `id` of an event is its cursor; `Last-Event-ID` (or `?after=`) goes on behind it, whichever way
it was heard.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from fastapi import APIRouter, Request, WebSocket
from msgspec.structs import replace
from starlette.requests import HTTPConnection
from starlette.responses import Response

from outlast.access import Principal
from outlast.core.errors import BadInput, suggest
from outlast.core.model import Cursor, Event, EventQuery
from outlast.core.states import FINAL
from outlast.http import schemas
from outlast.http.body import MAX_WAIT_S
from outlast.http.doc import doc
from outlast.http.door import Guarded, has_to_go, principal_of, visible
from outlast.http.feed import PAGE, Feed, Told, frames, of_all, of_task, page
from outlast.http.live import EventStream
from outlast.http.sockets import Part, converse, pushing
from outlast.http.state import answer, live_of, outlast_of, redactor_of
from outlast.query import check_text
from outlast.stream import fetch

router = APIRouter(prefix="/api/v1", tags=["events"], route_class=Guarded)

RETRY: Final = b"retry: 1000\n\n"
"""Browsers wait three seconds or more before they come back, unless told."""
AFTER: Final = {"after": "go on behind this event id, as the header Last-Event-ID does"}
FILTERS: Final = {
    "kinds": "only these kinds of events, separated by commas",
    "types": "only events of tasks of these types",
    "queues": "only events of tasks in these queues",
    "session_id": "only events of this session",
    "workflow_id": "only events of this workflow",
}
BEGINNING: Final = "^"
"""As a cursor: in front of the first event that the log still has."""
AFTER_ALL: Final = {"after": f"{AFTER['after']}; {BEGINNING} is the beginning of the log"}
WAIT: Final = {"wait": f"seconds to wait for an event when there is none, 0 to {MAX_WAIT_S}"}


# One task ----------------------------------------------------------------------------------------


@router.get(
    "/tasks/{task_id}/stream",
    **doc(
        "Follow a task: state, progress, chunk, step, rollback, reset, done",
        right="look",
        query=AFTER,
        stream=True,
    ),
)
async def stream_task(request: Request, task_id: str) -> Response:
    """Server-sent events from the first on, or behind the one that is named; the stream ends
    behind `done`. 204 when nothing will come any more."""
    query, over = await _task_query(request, task_id)
    if over:
        return Response(status_code=204)  # a browser stops coming back
    told = frames(RETRY, _feed(request, query))
    return EventStream(live_of(request), told, principal_of(request), partial(has_to_go, request))


@router.get(
    "/tasks/{task_id}/events",
    **doc(
        "The events of a task so far, or the next ones",
        schemas.TaskEvents,
        right="look",
        query=AFTER | WAIT,
    ),
)
async def task_events(request: Request, task_id: str) -> Response:
    """Long poll, for clients that cannot stream: ask again with `after` set to `next`, until
    `done` is true."""
    wait_s = _wait_s(request)
    query, over = await _task_query(request, task_id)
    found = await _poll(request, _feed(request, query, wait_s), wait_s) or []
    last = found[-1].cursor if found else query.after
    over = found[-1].kind == "done" if found else over
    return answer({"items": [told.item for told in found], "next": last, "done": over})


@router.websocket("/tasks/{task_id}/ws")
async def task_socket(websocket: WebSocket, task_id: str) -> None:
    """The same as messages of a socket, which closes behind `done`."""

    async def prepare() -> Sequence[Part]:
        query, _ = await _task_query(websocket, task_id)
        return pushing(websocket, _feed(websocket, query))

    await converse(websocket, prepare)


def _feed(request: HTTPConnection, query: EventQuery, linger_s: float | None = None) -> Feed:
    return of_task(outlast_of(request).engine, redactor_of(request), query, linger_s)


async def _task_query(request: HTTPConnection, task_id: str) -> tuple[EventQuery, bool]:
    """What to read; and whether nothing is left to be read."""
    engine = outlast_of(request).engine
    task = await fetch(engine, await visible(request, task_id))
    query = EventQuery(task_id=task.id, after=_after(request), limit=PAGE)
    first = await engine.events(replace(query, limit=1))  # refuses a cursor that is none
    told = query.after is not None and not first.items and not first.reset
    return query, told and task.state in FINAL


# All of them -------------------------------------------------------------------------------------


@router.get(
    "/events",
    **doc(
        "Follow all tasks in one stream, from now on unless a cursor is given",
        right="look",
        query=AFTER_ALL | FILTERS,
        stream=True,
    ),
)
async def stream_all(request: Request) -> Response:
    """Server-sent events of everything that the caller may see."""
    query, wanted = await _query(request)
    # An id without data moves a browser's cursor: it resumes here even if no event ever came.
    head = RETRY if query.after is None else RETRY + f"id: {query.after}\n\n".encode()
    told = frames(head, of_all(outlast_of(request), query, wanted, live_of(request)))
    return EventStream(live_of(request), told, principal_of(request), partial(has_to_go, request))


@router.get(
    "/events/poll",
    **doc(
        "The events of all tasks behind a cursor, or the next ones",
        schemas.Events,
        right="look",
        query=AFTER_ALL | FILTERS | WAIT,
    ),
)
async def poll_all(request: Request) -> Response:
    """Long poll of what `/events` streams. Without `after` it begins now: ask again with `after`
    set to `next`."""
    wait_s = _wait_s(request)
    query, wanted = await _query(request, "wait")
    feed = of_all(outlast_of(request), query, wanted, live_of(request), wait_s)
    found = await _poll(request, feed, wait_s)
    if found is None:  # cut short: what it had looked at already is told next time
        found, last = [], query.after
    else:
        last = found[-1].cursor if found else wanted.last or query.after
    return answer({"items": [told.item for told in found], "next": last})


@router.websocket("/events/ws")
async def all_socket(websocket: WebSocket) -> None:
    """The same as messages of a socket. The first is `{"event": "open", "id": cursor}`."""

    async def prepare() -> Sequence[Part]:
        query, wanted = await _query(websocket)
        feed = of_all(outlast_of(websocket), query, wanted, live_of(websocket))
        return pushing(websocket, feed, {"event": "open", "id": query.after, "data": {}})

    await converse(websocket, prepare)


class _Wanted:
    """Which events a caller may see and asked for; and how far it has looked."""

    def __init__(self, principal: Principal, types: Sequence[str], queues: Sequence[str]) -> None:
        self._principal, self._types, self._queues = principal, types, queues
        self.last: Cursor | None = None
        # What belongs to no task is told to whoever deals with all, and to the session it is about.
        self._covers_all = principal.role == "session" or not principal.is_scoped

    def __call__(self, event: Event) -> bool:
        self.last = event.cursor
        if self._types and event.type not in self._types:
            return False
        if self._queues and event.queue not in self._queues:
            return False
        if event.kind == "audit":
            return self._principal.may("operate") and not self._principal.is_scoped
        if event.task_id is None:
            return self._covers_all and self._principal.owns(event.session_id, None)
        return self._principal.covers(event.type or "", event.queue or "")


async def _query(request: HTTPConnection, *also: str) -> tuple[EventQuery, _Wanted]:
    known = ("after", "ticket", *FILTERS, *also)
    for name in request.query_params:
        if name not in known:
            raise BadInput(f"There is no filter {name!r}{suggest(name, known) or '.'}", field=name)
        check_text(request.query_params[name], name)
    engine, principal = outlast_of(request).engine, principal_of(request)
    after = _after(request) or "$"
    query = EventQuery(
        after=None if after == BEGINNING else after,
        kinds=_list(request, "kinds"),
        session_id=principal.session_id or request.query_params.get("session_id"),
        workflow_id=request.query_params.get("workflow_id"),
        limit=PAGE,
    )
    first = await engine.events(replace(query, limit=1))
    if query.after == "$" or (query.after is None and not first.items):
        query = replace(query, after=first.next)
    return query, _Wanted(principal, _list(request, "types"), _list(request, "queues"))


# Both --------------------------------------------------------------------------------------------


async def _poll(request: Request, feed: Feed, wait_s: float) -> list[Told] | None:
    """None when client or server went before it was over."""
    if not wait_s:
        return await page(feed)
    who = principal_of(request)
    return await live_of(request).wait(
        page(feed), request.receive, who, partial(has_to_go, request)
    )


def _wait_s(request: Request) -> float:
    text = request.query_params.get("wait", "0")
    try:
        wait_s = float(text)
    except ValueError:
        wait_s = -1
    if not 0 <= wait_s <= MAX_WAIT_S:
        raise BadInput(f"wait={text[:40]!r}: 0 to {MAX_WAIT_S} seconds.", field="wait")
    return wait_s


def _list(request: HTTPConnection, name: str) -> tuple[str, ...]:
    told = ",".join(request.query_params.getlist(name))
    return tuple(filter(None, map(str.strip, told.split(","))))


def _after(request: HTTPConnection) -> Cursor | None:
    return request.headers.get("last-event-id") or request.query_params.get("after") or None
