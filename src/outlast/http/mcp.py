"""MCP over streamable HTTP: the same guards as the API, and a desk for whoever asks.

Requests carry the keys and tokens of the API, and what they ask for is asked of the API with them:
roles, scopes, rates, quotas and sessions are those that hold there. No session of the protocol is
kept, so that any server may answer the next request, and a restart breaks nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from outlast.agents.desk import Desk
from outlast.agents.mcp import DeskOf
from outlast.http.guard import Guard
from outlast.http.problems import problem

PATH = "/mcp"
BEARER = "outlast.bearer"

Known = Callable[[Scope], Awaitable[bool]]


def by_bearer(anonymous: Desk | None, desk_for: Callable[[str], Desk]) -> DeskOf:
    """The desk for the key or token that a request carries; without one, `anonymous`."""

    async def desk_of(ctx: ServerRequestContext[Any, Any]) -> Desk:
        text = ctx.request.scope[BEARER] if ctx.request is not None else ""
        return anonymous if not text and anonymous is not None else desk_for(text)

    return desk_of


def create_mcp(server: Server[Any], *, known: Known, loopback_only: bool) -> Starlette:
    """The server as an ASGI application, at `/mcp`. Only who is `known` gets in."""
    made = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        # The guard around it checks Host and Origin, as it does for the API.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    made.add_middleware(_Door, known=known)
    made.add_middleware(Guard, loopback_only=loopback_only)
    return made


class _Door:
    """Lets in who is known, and remembers what they carry."""

    def __init__(self, app: ASGIApp, known: Known) -> None:
        self._app = app
        self._known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scheme, _, text = Headers(scope=scope).get("authorization", "").partition(" ")
        scope[BEARER] = text.strip() if scheme.lower() == "bearer" else ""
        if await self._known(scope):
            await self._app(scope, receive, send)
            return
        refusal = problem(
            401,
            "Send an API key or a session token: Authorization: Bearer …; `outlast keys create`"
            " makes one.",
        )
        await refusal(scope, receive, send)
