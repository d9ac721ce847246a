"""What every request passes: the Host check, the cross-site check, trailing slashes, and headers.

Without keys the server listens on loopback only, where two things can still reach it that should
not: a web page that the user has open (its forms and fetches are told by `Sec-Fetch-Site` or
`Origin`), and one whose own name was pointed at 127.0.0.1 (told by `Host`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outlast.core.errors import BadInput
from outlast.http.problems import problem

logger: Final = logging.getLogger("outlast.http")

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
# No inline script or style, nothing from another host, and no text that becomes markup.
CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
PREFLIGHT: Final = "access-control-request-method"
ALLOWED: Final = {
    "access-control-allow-methods": "GET, POST, PUT, DELETE",
    "access-control-allow-headers": "Authorization, Content-Type, Idempotency-Key, Last-Event-ID,"
    " Prefer",
    "access-control-max-age": "600",
}
EXPOSED: Final = "Location, Preference-Applied, Retry-After"
PROBED: Final = frozenset({"/health", "/livez", "/readyz", "/api/v1/health"})
SECURITY: Final[dict[str, str]] = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Guard:
    """ASGI middleware around the whole API. `loopback_only`: answer to names of this machine.
    `cors`: origins whose pages may use it too, with a key or a token of theirs."""

    def __init__(self, app: ASGIApp, *, loopback_only: bool, cors: Iterable[str] = ()) -> None:
        self._app = app
        self._loopback_only = loopback_only
        self._cors = frozenset(cors)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
                if self._cors:
                    headers.add_vary_header("Origin")
                if origin is not None:
                    headers["access-control-allow-origin"] = origin
                    headers["access-control-expose-headers"] = EXPOSED
            await send(message)

        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if origin not in self._cors:
            origin = None
        # A page of another site always has a Host; probes of HTTP/1.0 may have none.
        host = headers.get("host", "localhost")
        if self._loopback_only and not is_loopback(_name_of(host)):
            refusal = problem(
                421,
                f"This server answers to localhost and 127.0.0.1 only, not to {host[:100]!r}.",
            )
            await refusal(scope, receive, send_guarded)
            return
        if origin is not None and scope["method"] == "OPTIONS" and PREFLIGHT in headers:
            await Response(status_code=204, headers=ALLOWED)(scope, receive, send_guarded)
            return
        if scope["method"] not in SAFE_METHODS and origin is None and is_cross_site(headers):
            refusal = problem(
                403, "Another site's page may not change anything here.", code="cross_site"
            )
            await refusal(scope, receive, send_guarded)
            return
        try:
            await self._app(_as_get(_without_slash(scope)), receive, send_guarded)
        except ClientDisconnect:
            return
        except Exception:
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if started:
                raise  # too late for an answer: the server closes the connection
            failure = problem(
                500, "Something unexpected happened; the server's log has the details."
            )
            await failure(scope, receive, send_guarded)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Browsers let every page open a socket to anywhere, and only tell from where."""
        headers = Headers(scope=scope)
        host = _name_of(headers.get("host", "localhost"))
        is_ours = headers.get("origin") in self._cors or not is_cross_site(headers)
        if (self._loopback_only and not is_loopback(host)) or not is_ours:
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "Another site."})
            return
        await self._app(_without_slash(scope), receive, send)


def _as_get(scope: Scope) -> Scope:
    """Load balancers ask for health with HEAD; the server leaves the body of the answer out."""
    if scope["method"] == "HEAD" and scope["path"] in PROBED:
        return {**scope, "method": "GET"}
    return scope


def is_loopback(host: str) -> bool:
    """Is this a name or an address of this very machine?"""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _name_of(host: str) -> str:
    """The host without its port: `[::1]:5278` is `::1`."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_cross_site(headers: Headers) -> bool:
    """As browsers tell it; programs send neither header."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    if origin is None:
        return False
    return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()


def _without_slash(scope: Scope) -> Scope:
    """A trailing slash never matters, and costs no redirect."""
    path, root = scope["path"], scope.get("root_path", "")
    if not path.endswith("/"):
        return scope
    bare = path.rstrip("/")
    return {**scope, "path": f"{root}/" if len(bare) <= len(root) else bare}


def check_origin(text: str) -> str:
    """An origin, as browsers write it; others would never fit."""
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https") and text == f"{parts.scheme}://{parts.netloc}"
        fits = fits and bool(parts.hostname) and "@" not in text and text == text.lower()
    except ValueError:
        fits = False
    if not fits or "*" in text:
        raise BadInput(
            f"cors={text[:100]!r}: give exact origins, as in https://app.example.com.", field="cors"
        )
    return text
