"""arq: results are kept for an hour; it polls every half second."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import tally
from adapter import URL, Coroutines
from arq import create_pool  # type: ignore[import-not-found]  # in an environment of its own
from arq.connections import ArqRedis, RedisSettings  # type: ignore[import-not-found]

SETTINGS = RedisSettings.from_dsn(URL)


async def noop(ctx: object) -> int:
    tally.tick()
    return 1


async def late(ctx: object, asked_ns: int) -> None:
    tally.since(asked_ns)


class WorkerSettings:
    """What its command reads."""

    functions = (noop, late)
    redis_settings = SETTINGS
    max_jobs = 100


class Client:
    pool: ArqRedis

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        self.pool = await create_pool(SETTINGS)
        yield
        await self.pool.aclose()

    def noop(self) -> Awaitable[object]:
        return self.pool.enqueue_job("noop")  # type: ignore[no-any-return]

    def late(self, asked_ns: int) -> Awaitable[object]:
        return self.pool.enqueue_job("late", asked_ns)  # type: ignore[no-any-return]


client = Client()
ADAPTER = Coroutines(client.open, client.noop, client.late, ["arq", "arq_adapter.WorkerSettings"])
