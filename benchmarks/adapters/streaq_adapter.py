"""streaq: results are kept for five minutes."""

from __future__ import annotations

import tally
from adapter import URL, Coroutines
from streaq import Worker  # type: ignore[import-not-found]  # in an environment of its own

worker = Worker(redis_url=URL, concurrency=100)


@worker.task(silent=True)  # type: ignore[untyped-decorator]
async def noop() -> int:
    tally.tick()
    return 1


@worker.task(silent=True)  # type: ignore[untyped-decorator]
async def late(asked_ns: int) -> None:
    tally.since(asked_ns)


async def one() -> None:
    await noop.enqueue()


async def one_late(asked_ns: int) -> None:
    await late.enqueue(asked_ns)


async def many(n: int) -> None:
    await worker.enqueue_many([noop.enqueue() for _ in range(n)])


ADAPTER = Coroutines(
    lambda: worker, one, one_late, ["streaq", "run", "streaq_adapter:worker"], many=many
)
