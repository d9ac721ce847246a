"""Outlast as it comes: the whole record of every task is kept, and the full log."""

from __future__ import annotations

import asyncio

import tally
from adapter import URL, Coroutines, batches

from outlast import Limit, Outlast
from outlast.core.ids import new_fence
from outlast.core.model import EventQuery, TaskQuery, Turn, Want, WorkerInfo

HOUR_MS = 3_600_000
SAMPLE = 50

app = Outlast(URL, limits=[Limit("full", slots=1)])


# followed: the full log, three events a task, as for tasks of a session.
@app.task(followed=True)
async def noop() -> int:
    tally.tick()
    return 1


@app.task(followed=True)
async def late(asked_ns: int) -> None:
    tally.since(asked_ns)


@app.task(limits=["full"])
async def stuck() -> None:
    tally.tick()


async def many(n: int) -> None:
    await app.enqueue([noop.call() for _ in range(n)])


class Mine(Coroutines):
    """With two more verbs: what is kept, and a crowd that waits."""

    def check(self) -> dict[str, object]:
        """How many are over, how they are kept, and the events of some of them."""
        return asyncio.run(_check())

    def crowd(self, n: int) -> None:
        """`n` tasks behind a limit that is full, and stays so."""
        asyncio.run(_crowd(n))


async def _prepare() -> None:
    async with app:
        pass


async def _check() -> dict[str, object]:
    async with app:
        engine = app.engine
        by = {str(c.by[0]): c.n for c in await engine.count(TaskQuery(), ("status",))}
        some = (await engine.tasks(TaskQuery(limit=SAMPLE))).items
        pages = [await engine.events(EventQuery(task_id=task.id)) for task in some]
        return {
            **by,
            "results": {str(task.result) for task in some} == {"b'1'"},
            "events": sum(len(page.items) for page in pages) / len(pages),
            "durability": engine.durability,
        }


async def _crowd(n: int) -> None:
    """One holds the slot under a long lease; the next meets it; the rest go behind that one."""
    async with app:
        for at_once in (1, 1):
            await app.enqueue([stuck.call() for _ in range(at_once)])
            while (await app.engine.exchange(_claim())).again:
                pass
        for size in batches(n):
            await app.enqueue([stuck.call() for _ in range(size)])


def _claim() -> Turn:
    return Turn(
        token=new_fence(),
        worker="crowd",
        lease_ms=HOUR_MS,
        wants=(Want("default", "primary", 1),),
        room=1,
        info=WorkerInfo(host="bench", pid=0),
    )


ADAPTER = Mine(
    lambda: app,
    noop.enqueue,
    late.enqueue,
    ["outlast", "worker", "outlast_adapter:app"],
    prepare=lambda: asyncio.run(_prepare()),
    many=many,
)
