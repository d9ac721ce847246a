"""The wire below the API: requests that are no HTTP, connections that hold still, and too many.

They are refused here, as problems too, before they cost anything. A connection *waits* while it has
no whole head of a request: after it was made, and between requests. One that waits too long is told
so and closed; one whose last bytes nobody takes is cut. When all places are taken, whoever has
waited longest makes room; when none waits, the newcomer is refused.
"""

from __future__ import annotations

import asyncio
import math
import resource
from http import HTTPStatus
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from outlast.http.problems import problem

# URL and headers together; h11 has a bound of its own, httptools has none.
MAX_HEAD: Final = 65_536
HEADER: Final = 32  # what one costs besides its text, as HTTP/2 counts
HEAD_S: Final = 10.0
STUCK_S: Final = 20.0
"""Who takes nothing of what was written for this long is cut off."""
LOOK_S: Final = 2.5
FRESH_S: Final = 1.0
"""Nobody makes room who has only just come."""
MAX_CONNECTIONS: Final = 6_000  # 5,000 streams, and a thousand others
SPARE: Final = 128
"""Files for everything else: the engine, the log, the listener, and refusals under way."""


def _answer(status: int, detail: str, code: str | None = None) -> bytes:
    told = problem(status, detail, code=code)
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode(), b"connection: close"]
    lines += [name + b": " + value for name, value in told.raw_headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + bytes(told.body)


_NO_HTTP: Final = _answer(400, "This is not HTTP, or its headers are too long.", "bad_http")
_TOO_SLOW: Final = _answer(408, f"The head of the request did not arrive within {HEAD_S:.0f} s.")
_FULL: Final = _answer(503, "Too many connections are open; come back in a moment.")


class Wire(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # the faster one that is there
    """uvicorn's protocol, with bounds on the head of a request and on the patience with it."""

    most: ClassVar[int]
    waiting: ClassVar[dict[Wire, float]]
    """Since when, by the clock of the loop; the longest first."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._left = self._stuck = 0
        self._looking = self.loop.call_later(LOOK_S, self._look)
        if len(self.connections) > self.most and not self._make_room():
            self._refuse(_FULL)
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._has_no_request:
            self.waiting.pop(self, None)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._has_no_request:
            self._wait()

    def handle_websocket_upgrade(self, *request: Any) -> None:
        self._end()
        super().handle_websocket_upgrade(*request)

    @property
    def _has_no_request(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self.waiting.pop(self, None)
        self.waiting[self] = self.loop.time()

    def _end(self) -> None:
        self.waiting.pop(self, None)
        self._looking.cancel()

    def _look(self) -> None:
        """Now and then: does it go on?"""
        self._looking = self.loop.call_later(LOOK_S, self._look)
        left = self.transport.get_write_buffer_size()
        self._stuck = self._stuck + 1 if left and left == self._left else 0
        self._left = left
        since = self.waiting.get(self)
        if self._stuck * LOOK_S >= STUCK_S:
            self.transport.abort()
        elif since is not None and self.loop.time() - since >= HEAD_S:
            self._refuse(_TOO_SLOW)

    def _make_room(self) -> bool:
        """The one that has waited longest goes, unless it has only just come."""
        oldest, since = next(iter(self.waiting.items()), (None, math.inf))
        if oldest is None or self.loop.time() - since < FRESH_S:
            return False
        self.waiting.pop(oldest)
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True

    def _refuse(self, answer: bytes) -> None:
        self.waiting.pop(self, None)
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()

    # the head of a request, as httptools reads it -------------------------------------------------

    def on_message_begin(self) -> None:
        self._head = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._grow(len(name) + len(value) + HEADER)
        super().on_header(name, value)

    def send_400_response(self, msg: str) -> None:
        self._refuse(_NO_HTTP)

    def _grow(self, size: int) -> None:
        self._head += size
        if self._head > MAX_HEAD:
            # Whatever a callback raises ends the parsing, and is answered with 400.
            raise ValueError("The head of the request is too long.")


def wire(most: int) -> type[Wire]:
    """The protocol of one server, with so many connections at most."""
    return type("Wire", (Wire,), {"most": most, "waiting": {}})


def room() -> int:
    """How many connections this process can have; it takes as many files as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + SPARE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, soft - SPARE)
