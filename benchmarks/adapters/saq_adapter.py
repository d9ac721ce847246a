"""SAQ on Redis: results are kept for ten minutes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import tally
from adapter import URL, Coroutines
from saq import Queue  # type: ignore[import-not-found]  # in an environment of its own

queue = Queue.from_url(URL)


async def noop(ctx: object) -> int:
    tally.tick()
    return 1


async def late(ctx: object, *, asked_ns: int) -> None:
    tally.since(asked_ns)


settings = {"queue": queue, "functions": [noop, late], "concurrency": 100}


@asynccontextmanager
async def client() -> AsyncIterator[None]:
    await queue.connect()
    yield
    await queue.disconnect()


ADAPTER = Coroutines(
    client,
    lambda: queue.enqueue("noop"),
    lambda asked_ns: queue.enqueue("late", asked_ns=asked_ns),
    ["saq", "saq_adapter.settings", "--quiet"],
)
