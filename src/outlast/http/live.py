"""Connections that stay open: streams of events and waits, which end with the client or the server.

Nothing is buffered here: the next event is read from the log when the last one has been sent, so a
slow reader costs one page of events and holds nobody up.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Final, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from outlast.access import Principal
from outlast.core.errors import OutlastError
from outlast.http.problems import Refused

logger: Final = logging.getLogger("outlast.http")

T = TypeVar("T")

Over = Callable[[], Coroutine[Any, Any, None]]
"""Waits until a caller has to go: its token is over, its key was revoked."""

MAX_OPEN: Final = 5_000
MAX_SESSION: Final = 100
"""For one end user; a key may have a quota."""
RETRY_S: Final = 5
SLOW_S: Final = 30.0
PING: Final = b": ping\n\n"


class Live:
    """The open connections of one server: how many they are, and the bell that ends them all."""

    def __init__(self, heartbeat_s: float) -> None:
        self.heartbeat_s = heartbeat_s
        self.closing = asyncio.Event()
        self.open = 0
        self._by: Counter[str] = Counter()
        self.reading = 0
        """Bytes of bodies that are arriving."""

    def enter(self, who: Principal) -> None:
        """Take a place, or be refused; give it back with `leave`."""
        if self.closing.is_set():
            raise Refused(503, "The server is shutting down.")
        if self.open >= MAX_OPEN:
            raise Refused(503, f"{MAX_OPEN} streams are open, which is the most.")
        name, most = _bound(who)
        if most is not None and self._by[name] >= most:
            raise Refused(
                429,
                f"{who.name!r} has {most} streams open, which is the most.",
                code="quota_spent",
                headers={"retry-after": str(RETRY_S)},
            )
        self._by[name] += 1
        self.open += 1

    def leave(self, who: Principal) -> None:
        self.open -= 1
        name, _ = _bound(who)
        self._by[name] -= 1
        if not self._by[name]:
            del self._by[name]

    async def ended(self, over: Over) -> None:
        """Until the server closes, or the caller has to go."""
        ends = (asyncio.create_task(self.closing.wait()), asyncio.create_task(over()))
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end(*ends)

    async def wait(
        self, work: Coroutine[Any, Any, T], receive: Receive, who: Principal, over: Over
    ) -> T | None:
        """The result of the work; None when client or server went first, or the client had to."""
        try:
            self.enter(who)
        except Refused:
            work.close()
            raise
        task = asyncio.create_task(work)
        ends = {asyncio.create_task(_gone(receive)), asyncio.create_task(self.ended(over))}
        try:
            await asyncio.wait({task, *ends}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            await _end(task, *ends)
            self.leave(who)


def _bound(who: Principal) -> tuple[str, int | None]:
    """Under which name a caller's connections are counted, and how many there may be."""
    if who.role == "session":
        return f"session:{who.session_id}", MAX_SESSION
    return f"key:{who.id}", None if who.quota is None else who.quota.streams


class EventStream(Response):
    """Server-sent events, with a comment now and then so that everybody knows they are alive."""

    media_type = "text/event-stream"

    def __init__(
        self,
        live: Live,
        frames: AsyncGenerator[bytes, None],
        who: Principal,
        over: Over,
    ) -> None:
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(headers=headers)
        del self.headers["content-length"]
        self._live = live
        self._frames = frames
        self._who = who
        self._over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._live.enter(self._who)
        gone = asyncio.create_task(_gone(receive))
        closing = asyncio.create_task(self._live.ended(self._over))
        frame: asyncio.Task[bytes | None] | None = None
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while True:
                if frame is None:
                    frame = asyncio.create_task(_next(self._frames))
                await asyncio.wait(
                    {frame, gone, closing},
                    timeout=self._live.heartbeat_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if gone.done() or closing.done():
                    break
                body: bytes | None = PING
                if frame.done():
                    body, frame = frame.result(), None
                if body is None:
                    break
                async with asyncio.timeout(SLOW_S):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        except TimeoutError:
            logger.warning("A stream was dropped: nothing was read from it for %d s", SLOW_S)
            return  # the server closes the connection; the client may come back with its cursor
        except OutlastError as problem:
            # The answer has begun; the client comes back with its cursor and is told the reason.
            logger.warning("A stream was cut short: %s", problem)
        finally:
            await _end(gone, closing, *([] if frame is None else [frame]))
            await self._frames.aclose()
            self._live.leave(self._who)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    """Until the client has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _next(frames: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(frames, None)


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
