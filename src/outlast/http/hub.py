"""One reader of the log for all sockets of a server: it wakes those whose session it reads of."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.requests import HTTPConnection

from outlast.core.model import Cursor, EventQuery
from outlast.engine import Engine
from outlast.notices import KINDS
from outlast.stream import tail

logger: Final = logging.getLogger("outlast.http")

PAUSE_S: Final = 1.0


class Hub:
    """Reads while somebody listens."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._reading: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def following(self, session_id: str) -> AsyncIterator[asyncio.Event]:
        """Set whenever there is news of the session, from now on."""
        rung = asyncio.Event()
        waiters = self._waiting.setdefault(session_id, set())
        waiters.add(rung)
        try:
            if self._reading is None:
                end = await self._engine.events(EventQuery(after="$"))
                if self._reading is None:
                    self._reading = asyncio.create_task(self._read(end.next))
            yield rung
        finally:
            waiters.discard(rung)
            if not waiters:
                self._waiting.pop(session_id, None)
            if not self._waiting and self._reading is not None:
                self._reading.cancel()
                self._reading = None

    async def _read(self, after: Cursor) -> None:
        while True:
            try:
                async for event in tail(self._engine, EventQuery(after=after, kinds=KINDS)):
                    after = event.cursor
                    for rung in self._waiting.get(event.session_id or "", ()):
                        rung.set()
            except Exception as problem:
                logger.warning("Sockets hear nothing for a moment: %s", problem)
                await asyncio.sleep(PAUSE_S)


def hub_of(request: HTTPConnection) -> Hub:
    hub: Hub = request.app.state.hub
    return hub
