"""PgQueuer with asyncpg and uvloop: a row is deleted when its task is over, and a log row kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import asyncpg
import tally
import uvloop
from adapter import URL, Coroutines
from pgqueuer import PgQueuer  # type: ignore[import-not-found]  # in an environment of its own
from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found]
from pgqueuer.models import Job  # type: ignore[import-not-found]
from pgqueuer.queries import Queries  # type: ignore[import-not-found]

BATCH = 250  # what it claims at once; its flush of ends follows


class Client:
    queries: Queries

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        connection = await asyncpg.connect(URL)
        self.queries = Queries(AsyncpgDriver(connection))
        yield
        await connection.close()

    def prepare(self) -> None:
        async def install() -> None:
            async with self.open():
                await self.queries.install()

        asyncio.run(install())

    def noop(self) -> Awaitable[object]:
        return self.queries.enqueue("noop", None)  # type: ignore[no-any-return]

    def late(self, asked_ns: int) -> Awaitable[object]:
        return self.queries.enqueue("late", b"%d" % asked_ns)  # type: ignore[no-any-return]

    def many(self, n: int) -> Awaitable[object]:
        return self.queries.enqueue(["noop"] * n, [None] * n, [0] * n)  # type: ignore[no-any-return]


async def work() -> None:
    worker = PgQueuer(AsyncpgDriver(await asyncpg.connect(URL)))

    @worker.entrypoint("noop")  # type: ignore[untyped-decorator]
    async def noop(job: Job) -> None:
        tally.tick()

    @worker.entrypoint("late")  # type: ignore[untyped-decorator]
    async def late(job: Job) -> None:
        tally.since(int(job.payload))

    await worker.run(batch_size=BATCH)


client = Client()
ADAPTER = Coroutines(
    client.open,
    client.noop,
    client.late,
    ["python", "-m", "pgqueuer_adapter"],
    prepare=client.prepare,
    many=client.many,
)

if __name__ == "__main__":
    uvloop.run(work())
