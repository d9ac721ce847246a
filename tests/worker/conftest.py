"""An app on a real engine, in memory and in a file, and words to wait with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest

from outlast.app import Outlast
from outlast.core.limits import Limit
from outlast.testing import testing
from outlast.worker import Worker

Until = Callable[..., Awaitable[None]]


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'tasks.db'}"


@pytest.fixture
def app(url: str) -> Outlast:
    return Outlast(url, limits=[Limit("service", slots=2)])


async def until(holds: Callable[[], bool | Awaitable[bool]], within_s: float = 60.0) -> None:
    """Wait for a condition; fail when it takes too long."""
    deadline = monotonic() + within_s
    while True:
        held = holds()
        if held if isinstance(held, bool) else await held:
            return
        assert monotonic() < deadline, f"not so after {within_s} s: {holds}"
        await asyncio.sleep(0.01)


class on_its_engine(testing):  # noqa: N801  # like `testing`
    """`testing(app)`, but on the engine that the app names instead of `memory://`."""

    async def __aenter__(self) -> on_its_engine:
        await self.app.__aenter__()
        return self


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[Worker]:
    """The worker runs while the block lasts; then it releases."""
    running = asyncio.create_task(worker.run())
    try:
        await asyncio.wait_for(worker.ready.wait(), 60)
        yield worker
    finally:
        worker.stop_now()
        await asyncio.wait_for(running, 60)
