"""Wake-ups: one connection that listens, and notifications that are collected and sent apart.

A NOTIFY takes a lock of the whole database while its transaction commits, so none is sent inside a
transaction of ours that writes: after a commit the topics of all callers go out together, at most
one statement at a time and one every 5 ms (`outlast.hint` is for the transactions of others). Where
nobody can listen (PgBouncer in transaction mode) the sequence is polled instead, and only while
somebody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Final

import asyncpg
import msgspec

from outlast.core.ids import new_id
from outlast.engines._shared import EVERYTHING, Ringer, few
from outlast.engines.postgres.db import CUT, Settings
from outlast.engines.postgres.enqueue import MAX_TOPICS

MAX_BYTES: Final = 7_900  # the server refuses 8,000
APART_S: Final = 0.005
# A notification is a commit: it need not wait for the disk.
NOTIFY: Final = "select set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"
POLL_S: Final = 0.05
RECONNECT_S: Final = 1.0
NOTIFY_S: Final = 5.0
CLOSE_S: Final = 1.0


class Bell(Ringer):
    """Rings the waiters of this process at once, and those of the others through the server."""

    def __init__(self, settings: Settings, pool: asyncpg.Pool) -> None:
        super().__init__()
        self._settings = settings
        self._pool = pool
        self._channel = f"outlast_{settings.schema}"
        self._origin = new_id()
        self._lost = asyncio.Event()
        self._tried = asyncio.Event()
        self._listening: asyncpg.Connection | None = None
        hear = self._poll if settings.listen is None else self._listen
        self._hearing = asyncio.create_task(hear(), name="outlast-hear")

    @property
    def listens(self) -> bool:
        """Is there a connection, at this moment, on which hints would come?"""
        return self._listening is not None

    async def start(self) -> None:
        """Until the first attempt to listen has ended, well or not."""
        if self._settings.listen is not None:
            await self._tried.wait()

    async def close(self) -> None:
        if self._sender is not None:  # the hints of the last moment
            await asyncio.wait({self._sender}, timeout=CLOSE_S)
            self._sender.cancel()
        self._hearing.cancel()
        await asyncio.gather(self._hearing, return_exceptions=True)

    async def _send(self) -> None:
        while self._topics:
            topics, self._topics = self._topics, set()
            # Not from the pool if it can be helped: who takes turns keeps its warm connection.
            by = self._listening or self._pool
            try:
                await by.execute(
                    NOTIFY, self._channel, payload(self._origin, topics), timeout=NOTIFY_S
                )
            except Exception:
                self._lost.set()  # a connection that was cut in a statement tells no listener
            await asyncio.sleep(APART_S)

    async def _listen(self) -> None:
        """Listen for as long as the engine is open; who was deaf meanwhile looks himself."""
        while True:
            try:
                conn = await asyncpg.connect(
                    self._settings.listen,
                    statement_cache_size=self._settings.statement_cache_size,
                    timeout=10,
                )
            except (asyncpg.PostgresError, *CUT):
                self._tried.set()
                await asyncio.sleep(RECONNECT_S)
                continue
            try:
                self._lost.clear()
                conn.add_termination_listener(lambda _: self._lost.set())
                await conn.add_listener(self._channel, self._heard)
                self._listening = conn
                if self._tried.is_set():
                    self._ring_here([EVERYTHING])
                self._tried.set()
                await self._lost.wait()
            except (asyncpg.PostgresError, *CUT):
                self._tried.set()
                await asyncio.sleep(RECONNECT_S)
            finally:
                self._listening = None
                conn.terminate()

    def _heard(self, _conn: Any, _pid: int, _channel: str, payload: object) -> None:
        with suppress(msgspec.DecodeError):
            origin, *topics = msgspec.json.decode(str(payload), type=list[str])
            if origin != self._origin:  # ours were rung before they were sent
                self._ring_here(topics)

    async def _poll(self) -> None:
        """The counter of tasks and events: when it moves, something happened."""
        schema = self._settings.schema
        query = f"select last_value from {schema}.event_seq_seq"
        last: Any = None
        moved = False
        while True:
            await asyncio.sleep(POLL_S)
            if not self.watchers:
                continue
            with suppress(asyncpg.PostgresError, *CUT):
                now = await self._pool.fetchval(query)
                # A counter moves before its transaction commits: ring once more, a tick later.
                if moved or now != last:
                    self._ring_here([EVERYTHING])
                moved, last = now != last, now


def payload(origin: str, topics: Collection[str]) -> str:
    """A notification: who sends it, and the topics."""
    text = msgspec.json.encode([origin, *few(topics, MAX_TOPICS)])
    if len(text) > MAX_BYTES:
        text = msgspec.json.encode([origin, EVERYTHING])
    return text.decode()
