"""The server is gone for a while, and comes back: workers go on by themselves, nothing is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from outlast.app import Outlast
from outlast.core.errors import EngineDown
from outlast.core.ids import new_fence, new_id
from outlast.core.model import EventQuery, NewTask, TaskQuery, Turn, Want, WorkerInfo
from outlast.engine import connect
from outlast.worker import Worker

from .proxy import Proxy

AWAY_S = 4.0
BACK_S = 2.0

Act = Callable[[], Awaitable[None]]


@asynccontextmanager
async def working(app: Outlast) -> AsyncIterator[None]:
    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(30):
            await worker.ready.wait()
        yield
    finally:
        worker.stop()
        await running


async def until(check: Callable[[], bool], within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while not check():  # noqa: ASYNC110  # counted by handlers
            await asyncio.sleep(0.01)


async def outage(url: str, cut: Act, heal: Act) -> None:
    """Tasks are enqueued and run all the while; those acknowledged run, soon after it is over."""
    app = Outlast(url)
    ran: Counter[int] = Counter()

    @app.task
    async def work(n: int) -> None:
        ran[n] += 1

    acknowledged: set[int] = set()
    stop = asyncio.Event()

    async def produce() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            try:
                await work.enqueue(n)
            except EngineDown:
                await asyncio.sleep(0.02)
            else:
                acknowledged.add(n)

    async with app, working(app):
        producer = asyncio.create_task(produce())
        await until(lambda: ran.total() > 100, 20)
        await cut()
        await asyncio.sleep(AWAY_S)
        before = ran.total()
        await heal()
        await until(lambda: ran.total() > before, BACK_S)
        stop.set()
        await producer
        await until(lambda: acknowledged <= ran.keys(), 20)
    async with app:  # the worker has left, and handed over what it knew
        counts = await app.engine.count(TaskQuery(), ("status",))
        assert {count.by[0]: count.n for count in counts} == {"completed": len(ran)}


async def test_a_network_that_is_cut_and_healed(server: Any) -> None:
    proxy = Proxy(server.port)
    await proxy.heal()
    url = (
        f"postgresql://outlast@127.0.0.1:{proxy.port}/postgres?schema=t{new_id().replace('-', '')}"
    )
    try:
        await outage(url, proxy.cut, proxy.heal)
    finally:
        await proxy.cut()


async def test_a_server_that_is_killed_and_restarted(own_server: Callable[..., Any]) -> None:
    server = own_server(fsync="on")

    async def cut() -> None:
        await asyncio.to_thread(server.kill)

    async def heal() -> None:
        await asyncio.to_thread(server.run)

    await outage(server.url, cut, heal)


async def test_what_was_read_in_the_log_is_not_taken_back(own_server: Callable[..., Any]) -> None:
    """Else its cursors would come again, and who follows the log would not see what has them."""
    server = own_server(fsync="on", wal_writer_delay="10s")
    engine = connect(server.url)
    await engine.open()
    task = NewTask(id=new_id(), type="t", payload=b"{}")
    await engine.enqueue([task])
    turn = Turn(token=new_fence(), worker="w", room=1, wants=(Want("default", "primary", 1),),
                info=WorkerInfo(host="h", pid=1))  # fmt: skip
    assert (await engine.exchange(turn)).leases
    seen = (await engine.events(EventQuery())).items
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.run)
    await engine.close()
    await engine.open()
    assert (await engine.events(EventQuery())).items == seen
    await engine.close()
