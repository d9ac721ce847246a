"""Wake-ups between processes: a capped collection that everybody follows from its end.

After a commit the topics it was about are inserted there. Following a capped collection costs the
server nothing while it is quiet. (A change stream would have to look through every transaction of
the whole replica set, once per follower.) A lost hint costs a second: everybody also polls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from typing import Final

from pymongo import CursorType
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from outlast.core.ids import new_id
from outlast.engines._shared import EVERYTHING, Ringer, Watching, few
from outlast.engines.mongo.db import Link
from outlast.engines.mongo.schema import Database

MAX_TOPICS: Final = 100
AWAIT_MS: Final = 5_000
"""How long the server waits for news before it answers that there is none."""
RETRY_S: Final = 0.5


class Bell(Ringer):
    """Rings the waiters of this process, and those of the others through the collection."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._origin = new_id()
        self._follower: asyncio.Task[None] | None = None
        self._following = asyncio.Event()
        self._closed = False

    @asynccontextmanager
    async def watching(self, topics: Collection[str]) -> AsyncIterator[Watching]:
        """A waiter for some topics."""
        await self._follow_others()
        async with Watching(self.watchers, topics) as watching:
            yield watching

    async def _send(self) -> None:
        hints = self._link.db.get_collection("hint", write_concern=WriteConcern(1))
        while self._topics:
            topics, self._topics = self._topics, set()
            with suppress(PyMongoError):  # a hint that is lost is found by the next poll
                told = sorted(few(topics, MAX_TOPICS))
                await hints.insert_one({"topics": told, "origin": self._origin})

    async def _follow_others(self) -> None:
        """Hear the other processes from now on; done once the place in the collection is known."""
        if self._follower is None:
            self._closed = False
            self._following = asyncio.Event()  # an engine may be opened again in another loop
            self._follower = asyncio.create_task(self._follow(), name="outlast-follow")
        with suppress(TimeoutError):
            async with asyncio.timeout(RETRY_S):
                await self._following.wait()

    async def _follow(self) -> None:
        while not self._closed:  # the driver may turn a cancel into an error of its own
            with suppress(PyMongoError):
                await self._follow_once(self._link.db)
            if not self._closed:
                await asyncio.sleep(RETRY_S)

    async def _follow_once(self, db: Database) -> None:
        hints = db.get_collection("hint", read_concern=ReadConcern("local"))
        old = await hints.count_documents({})
        if self._following.is_set():
            self._ring_here({EVERYTHING})  # who was deaf looks, now that nothing more is missed
        cursor = hints.find(cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(AWAIT_MS)
        async with cursor:
            self._following.set()
            while cursor.alive:  # the loop ends whenever there was no news for as long as asked
                async for hint in cursor:
                    if old:
                        old -= 1
                    elif hint.get("origin") != self._origin:  # ours were rung before they were sent
                        self._ring_here(hint["topics"])

    async def close(self) -> None:
        self._closed = True
        if self._sender is not None:
            await self._sender
        follower, self._follower = self._follower, None
        while follower is not None and not follower.done():
            follower.cancel()
            await asyncio.wait({follower}, timeout=0.1)
