"""Outlast from synchronous code."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from outlast import Conflict, Outlast, TaskCancelled, WaitTimeout
from outlast.sync import SyncApp
from outlast.worker.worker import Worker

app = Outlast("memory://")


@app.task()
async def double(n: int) -> int:
    return n * 2


@pytest.fixture
def q() -> Iterator[SyncApp]:
    """The app with a worker on its own loop."""
    with app.sync() as q:
        worker = Worker(app)
        ran: Future[None] = asyncio.run_coroutine_threadsafe(worker.run(), q._loop)
        yield q
        q._loop.call_soon_threadsafe(worker.stop)
        ran.result(10)


def test_a_result_comes_back(q: SyncApp) -> None:
    handle = q.enqueue(double, n=4)
    assert handle.result(timeout=30) == 8
    assert (handle.status(), handle.existing) == ("completed", False)
    assert q.handle(handle.id).refresh().result == b"8"


def test_a_batch_is_one_step(q: SyncApp) -> None:
    handles = q.enqueue_all([double.call(n) for n in range(3)])
    assert [handle.result(timeout=30) for handle in handles] == [0, 2, 4]


def test_events_are_iterated(q: SyncApp) -> None:
    handle = q.enqueue(double, 1)
    kinds = [event.kind for event in handle.events()]
    assert (kinds[0], kinds[-1]) == ("state", "done")
    events = handle.events()
    next(events)
    events.close()  # type: ignore[attr-defined]  # leaving early leaves nothing behind


def test_errors_and_timeouts_come_through(q: SyncApp) -> None:
    handle = q.enqueue(double.options(delay="1h"), 1)
    with pytest.raises(WaitTimeout):
        handle.result(timeout="10ms")
    assert handle.cancel("no") is True
    with pytest.raises(TaskCancelled, match="no"):
        handle.result(timeout=30)
    handle.retry()
    assert handle.result(timeout=30) == 2


def test_threads_share_it(q: SyncApp) -> None:
    results: list[int] = []

    def work(n: int) -> None:
        results.append(q.enqueue(double, n).result(timeout=30))

    threads = [threading.Thread(target=work, args=[n]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [0, 2, 4, 6]


async def test_in_the_apps_own_loop_one_awaits() -> None:
    async with app:
        with pytest.raises(Conflict, match="use `await` here"), app.sync():
            pass


async def test_other_threads_use_an_app_where_it_is_open() -> None:
    """A plain handler in a worker, a plain endpoint of a web server."""
    outer = Outlast("memory://")

    @outer.task
    async def leaf(n: int) -> int:
        return n + 1

    @outer.task
    def root(n: int) -> int:
        with outer.sync() as q:
            return q.enqueue(leaf, n).result(timeout=30)

    async with outer:
        handle = await root.enqueue(1)
        await Worker(outer).drain()
        assert await handle.result(timeout="1s") == 2
        assert outer.is_open


def test_the_app_is_closed_afterwards() -> None:
    with app.sync():
        assert app.is_open
    assert not app.is_open
