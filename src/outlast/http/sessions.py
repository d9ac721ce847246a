"""Sessions of end users over HTTP: their tasks, notifications and preferences, and one socket.

A notification is pushed over the socket while it is open; what was not acknowledged is there at
the next `GET`, and is pushed again, under the same id, when the socket comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec
from fastapi import APIRouter, Request, WebSocket
from starlette.responses import Response

from outlast import notices
from outlast.access import Principal
from outlast.core.errors import NotFound
from outlast.core.model import Cursor, Term
from outlast.engine import Engine
from outlast.http import schemas
from outlast.http.body import read_as
from outlast.http.doc import doc
from outlast.http.door import Guarded, door_of, principal_of
from outlast.http.hub import Hub, hub_of
from outlast.http.problems import Refused
from outlast.http.sockets import Part, converse, send
from outlast.http.state import answer, outlast_of
from outlast.http.tasks import FILTERS, page_of, query_of
from outlast.notices import Notice, Preferences
from outlast.options import name_of
from outlast.views import View, iso

router = APIRouter(prefix="/api/v1/sessions", tags=["sessions"], route_class=Guarded)

LOOK_S: Final = 5.0
"""How often a socket that is to push nothing looks whether it is to push again."""


class _Ack(msgspec.Struct, forbid_unknown_fields=True):
    ids: Sequence[str]


@router.get(
    "/{session_id:path}/tasks",
    **doc(
        "The tasks of a session, newest first",
        schemas.TaskPage,
        right="look",
        query={name: told for name, told in FILTERS.items() if name != "session_id"},
    ),
)
async def session_tasks(request: Request, session_id: str) -> Response:
    """With the filters of `/tasks`."""
    mine = Term("session_id", (_mine(principal_of(request), session_id),))
    query = await query_of(request)
    query = msgspec.structs.replace(query, terms=(mine, *query.terms))
    return answer(await page_of(request, query))


@router.get(
    "/{session_id:path}/notifications",
    **doc("What the session has not acknowledged, oldest first", schemas.NoticePage, right="look",
          query={"cursor": "`next` of the page before"}),
)  # fmt: skip
async def notifications(request: Request, session_id: str) -> Response:
    """At most a page of them; acknowledge these, and ask again while `more` is true."""
    mine = _mine(principal_of(request), session_id)
    after = request.query_params.get("cursor") or None
    found = await notices.pending(outlast_of(request).engine, mine, after=after)
    items = [notice_view(one) for one in found.items]
    return answer({"items": items, "more": found.more, "next": found.next if found.more else None})


@router.post(
    "/{session_id:path}/notifications/ack",
    **doc(
        "Acknowledge notifications: each counts once",
        schemas.Acked,
        right="act",
        body=schemas.Ack,
    ),
)
async def acknowledge(request: Request, session_id: str) -> Response:
    """Answers those that were not acknowledged before."""
    told = await read_as(request, _Ack)
    session_id = _mine(principal_of(request), session_id)
    app = outlast_of(request)
    new = await notices.acknowledge(app.engine, session_id, told.ids)
    app.meter.count("notices_acked", len(new))
    return answer({"acknowledged": new})


@router.get(
    "/{session_id:path}/preferences",
    **doc("What the session wants to be told", schemas.Preferences, right="look"),
)
async def get_preferences(request: Request, session_id: str) -> Response:
    """The defaults, unless it has set others."""
    session_id = _mine(principal_of(request), session_id)
    wanted = await notices.preferences(outlast_of(request).engine, session_id)
    return answer(msgspec.structs.asdict(wanted))


@router.put(
    "/{session_id:path}/preferences",
    **doc(
        "Set what the session wants to be told",
        schemas.Preferences,
        right="act",
        body=schemas.Preferences,
    ),
)
async def set_preferences(request: Request, session_id: str) -> Response:
    """Replaces all of them: what is left out is as by default."""
    wanted = await read_as(request, Preferences)
    session_id = _mine(principal_of(request), session_id)
    await notices.set_preferences(outlast_of(request).engine, session_id, wanted)
    return answer(msgspec.structs.asdict(wanted))


@router.post(
    "/{session_id:path}/ticket",
    **doc(
        "A ticket for one socket, for browsers, which cannot send a header with it",
        schemas.Ticket,
        right="look",
        status=201,
    ),
)
async def ticket(request: Request, session_id: str) -> Response:
    """Good for one connection to `/api/v1/sessions/{session_id}/ws?ticket=…`, within half a
    minute."""
    principal = principal_of(request)
    path = f"/api/v1/sessions/{_mine(principal, session_id)}/ws"
    return answer({"ticket": await door_of(request).ticket(principal, path)}, 201)


def _mine(principal: Principal, session_id: str) -> str:
    """The session in a path; that of somebody else does not exist."""
    name_of(session_id, "session_id")
    if principal.role == "session" and session_id != principal.session_id:
        raise NotFound(f"There is no session {session_id!r}.")
    if principal.role != "session" and principal.is_scoped:
        raise Refused(403, f"{principal.name!r} may deal with some tasks only, not with sessions.")
    return session_id


def notice_view(notice: Notice) -> View:
    return {**msgspec.structs.asdict(notice), "timestamp": iso(notice.timestamp)}


# The socket --------------------------------------------------------------------------------------


@router.websocket("/{session_id:path}/ws")
async def socket(websocket: WebSocket, session_id: str) -> None:
    """Pushes notifications; takes `{"ack": [ids]}`, and answers what was new in it."""

    async def prepare() -> Sequence[Part]:
        mine = _mine(principal_of(websocket), session_id)
        engine, hub = outlast_of(websocket).engine, hub_of(websocket)
        return (
            lambda: _push(websocket, engine, hub, mine),
            lambda: _hear(websocket, engine, mine),
        )

    await converse(websocket, prepare)


async def _push(websocket: WebSocket, engine: Engine, hub: Hub, session_id: str) -> None:
    """Everything that is pending, and then whatever comes; each once per connection."""
    place: Cursor | None = None
    async with hub.following(session_id) as rung:
        while True:
            rung.clear()
            if not (await notices.preferences(engine, session_id)).push:
                place = None
                with suppress(TimeoutError):  # it may be wanted again, which is no news
                    await asyncio.wait_for(rung.wait(), LOOK_S)
                continue
            found = await notices.pending(engine, session_id, after=place)
            for notice in found.items:
                await send(websocket, notice_view(notice))
            await _count(websocket, found.items)
            place = found.next
            if not found.more:
                await rung.wait()


async def _count(websocket: WebSocket, pushed: Sequence[Notice]) -> None:
    """How many were pushed, and how long after the event they tell of."""
    app = outlast_of(websocket)
    app.meter.count("notices_pushed", len(pushed))
    now = await app.engine.now() if pushed else 0
    for notice in pushed:
        app.meter.observe("notice_delay", now - notice.timestamp)


async def _hear(websocket: WebSocket, engine: Engine, session_id: str) -> None:
    while (message := await websocket.receive())["type"] != "websocket.disconnect":
        try:
            told = msgspec.json.decode(message.get("text") or b"", type=dict[str, list[str]])
            ids = told["ack"]
            door_of(websocket).check(principal_of(websocket), "act")
        except (msgspec.ValidationError, msgspec.DecodeError, KeyError):
            await send(websocket, {"error": 'send {"ack": ["<notification_id>", …]}'})
            continue
        except Refused as refusal:  # who may look may listen, and do no more
            await send(websocket, {"error": str(refusal)})
            continue
        new = await notices.acknowledge(engine, session_id, ids[:1_000])
        outlast_of(websocket).meter.count("notices_acked", len(new))
        await send(websocket, {"acknowledged": new})
