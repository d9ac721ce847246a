"""Wake-ups: one subscription per engine to the channel on which every step tells its topics.

A connection that broke is made again, and then everybody is rung: what was said meanwhile is
unknown. Callers poll besides, so nobody is deaf for longer than their poll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Final

from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from outlast.core.errors import EngineDown
from outlast.engines.redis.link import Link

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.5
ALIVE_EVERY_S: Final = 15.0
"""A ping over the subscription: a connection that died in silence is noticed within twice this."""
SUBSCRIBE_S: Final = 5.0


class Bell:
    """Hears the channel and rings the watchers of this process."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._channel = f"{link.prefix}wake"
        self._watchers: dict[str, set[Watching]] = {}
        self._hearing: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def add(self, watching: Watching) -> None:
        """From now on; returns once the channel is subscribed, or when that takes too long."""
        for topic in watching.topics:
            self._watchers.setdefault(topic, set()).add(watching)
        if self._hearing is None:
            self._hearing = asyncio.create_task(self._hear())
        with suppress(TimeoutError):
            async with asyncio.timeout(SUBSCRIBE_S):
                await self._ready.wait()

    def discard(self, watching: Watching) -> None:
        for topic in watching.topics:
            there = self._watchers.get(topic, set())
            there.discard(watching)
            if not there:
                self._watchers.pop(topic, None)

    async def close(self) -> None:
        hearing, self._hearing = self._hearing, None
        if hearing is not None:
            hearing.cancel()
            with suppress(asyncio.CancelledError):
                await hearing

    async def _hear(self) -> None:
        pause_s = FIRST_PAUSE_S
        again = False
        while True:
            pubsub = self._link.client.pubsub()
            try:
                await pubsub.subscribe(self._channel)
                await self._listen(pubsub, again)
            except (RedisError, OSError):
                again = True
                pause_s = FIRST_PAUSE_S if self._ready.is_set() else pause_s
                self._ready.clear()
                with suppress(RedisError, OSError, EngineDown):
                    await self._link.find()  # it may be another server by now
            finally:
                with suppress(RedisError, OSError):
                    await pubsub.aclose()  # type: ignore[no-untyped-call]
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _listen(self, pubsub: PubSub, again: bool) -> None:
        asked = False
        while True:
            message = await pubsub.get_message(timeout=ALIVE_EVERY_S)
            if message is None:
                if asked:
                    raise OSError("the subscription does not answer")
                await pubsub.ping()
                asked = True
                continue
            asked = False
            if message["type"] == "subscribe":
                self._ready.set()
                if again:
                    self._ring(list(self._watchers))
            elif message["type"] == "message":
                self._ring(self._topics_in(message["data"].decode()))

    def _topics_in(self, message: str) -> Iterator[str]:
        """One to a line; behind `task:` there may be several ids. A worker hears of hundreds in
        every turn and waits for none of them."""
        waited_for = any(topic.startswith("task:") for topic in self._watchers)
        for line in message.split("\n"):
            if not line.startswith("task:"):
                yield line
            elif waited_for:
                yield from (f"task:{task_id}" for task_id in line[5:].split("\x1e"))

    def _ring(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for watching in self._watchers.get(topic, ()):
                watching.rung.set()


class Watching:
    """One waiter for some topics."""

    def __init__(self, bell: Bell, topics: Collection[str]) -> None:
        self._bell = bell
        self.topics = frozenset(topics)
        self.rung = asyncio.Event()

    async def __aenter__(self) -> Watching:
        await self._bell.add(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._bell.discard(self)

    async def wait(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self.rung.wait()
        except TimeoutError:
            return False
        self.rung.clear()
        return True
