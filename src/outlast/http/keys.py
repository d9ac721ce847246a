"""API keys and session tokens over HTTP: made, listed, revoked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from outlast import access
from outlast.core.errors import BadInput
from outlast.http import schemas
from outlast.http.body import read_as
from outlast.http.doc import doc
from outlast.http.door import Guarded, door_of, principal_of
from outlast.http.state import answer, outlast_of
from outlast.options import priority_of
from outlast.views import View, key_view

router = APIRouter(prefix="/api/v1", tags=["access"], route_class=Guarded)

OPEN_TO_TICKETS: Final = re.compile(
    r"/api/v1/(events(/ws)?|tasks/[^/]+/(stream|ws)|sessions/.+/ws)"
)


class _NewKey(msgspec.Struct, forbid_unknown_fields=True):
    role: str
    name: str | None = None
    queues: Sequence[str] = ()
    types: Sequence[str] = ()
    read_only: bool = False
    rate: str | None = None
    quota: access.Quota | None = None
    expires: str | float | None = None


class _NewTicket(msgspec.Struct, forbid_unknown_fields=True):
    path: str


class _NewToken(msgspec.Struct, forbid_unknown_fields=True):
    user_id: str | None = None
    types: Sequence[str] = ()
    priority: str | int | None = None
    ttl: str | float = "12h"


@router.get("/keys", **doc("List API keys, without the keys", schemas.KeyPage, right="admin"))
async def list_keys(request: Request) -> Response:
    """Those of `OUTLAST_KEYS` are not among them."""
    found = await access.keys(outlast_of(request).engine)
    return answer({"items": [key_view(key) for key in found], "next": None})


@router.post(
    "/keys",
    **doc(
        "Make an API key; it is shown this once",
        schemas.MadeKey,
        right="admin",
        status=201,
        body=schemas.NewKey,
    ),
)
async def create_key(request: Request) -> Response:
    """Only its hash is kept. Without queues and types it is for all of them."""
    told = await read_as(request, _NewKey)
    text, key = await access.create_key(
        outlast_of(request).engine,
        told.role,
        name=told.name or "",
        queues=told.queues,
        types=told.types,
        read_only=told.read_only,
        rate=told.rate,
        quota=told.quota,
        expires=told.expires,
    )
    await door_of(request).keyring.reread()
    made: View = {"key": text, **key_view(key)}
    return answer(made, 201)


@router.delete("/keys/{key_id}", **doc("Revoke an API key", right="admin", status=204))
async def revoke_key(request: Request, key_id: str) -> Response:
    """Other servers follow within seconds; streams that it has opened end."""
    await access.revoke_key(outlast_of(request).engine, key_id)
    await door_of(request).keyring.reread()
    return Response(status_code=204)


@router.post(
    "/sessions/{session_id:path}/token",
    **doc(
        "Sign a token for an end user: it opens the tasks of this session only",
        schemas.Token,
        right="enqueue",
        scoped=False,
        status=201,
        body=schemas.NewToken,
    ),
)
async def create_token(request: Request, session_id: str) -> Response:
    """For your server to hand to a browser. It may enqueue for its session, with the types
    given, and see what belongs to it. `priority` is that of its tasks, where their type names
    none."""
    told = await read_as(request, _NewToken)
    token = await door_of(request).signer.token(
        session_id,
        user_id=told.user_id,
        types=told.types,
        priority=None if told.priority is None else priority_of(told.priority),
        ttl=told.ttl,
    )
    return answer({"token": token, "session_id": session_id, "user_id": told.user_id}, 201)


@router.post(
    "/tickets",
    **doc(
        "A ticket for one stream or socket, for browsers, which cannot send a header with it",
        schemas.Ticket,
        right="look",
        status=201,
        body=schemas.NewTicket,
    ),
)
async def create_ticket(request: Request) -> Response:
    """Good for one connection to this very path, as `path?ticket=…`, within half a minute. To come
    back, get another one, and give the last event's id as `after`."""
    told = await read_as(request, _NewTicket)
    if not OPEN_TO_TICKETS.fullmatch(told.path):
        raise BadInput(
            "path: a ticket is for a stream or a socket, as in /api/v1/events or"
            " /api/v1/tasks/<id>/stream.",
            field="path",
        )
    text = await door_of(request).ticket(principal_of(request), told.path)
    return answer({"ticket": text}, 201)
