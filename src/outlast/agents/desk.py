"""What agents' tools ask for, and who does it on an engine.

A desk belongs to one session: what it hands over is that session's, and a task of another one does
not exist for it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct

from outlast import ops
from outlast.app import Outlast
from outlast.core.durations import to_ms
from outlast.core.errors import NotFound, WaitTimeout
from outlast.core.ids import check_id
from outlast.core.model import Task, TaskQuery
from outlast.core.states import FINAL, Status
from outlast.options import name_of, priority_of
from outlast.saga import all_of
from outlast.stream import fetch, wait_final
from outlast.views import task_view, to_json
from outlast.why import why

PAGE: Final = 50
ANYTHING: Final[Mapping[str, object]] = {"type": "object", "additionalProperties": True}
"""The schema of a type that only its workers know."""


class Kind(Struct, frozen=True):
    """A task type, as a tool needs it."""

    type: str
    description: str
    schema: Mapping[str, object]


class Seen(Struct, kw_only=True):
    """A task, as a tool looks at it: what HTTP says, decoded."""

    id: str
    type: str
    status: Status
    parked: str | None = None
    result: Any = None
    error: dict[str, Any] | None = None
    progress: dict[str, Any] | None = None
    reason: str | None = None
    timeout: float | None = None
    overdue_at: str | None = None
    created_at: str
    updated_at: str
    completed_at: str | None = None
    session_id: str | None = None
    late: bool = False
    """It has not ended by the time it should have."""

    @property
    def is_over(self) -> bool:
        return self.status in FINAL


class Place(Struct, frozen=True):
    """Where a waiting task stands: what it waits for, and how many are ahead if that is known."""

    text: str
    ahead: int | None
    estimate_s: float | None


class Desk(Protocol):
    """What agents' tools ask for. Whatever is wrong with it is an `OutlastError`."""

    async def kinds(self) -> Sequence[Kind]: ...
    async def enqueue(self, type: str, payload: Mapping[str, object]) -> Seen: ...
    async def find(self, task_id: str) -> Seen: ...
    def tasks(self, statuses: Sequence[Status]) -> AsyncGenerator[Seen, None]:
        """The session's, of these statuses or of all, newest first."""

    async def place(self, task_id: str) -> Place: ...
    async def wait(self, task_id: str, seconds: float) -> Seen:
        """The task once it is over; as it is then, when that takes longer."""

    async def cancel(self, task_id: str) -> Seen: ...
    async def signal(self, task_id: str, name: str, data: object) -> None: ...


class AppDesk:
    """On an app's engine, for one session. `priority` is the session's: its tasks are enqueued with
    it unless their type says something else."""

    def __init__(
        self,
        app: Outlast,
        session_id: str,
        *,
        user_id: str | None = None,
        priority: int | str | None = None,
    ) -> None:
        self._app = app
        self._session = name_of(session_id, "session_id")
        self._options: dict[str, Any] = {"session_id": self._session}
        if user_id is not None:
            self._options["user_id"] = name_of(user_id, "user_id")
        self._usual = None if priority is None else priority_of(priority)

    async def kinds(self) -> Sequence[Kind]:
        return [kind_of(told) for told in await ops.types(self._app)]

    async def enqueue(self, type: str, payload: Mapping[str, object]) -> Seen:
        handle = await self._app.submit(type, payload, usual=self._usual, **self._options)
        return await self.find(handle.id)

    async def find(self, task_id: str) -> Seen:
        task = await fetch(self._app.engine, check_id(task_id))
        if task.session_id != self._session:
            raise NotFound(f"There is no task {task_id}.")
        return await self._seen(task)

    async def tasks(self, statuses: Sequence[Status]) -> AsyncGenerator[Seen, None]:
        query = TaskQuery.of(session_id=self._session, status=tuple(statuses) or None, limit=PAGE)
        async for task in all_of(self._app, query):
            yield await self._seen(task)

    async def place(self, task_id: str) -> Place:
        id = (await self.find(task_id)).id
        found = await why(self._app, id, lambda task: task.session_id == self._session)
        estimate = None if found.estimate_ms is None else found.estimate_ms / 1_000
        return Place(found.text, found.ahead, estimate)

    async def wait(self, task_id: str, seconds: float) -> Seen:
        await self.find(task_id)
        try:
            return await self._seen(await wait_final(self._app.engine, task_id, to_ms(seconds)))
        except WaitTimeout:
            return await self.find(task_id)

    async def cancel(self, task_id: str) -> Seen:
        await self.find(task_id)
        return await self._seen(await ops.cancel(self._app, task_id, "cancelled by the agent"))

    async def signal(self, task_id: str, name: str, data: object) -> None:
        await self.find(task_id)
        await self._app.handle(task_id).signal(name, data)

    async def _seen(self, task: Task) -> Seen:
        seen = msgspec.json.decode(to_json(task_view(task, self._app.redactor)), type=Seen)
        if task.overdue_at is not None and not seen.is_over:
            seen.late = await self._app.engine.now() >= task.overdue_at
        return seen


def kind_of(told: Mapping[str, Any]) -> Kind:
    """From an entry of `GET /types`."""
    name = str(told["type"])
    return Kind(name, told.get("description") or f"Runs {name}.", told.get("schema") or ANYTHING)
