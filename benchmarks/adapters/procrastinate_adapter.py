"""Procrastinate: twenty at once, LISTEN/NOTIFY on; the row of a task and its events are kept."""

from __future__ import annotations

import asyncio

import tally
from adapter import URL, Coroutines
from procrastinate import App, PsycopgConnector  # type: ignore[import-not-found]  # its own env

app = App(connector=PsycopgConnector(conninfo=URL, max_size=20))


@app.task(name="noop")  # type: ignore[untyped-decorator]
async def noop() -> None:
    tally.tick()


@app.task(name="late")  # type: ignore[untyped-decorator]
async def late(asked_ns: int) -> None:
    tally.since(asked_ns)


def prepare() -> None:
    async def apply() -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    asyncio.run(apply())


async def work() -> None:
    async with app.open_async():
        await app.run_worker_async(concurrency=20)


ADAPTER = Coroutines(
    app.open_async,
    noop.defer_async,
    lambda asked_ns: late.defer_async(asked_ns=asked_ns),
    ["python", "-m", "procrastinate_adapter"],
    prepare=prepare,
    many=lambda n: noop.batch_defer_async(*({} for _ in range(n))),
)

if __name__ == "__main__":
    asyncio.run(work())
