"""taskiq on Redis streams, a hundred read at once; by default no results are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import tally
from adapter import URL, Coroutines
from taskiq_redis import RedisStreamBroker  # type: ignore[import-not-found]  # its own environment

broker = RedisStreamBroker(url=URL, xread_count=100)


@broker.task  # type: ignore[untyped-decorator]
async def noop() -> int:
    tally.tick()
    return 1


@broker.task  # type: ignore[untyped-decorator]
async def late(asked_ns: int) -> None:
    tally.since(asked_ns)


@asynccontextmanager
async def client() -> AsyncIterator[None]:
    await broker.startup()
    yield
    await broker.shutdown()


ADAPTER = Coroutines(
    client,
    noop.kiq,
    late.kiq,
    [
        "taskiq", "worker", "taskiq_adapter:broker", "--workers", "1", "--log-level", "ERROR",
        "--max-async-tasks", "100", "--max-prefetch", "100",
    ],
)  # fmt: skip
