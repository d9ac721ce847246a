"""Wake-ups: one connection that listens, and notifications that are collected and sent apart.

A NOTIFY takes a lock of the whole database while its transaction commits, so none is sent inside a
transaction that writes: after a commit the topics of all callers go out together, at most one
statement at a time and one every 5 ms. Where nobody can listen (PgBouncer in transaction mode) the
sequences are polled instead, and only while somebody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, Final

import asyncpg
import msgspec

from outlast.engines._shared import EVERYTHING, Watching
from outlast.engines.postgres.db import Settings

MAX_PAYLOAD: Final = 7_900  # the server refuses 8,000 bytes
MAX_PARTS: Final = 4
APART_S: Final = 0.005
POLL_S: Final = 0.05
RECONNECT_S: Final = 1.0


class Bell:
    """Rings the waiters of this process at once, and those of the others through the server."""

    def __init__(self, settings: Settings, pool: asyncpg.Pool) -> None:
        self.watchers: set[Watching] = set()
        self._settings = settings
        self._pool = pool
        self._channel = f"outlast_{settings.schema}"
        self._topics: set[str] = set()
        self._news = asyncio.Event()
        self._lost = asyncio.Event()
        self._tried = asyncio.Event()
        tasks: list[Callable[[], Awaitable[None]]] = [self._send]
        tasks.append(self._poll if settings.listen is None else self._listen)
        self._tasks = [asyncio.ensure_future(task()) for task in tasks]

    async def start(self) -> None:
        """Until the first attempt to listen has ended, well or not."""
        if self._settings.listen is not None:
            await self._tried.wait()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def ring(self, topics: Iterable[str]) -> None:
        """Something about these topics was committed."""
        heard = frozenset(topics)
        if heard:
            self._ring_here(heard)
            self._topics |= heard
            self._news.set()

    def _ring_here(self, topics: Collection[str]) -> None:
        for watcher in tuple(self.watchers):
            watcher.hear(topics)

    async def _send(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            topics, self._topics = self._topics, set()
            with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
                await self._pool.execute(
                    "select pg_notify($1, p) from unnest($2::text[]) p",
                    self._channel,
                    payloads(topics),
                )
            await asyncio.sleep(APART_S)

    async def _listen(self) -> None:
        """Listen for as long as the engine is open; who was deaf meanwhile looks himself."""
        while True:
            try:
                conn = await asyncpg.connect(
                    self._settings.listen, statement_cache_size=0, timeout=10
                )
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
                self._tried.set()
                await asyncio.sleep(RECONNECT_S)
                continue
            try:
                self._lost.clear()
                conn.add_termination_listener(lambda _: self._lost.set())
                await conn.add_listener(self._channel, self._heard)
                if self._tried.is_set():
                    self._ring_here([EVERYTHING])
                self._tried.set()
                await self._lost.wait()
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                self._tried.set()
                await asyncio.sleep(RECONNECT_S)
            finally:
                conn.terminate()

    def _heard(self, _conn: Any, _pid: int, _channel: str, payload: object) -> None:
        with suppress(msgspec.DecodeError):
            self._ring_here(msgspec.json.decode(str(payload), type=list[str]))

    async def _poll(self) -> None:
        """The counters of tasks and events: when they move, something happened."""
        schema = self._settings.schema
        query = (
            f"select (select last_value from {schema}.task_seq_seq), "
            f"(select last_value from {schema}.event_seq_seq)"
        )
        last: Any = None
        moved = False
        while True:
            await asyncio.sleep(POLL_S)
            if not self.watchers:
                continue
            with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
                now = tuple(await self._pool.fetchrow(query))
                # A counter moves before its transaction commits: ring once more, a tick later.
                if moved or now != last:
                    self._ring_here([EVERYTHING])
                moved, last = now != last, now


def payloads(topics: Collection[str]) -> list[str]:
    """The topics in pieces that fit into a notification; too many of them are everything."""
    parts: list[list[str]] = [[]]
    size = 2
    for topic in sorted(topics):
        length = len(msgspec.json.encode(topic)) + 1
        if length > MAX_PAYLOAD:
            return [f'["{EVERYTHING}"]']
        if size + length > MAX_PAYLOAD:
            parts.append([])
            size = 2
        parts[-1].append(topic)
        size += length
    if len(parts) > MAX_PARTS:
        return [f'["{EVERYTHING}"]']
    return [msgspec.json.encode(part).decode() for part in parts]
