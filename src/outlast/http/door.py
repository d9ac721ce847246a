"""The door of the API: who is it, may they do that, do they ask too often; and who did what.

Every route says which right it takes (`doc(right=…)`); one that says nothing is open to nobody.
What changes something for others (`operate`, `admin`) leaves an `audit` event in the log.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec
from fastapi import Request
from fastapi.routing import APIRoute
from msgspec.structs import replace
from starlette.requests import HTTPConnection
from starlette.responses import Response

from outlast.access import ANYBODY, READING, TOKEN, Keyring, Principal, Right, Signer
from outlast.app import Outlast
from outlast.builtin import BULK
from outlast.core import limits as gate
from outlast.core.codec import dumps
from outlast.core.errors import NotFound
from outlast.core.limits import Gauge, Limit
from outlast.core.model import NewEvent, Put, Task, TaskId, TaskQuery, Term
from outlast.core.states import Ms
from outlast.http.doc import RIGHT, SCOPED, Needs
from outlast.http.guard import SAFE_METHODS, is_cross_site
from outlast.http.problems import Refused
from outlast.http.reads import reads_of
from outlast.http.state import outlast_of, path_id

MAX_RATES: Final = 10_000
WRONG_RATE: Final = "20/min"
"""So many wrong keys may be given at the login from one address; then those that are new here wait
as well. Programs, which send their key with every request, are told that it is wrong each time."""

TICKET_MS: Final = 30_000
COOKIE: Final = "outlast_login"
BY: Final = "outlast.by"
"""By this a bulk is found again, by the key that has begun it."""
ROUTE: Final = "outlast.route"
"""Where a request carries the template of its route, in a list, for whoever counts."""


class Ticket(msgspec.Struct, frozen=True):
    """A principal for one connection to one path."""

    principal: Principal
    path: str
    nonce: str
    until: Ms


class Guarded(APIRoute):
    """A route behind the door."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        told = self.openapi_extra or {}
        right: Needs | None = told.get(RIGHT)
        scoped = bool(told.get(SCOPED))

        async def guarded(request: Request) -> Response:
            request.scope.get(ROUTE, [""])[0] = self.path_format
            door = door_of(request)
            request.state.principal = await door.admit(request, right, scoped=scoped)
            response = await handle(request)
            if right in ("operate", "admin") and request.method not in SAFE_METHODS:
                await door.note(request, response)
            return response

        return guarded


class Door:
    """What a server knows about its callers."""

    def __init__(
        self, app: Outlast, *, read_only: bool = False, loopback_only: bool = False
    ) -> None:
        self._app = app
        self._loopback_only = loopback_only
        self.read_only = read_only
        self.had_keys = False
        self.keyring = Keyring(app.engine)
        self.signer = Signer(app.engine)
        self._rates: dict[str, Gauge] = {}
        self._wrong: dict[str, Gauge] = {}
        self._proven: set[str] = set()
        """Keys that have logged in here before: others at their address do not lock them out."""

    async def admit(
        self, request: HTTPConnection, right: Needs | None, *, scoped: bool
    ) -> Principal:
        """Whoever asks, if they may."""
        if right == "nothing":
            return ANYBODY
        principal = await self.who(request)
        if principal is None:
            raise Refused(401, _HOW)
        await self._pace(principal)
        self.check(principal, right)
        if principal.is_scoped and not scoped:
            raise Refused(403, f"{principal.name!r} may deal with some tasks only, not with this.")
        return principal

    def check(self, principal: Principal, right: Right | None) -> None:
        """Refuse what this caller may not do, or nobody may here."""
        if right is None or not principal.may(right):
            raise Refused(403, f"{principal.role} {principal.name!r} may not do that.")
        if self.read_only and right not in READING:
            raise Refused(403, "This server is read-only.")

    async def is_open(self) -> bool:
        """Is everybody let in, as there are no keys? Where others than this machine may come, not
        when there were some: one that ends would hand all of it to whoever is there."""
        there = await self.keyring.exist()
        self.had_keys = there or (self.had_keys and not self._loopback_only)
        return not self.had_keys

    async def who(self, request: HTTPConnection) -> Principal | None:
        """By ticket, `Authorization` header or cookie; everybody where there are no keys."""
        if "ticket" in request.query_params:
            return await self._redeem(request)
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        text = text.strip()
        if scheme.lower() == "bearer" and text:
            if text.startswith(TOKEN):
                return await self.signer.bearer(text)
            return await self.keyring.find(text)
        if await self.is_open():
            return ANYBODY
        return await self._logged_in(request)

    async def log_in(self, request: HTTPConnection, text: str) -> Principal | None:
        """Whose key this is; whoever has tried many wrong ones has to wait, also with a right one,
        or the answer would tell it."""
        principal = await self.keyring.find(text)
        if principal is not None and principal.id in self._proven:
            return principal
        now = await self._app.engine.now()
        if len(self._wrong) > MAX_RATES:
            self._wrong.clear()
        address = request.client.host if request.client else ""
        gauge = self._wrong.setdefault(address, Gauge("wrong"))
        at = gate.admit(_WRONG, gauge, 1, now) or 0
        if at:
            wait_s = -(-(at - now) // 1000)
            told = f"Too many wrong keys came from your address: come back in {wait_s} s."
            raise Refused(429, told, headers={"retry-after": str(wait_s)})
        if principal is None:
            gate.spend(_WRONG, gauge, 1, now)
        else:
            self._proven.add(principal.id)
        return principal

    async def _logged_in(self, request: HTTPConnection) -> Principal | None:
        """By the cookie of a login, from a page of this origin and no other."""
        text = request.cookies.get(COOKIE)
        if not text or is_cross_site(request.headers):
            return None
        changes = request.scope.get("method", "GET") not in SAFE_METHODS
        if changes and not {"origin", "sec-fetch-site"} & set(request.headers.keys()):
            raise Refused(
                403,
                "A cookie changes nothing by itself: send Origin, as browsers do, or a key.",
                code="cross_site",
            )
        kept = await self._app.engine.get("login", [login_key(text)])
        return await self.keyring.by_id(msgspec.json.decode(kept[0].value)) if kept else None

    async def ticket(self, principal: Principal, path: str) -> str:
        """What a browser can put into an address: for one connection, soon, to this path."""
        now = await self._app.engine.now()
        ticket = Ticket(principal, path, secrets.token_urlsafe(16), now + TICKET_MS)
        return await self.signer.sign(msgspec.json.encode(ticket), b"ticket")

    async def _redeem(self, request: HTTPConnection) -> Principal | None:
        told = await self.signer.signed(request.query_params["ticket"], b"ticket")
        if told is None:
            return None
        ticket = msgspec.json.decode(told, type=Ticket)
        here = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        if ticket.path != here or ticket.until <= await self._app.engine.now():
            return None
        once = Put(kind="ticket", key=ticket.nonce, value=b"{}", expect=0, ttl_ms=2 * TICKET_MS)
        [first] = await self._app.engine.put([once])
        return ticket.principal if first is not None else None

    async def note(self, request: Request, response: Response) -> None:
        """Into the audit log: who did what to what."""
        principal = principal_of(request)
        told = {
            "by": principal.name,
            "role": principal.role,
            "key": principal.id or None,
            "method": request.method,
            "path": request.url.path[:500],
            "status": response.status_code,
        }
        await self._app.engine.append([NewEvent(kind="audit", data=dumps(told, "audit"))])

    async def _pace(self, principal: Principal) -> None:
        """One bucket per key in each server process."""
        if principal.rate is None:
            return
        if len(self._rates) > MAX_RATES:
            self._rates.clear()
        limit = Limit("key", rate=principal.rate)
        gauge = self._rates.setdefault(principal.id, Gauge("key"))
        now = await self._app.engine.now()
        at = gate.admit(limit, gauge, 1, now) or 0
        if at:
            wait_s = -(-(at - now) // 1000)
            told = f"{principal.name!r} may ask {principal.rate}: come back in {wait_s} s."
            raise Refused(429, told, headers={"retry-after": str(wait_s)})
        gate.spend(limit, gauge, 1, now)


_WRONG: Final = Limit("wrong", rate=WRONG_RATE)
_HOW: Final = (
    "Send an API key or a session token: Authorization: Bearer …; `outlast keys create` makes one."
)


def login_key(text: str) -> str:
    """What is kept of a cookie."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def door_of(request: HTTPConnection) -> Door:
    door: Door = request.app.state.door
    return door


def principal_of(request: HTTPConnection) -> Principal:
    principal: Principal = request.state.principal
    return principal


async def has_to_go(request: HTTPConnection) -> None:
    """Until the caller has to go: its token is over, or its key is good no more."""
    who = principal_of(request)
    if who.until is not None:
        left_ms = max(who.until - await outlast_of(request).engine.now(), 0)
        await asyncio.sleep(left_ms / 1_000)
    else:
        await door_of(request).keyring.lost(who.id)


async def visible(request: HTTPConnection, text: str) -> TaskId:
    """The id in a path, of a task that the caller may see; another one does not exist."""
    id, principal = path_id(text), principal_of(request)
    if principal.is_scoped:
        task = await reads_of(request).fetch(id)
        if not principal.sees(task) and not await _has_begun(request, task):
            raise NotFound(f"There is no task {id}.")
    return id


async def _has_begun(request: HTTPConnection, task: Task) -> bool:
    """Is this a bulk that the caller's key has begun? It is in no scope, but its own."""
    principal = principal_of(request)
    if task.type != BULK or not principal.id:
        return False
    terms = (Term("id", (task.id,)), Term(f"attr.{BY}", (principal.id,)))
    return bool((await outlast_of(request).engine.tasks(TaskQuery(terms=terms, limit=1))).items)


async def within_scope(request: Request, query: TaskQuery) -> TaskQuery:
    """The query, for tasks that the caller may see."""
    principal = principal_of(request)
    if not principal.is_scoped:
        return query
    terms = [
        await _asked_of(request, term) if term.field == "ahead_of" else term for term in query.terms
    ]
    if principal.queues:
        terms.append(Term("queue", principal.queues))
    if principal.types:
        terms.append(Term("type", principal.types))
    if principal.role == "session":
        mine = Term("user_id", (principal.user_id or "",))
        if principal.user_id is None or mine not in terms:
            terms.append(Term("session_id", (principal.session_id or "",)))
    return TaskQuery(terms=tuple(terms), limit=query.limit, cursor=query.cursor)


async def _asked_of(request: Request, term: Term) -> Term:
    """A term about other tasks, without those that the caller may not see: who of one's own comes
    before them would tell that they wait, and where."""
    found = [await reads_of(request).find(str(id)) for id in term.values]
    seen = tuple(task.id for task in found if task and principal_of(request).sees(task))
    return replace(term, values=seen or ("",))
