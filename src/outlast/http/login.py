"""Logging in with a browser: a key is given once, and a cookie stands for it from then on.

The cookie is random, out of reach for scripts (`HttpOnly`) and never sent along from other sites
(`SameSite=Strict`); what is kept of it is a hash, beside the id of the key. A key that is revoked
or has expired ends its logins. What changes something must come from a page of this very origin, by
`Sec-Fetch-Site` or `Origin`: a cookie alone is not enough.
"""

from __future__ import annotations

import secrets
from typing import Final

import msgspec
from fastapi import APIRouter, Request
from starlette.requests import HTTPConnection
from starlette.responses import Response

from outlast.access import ANYBODY, Principal
from outlast.core.model import Put
from outlast.engine import Engine
from outlast.http import schemas
from outlast.http.body import read_as
from outlast.http.doc import doc
from outlast.http.door import COOKIE, Door, Guarded, door_of, login_key
from outlast.http.problems import Refused
from outlast.http.state import answer, outlast_of
from outlast.views import View

router = APIRouter(prefix="/api/v1", tags=["access"], route_class=Guarded)

LIFE_S: Final = 12 * 3_600


class _Login(msgspec.Struct, forbid_unknown_fields=True):
    key: str


@router.post(
    "/login",
    **doc("Log in with a key; a cookie stands for it", schemas.LoggedIn, right="nothing",
          errors=(401, 429), body=schemas.Login),
)  # fmt: skip
async def log_in(request: Request) -> Response:
    """For pages of this server. The cookie ends after 12 hours, or with the key."""
    told, door = await read_as(request, _Login), door_of(request)
    if await door.is_open():
        return answer(_view(ANYBODY, door))
    principal = await door.log_in(request, told.key)
    if principal is None:
        raise Refused(401, "There is no such key.")
    text = secrets.token_urlsafe(32)
    await _keep(outlast_of(request).engine, text, principal.id)
    return _with_cookie(request, answer(_view(principal, door)), text, LIFE_S)


@router.get(
    "/login",
    **doc("Who am I?", schemas.LoggedIn, right="nothing", errors=(401,)),
)
async def who_am_i(request: Request) -> Response:
    """By cookie, key or token."""
    door = door_of(request)
    principal = await door.who(request)
    if principal is None:
        raise Refused(401, "Nobody is logged in here.")
    return answer(_view(principal, door))


@router.post("/logout", **doc("End the login of this browser", right="nothing", status=204))
async def log_out(request: Request) -> Response:
    """Also when there is none."""
    if text := request.cookies.get(COOKIE):
        gone = Put(kind="login", key=login_key(text), value=None)
        await outlast_of(request).engine.put([gone])
    return _with_cookie(request, Response(status_code=204), "", 0)


async def _keep(engine: Engine, text: str, key_id: str) -> None:
    value = msgspec.json.encode(key_id)
    kept = Put(kind="login", key=login_key(text), value=value, ttl_ms=LIFE_S * 1000)
    await engine.put([kept])


def _with_cookie(request: HTTPConnection, response: Response, text: str, life_s: int) -> Response:
    forwarded = request.headers.get("x-forwarded-proto", "")
    response.set_cookie(
        COOKIE,
        text,
        max_age=life_s,
        path=request.scope.get("root_path") or "/",
        secure="https" in (request.url.scheme, forwarded),
        httponly=True,
        samesite="strict",
    )
    return response


def _view(principal: Principal, door: Door) -> View:
    read_only = principal.read_only or door.read_only
    return {"role": principal.role, "name": principal.name, "read_only": read_only}
