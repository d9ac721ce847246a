"""Outlast on SQLite as it comes: fsync, the whole record of every task kept, and the full log."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

import tally
from adapter import FOLDER, gap_s

from outlast.app import Outlast
from outlast.core.model import EventQuery, TaskQuery

BATCH = 1_000

app = Outlast(f"sqlite:///{FOLDER / 'outlast.db'}")


# followed: the full log, three events a task, as for tasks of a session.
@app.task(followed=True)
async def noop() -> int:
    tally.tick()
    return 1


@app.task(followed=True)
async def late(asked_ns: int) -> None:
    tally.since(asked_ns)


class Mine:
    def enqueue(self, n: int, callers: int) -> float:
        return asyncio.run(_enqueue(n, callers))

    def bulk(self, n: int) -> float:
        return asyncio.run(_bulk(n))

    def pace(self, n: int) -> None:
        asyncio.run(_pace(n))

    def check(self) -> dict[str, object]:
        return asyncio.run(_check())

    def work(self) -> NoReturn:
        command = str(Path(sys.executable).with_name("outlast"))
        os.execv(command, [command, "worker", "outlast_adapter:app"])  # noqa: S606


async def _enqueue(n: int, callers: int) -> float:
    async def caller() -> None:
        for _ in range(n // callers):
            await noop.enqueue()

    async with app:
        since = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(callers)))
        return time.perf_counter() - since


async def _bulk(n: int) -> float:
    async with app:
        since = time.perf_counter()
        for begin in range(0, n, BATCH):
            await app.enqueue([noop.call() for _ in range(min(BATCH, n - begin))])
        return time.perf_counter() - since


async def _pace(n: int) -> None:
    async with app:
        for _ in range(n):
            await asyncio.sleep(gap_s())
            await late.enqueue(time.monotonic_ns())


async def _check() -> dict[str, object]:
    async with app:
        by = {str(c.by[0]): c.n for c in await app.engine.count(TaskQuery(), ("status",))}
        end = await app.engine.events(EventQuery(after="$"))
        return {**by, "events": int(end.next), "durability": app.engine.durability}


ADAPTER = Mine()
