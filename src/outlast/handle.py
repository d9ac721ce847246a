"""A handle: what `enqueue` returns, and the way back to a task from anywhere by its id."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import msgspec
from msgspec import Struct

from outlast.core.codec import dumps, loads
from outlast.core.durations import Duration, to_ms
from outlast.core.errors import Conflict, NotFound, TaskCancelled, TaskDead
from outlast.core.model import (
    Altered,
    Change,
    Cursor,
    Event,
    EventQuery,
    Redrive,
    Signal,
    Task,
    TaskId,
)
from outlast.core.seal import readable
from outlast.core.states import Ms, Status
from outlast.engine import Durability, Engine
from outlast.options import name_of
from outlast.stream import fetch, tail, wait_final

if TYPE_CHECKING:
    from outlast.app import Outlast

R = TypeVar("R")


class TaskEvent(Struct, frozen=True):
    """An event of one task, its data decoded."""

    kind: str
    """`state`, `progress`, `chunk`, `step`, `signal`, `rollback`, `overdue`, `reset`, `done`."""
    data: dict[str, object]
    attempt: int
    at: Ms
    cursor: Cursor
    """Where to go on: `handle.events(after=cursor)`."""


class Handle(Generic[R]):
    """One task: its result, its events, and the power to stop it."""

    def __init__(self, app: Outlast, id: TaskId, *, existing: bool = False) -> None:
        self._app = app
        self.id = id
        self.existing = existing
        """The enqueue met its id or unique key: this is the task that was there."""

    def __repr__(self) -> str:
        return f"<Handle {self.id}>"

    @property
    def durability(self) -> Durability:
        """What the task survives, by the engine's real settings."""
        return self._app.engine.durability

    async def result(self, timeout: Duration | None = None) -> R:  # noqa: ASYNC109  # a Duration
        """What the handler returned. `TaskDead`, `TaskCancelled`, or `WaitTimeout` otherwise."""
        timeout_ms = None if timeout is None else to_ms(timeout)
        task = await wait_final(self._app.engine, self.id, timeout_ms)
        return cast(R, result_of(self._app, task))

    async def events(self, after: Cursor | None = None) -> AsyncGenerator[TaskEvent, None]:
        """Its events, from the first or behind a cursor, as they come; ends when the task does."""
        query = EventQuery(task_id=self.id, after=after)
        async with aclosing(tail(self._app.engine, query, until_done=True)) as events:
            async for event in events:
                yield decoded(event)

    async def status(self) -> Status:
        return (await self.refresh()).status

    async def refresh(self) -> Task:
        """The record as it is now."""
        return await fetch(self._app.engine, self.id)

    async def cancel(self, reason: str = "cancelled") -> bool:
        """Stop it: at once if it waits, within about a second if it runs. False: it was over."""
        from outlast import steering

        try:
            await steering.cancel(self._app, self.id, name_of(reason, "reason"))
        except Conflict:
            return False
        return True

    async def signal(self, name: str, data: object = None) -> None:
        """Wake it where it waits for that name, now or later: a signal that comes early is kept."""
        told = dumps(data, "signal", reveal=True)
        if self._app.guard is not None:
            self._app.check((await self.refresh()).type)
        await alter(self._app.engine, self.id, Signal(name_of(name, "name"), told))

    async def retry(self) -> None:
        """Back to pending if it is dead or cancelled; at once if it waits for its next attempt."""
        from outlast import steering

        await steering.retry(self._app, self.id, Redrive())

    async def rerun(
        self,
        *,
        from_step: str | None = None,
        payload: Mapping[str, object] | None = None,
        steps: Mapping[str, object] | None = None,
    ) -> Handle[R]:
        """Run it again as a new task, once it is over: from a step, with what it remembered before
        that one, or from its first line. With other arguments, or other results of steps."""
        from outlast import travel

        return await travel.rerun(
            self._app, self.id, from_step=from_step, payload=payload, steps=steps
        )


def decoded(event: Event) -> TaskEvent:
    data = msgspec.json.decode(event.data, type=dict[str, object])
    return TaskEvent(event.kind, data, event.attempt, event.at, event.cursor)


def result_of(app: Outlast, task: Task) -> object:
    """The typed result of a task that is over."""
    if task.state == "dead":
        error = None if task.error is None else loads(task.error)
        raise TaskDead(task.id, task.reason, error)
    if task.state == "cancelled":
        raise TaskCancelled(task.id, task.reason)
    data = readable(task.result or b"null", f"The result of task {task.id}")
    handler = app.handlers.get(task.type)
    return loads(data) if handler is None else handler.signature.decode_result(data)


async def alter(engine: Engine, task_id: TaskId, change: Change) -> Altered:
    """Change one task; `NotFound` or `Conflict` when it does not apply."""
    [altered] = await engine.alter([task_id], change)
    if altered.applied:
        return altered
    if altered.why == "not_found":
        raise NotFound(f"There is no task {task_id}.")
    verb = type(change).__name__.lower()
    if altered.why == "unique":
        raise Conflict(f"Cannot {verb} task {task_id}: a living task has its unique key.")
    raise Conflict(f"Cannot {verb} task {task_id}: it is {altered.state}.")
