"""Tests with a real engine and without sleeping: work runs and time passes when told to."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from outlast.app import Outlast
from outlast.core.durations import Duration, to_ms
from outlast.core.model import EventQuery, Task
from outlast.core.states import Status
from outlast.handle import Handle, TaskEvent, decoded
from outlast.options import HasId
from outlast.stream import so_far
from outlast.worker.worker import Worker


class Testing:
    """An app on an engine in memory, and its only worker."""

    __test__ = False  # the name says what it is for, not that pytest should collect it

    def __init__(self, app: Outlast) -> None:
        self.app = app

    async def run(self) -> None:
        """Run tasks until none is ready; what they enqueue runs too."""
        await Worker(self.app).drain()

    async def advance(self, span: Duration) -> None:
        """Let engine time pass. Nothing runs yet, but what is due, overdue or too old is."""
        self.app.engine.skew_ms += to_ms(span)
        while (await self.app.engine.sweep()).more:
            pass

    async def status(self, task: HasId) -> Status:
        return await self._handle(task).status()

    async def task(self, task: HasId) -> Task:
        """The record as it is now."""
        return await self._handle(task).refresh()

    async def events(self, task: HasId) -> list[TaskEvent]:
        """Its events so far."""
        query = EventQuery(task_id=task.id)
        return [decoded(event) for event in await so_far(self.app.engine, query)]

    def _handle(self, task: HasId) -> Handle[object]:
        return self.app.handle(task.id)


@asynccontextmanager
async def testing(app: Outlast) -> AsyncGenerator[Testing, None]:
    """`async with testing(app) as t`: the app on an empty `memory://` while the block lasts."""
    url = app.url
    app.use("memory://")
    try:
        async with app:
            yield Testing(app)
    finally:
        app.use(url)
