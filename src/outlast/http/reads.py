"""Records that are asked for at the same time are read together.

Each answer of an enqueue holds its task. On PostgreSQL a read of one costs the server as much as
half the enqueue, and a read of twenty little more than a read of one.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import HTTPConnection

from outlast.core.errors import NotFound
from outlast.core.model import Task, TaskId, TaskQuery
from outlast.engine import Engine

AT_ONCE: Final = 2
"""Reads under way: whoever comes meanwhile is in the next one."""
MOST: Final = 50
"""Tasks in one read, which may have a megabyte each."""


class Reads:
    """Collects the ids that are asked for until the event loop turns."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: dict[TaskId, asyncio.Future[Task | None]] = {}
        self._calls: set[asyncio.Task[None]] = set()

    async def find(self, id: TaskId) -> Task | None:
        """The record of one task as it is now, if there is one."""
        answer = self._waiting.get(id)
        if answer is None:
            loop = asyncio.get_running_loop()
            answer = self._waiting[id] = loop.create_future()
            if len(self._waiting) == 1:
                loop.call_soon(self._start)
        return await asyncio.shield(answer)  # others may wait for the same

    async def fetch(self, id: TaskId) -> Task:
        """The record of one task, which must be there."""
        task = await self.find(id)
        if task is None:
            raise NotFound(f"There is no task {id}.")
        return task

    def _start(self) -> None:
        while self._waiting and len(self._calls) < AT_ONCE:
            ids = list(self._waiting)[:MOST]
            batch = {id: self._waiting.pop(id) for id in ids}
            call = asyncio.create_task(self._read(batch))
            self._calls.add(call)
            call.add_done_callback(self._ended)

    def _ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        self._start()

    async def _read(self, batch: dict[TaskId, asyncio.Future[Task | None]]) -> None:
        try:
            page = await self._engine.tasks(TaskQuery.of(id=tuple(batch), limit=len(batch)))
        except Exception as error:
            for answer in batch.values():
                answer.set_exception(error)
                answer.exception()  # no warning when nobody waits any more
            return
        found = {task.id: task for task in page.items}
        for id, answer in batch.items():
            answer.set_result(found.get(id))


def reads_of(request: HTTPConnection) -> Reads:
    reads: Reads = request.app.state.reads
    return reads
