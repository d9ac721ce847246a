"""Serving an app over HTTP: one process, a port on loopback, and a quick but graceful end."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from outlast.access import Keyring
from outlast.app import Outlast
from outlast.core.errors import BadInput, Conflict
from outlast.http import pages
from outlast.http.api import create_api
from outlast.http.guard import is_loopback
from outlast.http.sockets import MAX_MESSAGE
from outlast.http.wire import MAX_HEAD, room, wire
from outlast.logs import no_queries

logger: Final = logging.getLogger("outlast.http")

DEFAULT_PORT: Final = 5278
# Requests under way may end; streams are told to, and need no time.
GRACE_S: Final = 5
HEALTH_PATHS: Final = frozenset({"/health", "/livez", "/readyz", "/metrics", "/api/v1/health"})


async def serve(
    app: Outlast,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    *,
    embedded_worker: bool = False,
    read_only: bool = False,
    cors: Sequence[str] = (),
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the API and the page of an app until SIGINT or SIGTERM.

    Without API keys it listens on loopback only. With `read_only` nobody changes anything.
    Pages of the origins in `cors` may use it too, with a key or token.
    `on_ready` is called with the address once it answers. Port 0 takes a free one.
    """
    # Opened here too, so that an engine that is down is an error and not a log line.
    async with app:
        has_keys = await Keyring(app.engine).exist()
        listener = listen(host, port, has_keys=has_keys)
        api = create_api(
            app,
            embedded_worker=embedded_worker,
            loopback_only=not has_keys,
            read_only=read_only,
            cors=cors,
        )
        api.state.door.had_keys = has_keys  # the last one may go before the first request comes
        if not pages.is_built():
            logger.warning(pages.UNBUILT)
        access = logging.getLogger("uvicorn.access")
        access.addFilter(_is_worth_a_line)
        logging.getLogger("uvicorn.error").addFilter(_is_no_refusal)
        for name in ("uvicorn.access", "uvicorn.error"):  # sockets are logged as errors are
            logging.getLogger(name).addFilter(no_queries)
        try:
            await Server(api, on_ready, api.state.live.closing.set).serve([listener])
        finally:
            access.removeFilter(_is_worth_a_line)
            listener.close()


def listen(host: str, port: int, *, has_keys: bool = False) -> socket.socket:
    """A listening socket; the reasons why there is none are told in one sentence."""
    if not 0 <= port <= 65_535:  # getaddrinfo would wrap it around
        raise BadInput(f"Cannot listen on port {port}: give 0 to 65535.", field="port")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise BadInput(f"Cannot listen on {host!r}, port {port}: {error}.", field="host") from error
    # IPv4 first: everything understands it.
    family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    if not has_keys and not is_loopback(str(address[0])):
        raise BadInput(
            f"Refusing to listen on {host}: without API keys everyone who can reach it could read"
            " and run tasks. Use --host 127.0.0.1, or make a key: outlast keys create admin.",
            field="host",
        )
    try:
        return socket.create_server(address, family=family, backlog=2048)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Conflict(
                f"Port {port} on {host} is in use: stop what listens there, or choose another with"
                " --port."
            ) from error
        raise BadInput(f"Cannot listen on {host}, port {port}: {error.strerror}.") from error


class Server(uvicorn.Server):
    """uvicorn, but its end also ends streams (`on_end`), and is no error."""

    def __init__(
        self,
        app: ASGIApp,
        on_ready: Callable[[str], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=wire(room()),
            log_config=None,
            lifespan="on",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
            h11_max_incomplete_event_size=MAX_HEAD,
            ws_max_size=MAX_MESSAGE,
            ws_per_message_deflate=False,  # it keeps 50 KB for each of thousands of sockets
        )
        super().__init__(config)
        self._on_ready = on_ready
        self._on_end = on_end

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_ready is not None and self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            self._on_ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._on_end is not None:
            self._on_end()
        await asyncio.sleep(0)  # streams write their last bytes before connections are closed
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        with super().capture_signals():
            yield
            # uvicorn would raise them again now: a stop that was asked for is a success.
            self._captured_signals.clear()


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Probes come every few seconds; uvicorn's arguments are client, method, path, …"""
    args = record.args
    if not isinstance(args, tuple) or len(args) < 3:
        return True
    return str(args[2]).partition("?")[0] not in HEALTH_PATHS


def _is_no_refusal(record: logging.LogRecord) -> bool:
    """A socket that is refused, and a stream that is dropped, are no errors of the server's."""
    return not str(record.msg).startswith("ASGI callable returned without completing")
