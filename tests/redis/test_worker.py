"""A worker on this engine: tasks start by push, from the first one on."""

from __future__ import annotations

import asyncio

from outlast.app import Outlast
from outlast.worker import Worker


async def test_a_task_starts_by_push_from_the_first_one_on(shared_url: str) -> None:
    app = Outlast(f"{shared_url}?namespace=push")

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    async with app:
        worker = Worker(app)
        worker._poll_s = 3_600  # so that only a hint can start anything
        running = asyncio.create_task(worker.run())
        await worker.ready.wait()
        for n in range(5):
            handle = await double.enqueue(n)
            assert await handle.result(timeout="30s") == 2 * n
        worker.stop()
        await running
