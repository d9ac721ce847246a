"""A worker on this engine: tasks start by push, from the first one on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import structs

from outlast.app import Outlast
from outlast.core.errors import EngineDown
from outlast.core.model import WorkerInfo
from outlast.worker import Worker
from outlast.worker.pulse import Pulse, beat_of


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


async def test_a_pulse_that_began_while_the_server_was_away_beats_when_it_is_back(
    make_server: Callable[..., Any],
) -> None:
    server = make_server()
    server.kill()
    loop, tried, beaten = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def beat() -> tuple[Any, int]:
        loop.call_soon_threadsafe(tried.set)
        turn = beat_of("w", 10_000)
        return structs.replace(turn, info=WorkerInfo(host="test", pid=1)), 0

    pulse = Pulse(server.url, 0.01, beat, lambda _: loop.call_soon_threadsafe(beaten.set))
    async with asyncio.timeout(30):
        await tried.wait()
        tried.clear()
        await tried.wait()  # the second beat begins: the first has failed
        await asyncio.to_thread(server.run)
        await beaten.wait()
    await pulse.close()


async def test_a_worker_hears_of_tasks_again_when_the_server_is_back(
    make_server: Callable[..., Any],
) -> None:
    """Killed under load: what was acknowledged is done, and what comes then starts by push."""
    server = make_server(fsync="always")
    app = Outlast(server.url)

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    async def produce(n: int) -> list[Any]:
        """Until the server dies."""
        handles = []
        with suppress(EngineDown):
            while True:
                handles.append((n, await double.enqueue(n)))
        return handles

    async with app:
        worker = Worker(app)
        worker._poll_s = 3_600  # so that only a hint can start anything
        running = asyncio.create_task(worker.run())
        await worker.ready.wait()
        first = await double.enqueue(1)
        producers = [asyncio.create_task(produce(n)) for n in range(5)]
        await first.result(timeout="30s")
        server.kill()
        acknowledged = [pair for handles in await asyncio.gather(*producers) for pair in handles]
        await asyncio.to_thread(server.run)
        async with asyncio.timeout(60):
            for n, handle in acknowledged:
                assert await handle.result(timeout="60s") == 2 * n
            for n in range(3):
                assert await (await double.enqueue(n)).result(timeout="30s") == 2 * n
        worker.stop()
        await running
