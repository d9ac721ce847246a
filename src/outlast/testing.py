"""Tests with a real engine and without sleeping: work runs and time passes when told to."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from msgspec.structs import replace

from outlast.app import Outlast
from outlast.core.durations import Duration, to_ms
from outlast.core.model import EventQuery, Task, TaskQuery
from outlast.core.states import Status
from outlast.handle import TaskEvent, decoded
from outlast.options import HasId
from outlast.origin import Origin, with_origin
from outlast.stream import fetch, so_far
from outlast.travel import carried
from outlast.worker.worker import Worker


# A class, and in lower case: pytest would take a function of this name for a test.
class testing:  # noqa: N801
    """`async with testing(app) as t`: the app on an empty `memory://` while the block lasts."""

    def __init__(self, app: Outlast) -> None:
        self.app = app
        self._url = app.url

    async def __aenter__(self) -> testing:
        self.app.use("memory://")
        await self.app.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.app.__aexit__(kind, error, trace)
        self.app.use(self._url)

    async def run(self) -> None:
        """Run tasks until none is ready; what they enqueue runs too."""
        queues = {handler.queue for handler in self.app.handlers.values()} | await self._queues()
        served = set[str]()
        while queues - served:
            served |= queues
            await Worker(self.app, queues=dict.fromkeys(sorted(served))).drain()
            queues = await self._queues()  # what has run may have enqueued to others

    async def _queues(self) -> set[str]:
        counts = await self.app.engine.count(TaskQuery(), by=("queue",))
        return {str(count.by[0]) for count in counts}

    async def replay(
        self, type: str, payload: Mapping[str, object], steps: Mapping[str, object]
    ) -> Task:
        """One attempt at a task whose steps have given this already; the record it leaves.

        Waits and calls are among them by the names that `outlast tasks export` gives them.
        """
        call = await self.app.prepare(type, payload, max_attempts=1)
        origin = Origin.of(call.task.id, tuple(carried(steps)))
        task = replace(call.task, meta=with_origin(call.task.meta, origin))
        [handle] = await self.app.enqueue([replace(call, task=task)])
        await self.run()
        return await self.task(handle)

    async def advance(self, span: Duration) -> None:
        """Let engine time pass. Nothing runs yet, but what is due, overdue or too old is."""
        self.app.engine.skew_ms += to_ms(span)
        while (await self.app.engine.sweep()).more:
            pass

    async def status(self, task: HasId) -> Status:
        return (await self.task(task)).status

    async def task(self, task: HasId) -> Task:
        """The record as it is now."""
        return await fetch(self.app.engine, task.id)

    async def events(self, task: HasId) -> list[TaskEvent]:
        """Its events so far."""
        query = EventQuery(task_id=task.id)
        return [decoded(event) for event in await so_far(self.app.engine, query)]
