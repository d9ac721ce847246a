"""WebSockets: who is let in, what is pushed to them, and with which words they are let go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from fastapi import WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from outlast.core.errors import OutlastError
from outlast.http.door import door_of, has_to_go
from outlast.http.feed import Feed
from outlast.http.live import Live
from outlast.http.problems import Refused, problem_of
from outlast.http.state import live_of
from outlast.views import View, to_json

logger: Final = logging.getLogger("outlast.http")

MAX_MESSAGE: Final = 65_536
SLOW_S: Final = 20.0
"""Who does not read for this long is let go, and may come back."""

Part = Callable[[], Coroutine[Any, Any, None]]
"""Something that a socket does until it ends: the first that ends, ends the socket."""


async def converse(websocket: WebSocket, prepare: Callable[[], Awaitable[Sequence[Part]]]) -> None:
    """Let a socket in, if it may, and do what `prepare` says; a refusal is a problem over HTTP."""
    live = live_of(websocket)
    try:
        who = await door_of(websocket).admit(websocket, "look", scoped=True)
        websocket.state.principal = who
        live.enter(who)
    except (OutlastError, Refused) as problem:
        await websocket.send_denial_response(problem_of(problem))
        return
    try:
        try:
            parts = await prepare()
        except (OutlastError, Refused) as problem:
            await websocket.send_denial_response(problem_of(problem))
            return
        await websocket.accept()
        await _talk(websocket, live, parts)
    finally:
        live.leave(who)


def pushing(websocket: WebSocket, feed: Feed, *first: View) -> Sequence[Part]:
    """Tell the feed; what the client says is read, so that its end is noticed, and ignored."""

    async def push() -> None:
        for view in first:
            await send(websocket, view)
        async for told in feed:
            await send(websocket, told.item)

    async def hear() -> None:
        while (await websocket.receive())["type"] != "websocket.disconnect":
            pass

    return push, hear


async def send(websocket: WebSocket, view: View) -> None:
    async with asyncio.timeout(SLOW_S):
        await websocket.send_text(to_json(view).decode())


async def _talk(websocket: WebSocket, live: Live, parts: Sequence[Part]) -> None:
    tasks: set[asyncio.Task[Any]] = {asyncio.create_task(part()) for part in parts}
    ended = asyncio.create_task(live.ended(partial(has_to_go, websocket)))
    tasks.add(ended)
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        code, reason = 1000, ""
        if live.closing.is_set():
            code, reason = 1012, "The server restarts; come back."
        elif ended in done:
            code, reason = 1008, "The key or token is over."
        for part in done:
            error = part.exception()
            if isinstance(error, TimeoutError):
                code, reason = 1013, f"Nothing was read for {SLOW_S:.0f} s; come back."
            elif isinstance(error, OutlastError | Refused):
                code, reason = 1008, str(error)[:120]
            elif error is not None and not isinstance(error, WebSocketDisconnect):
                logger.error("A socket failed", exc_info=error)
                code, reason = 1011, "Something unexpected happened."
        if websocket.client_state is WebSocketState.CONNECTED:
            with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
                async with asyncio.timeout(1):  # one that reads nothing reads no farewell
                    await websocket.close(code, reason)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
