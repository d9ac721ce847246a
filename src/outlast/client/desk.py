"""The desk of agents' tools on a server, for the session of whoever asks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing

import msgspec

from outlast.agents.desk import PAGE, Kind, Place, Seen, kind_of
from outlast.client import tasks
from outlast.client.aio import AsyncClient
from outlast.client.wire import ms_of
from outlast.core.errors import NotFound, WaitTimeout
from outlast.core.ids import check_id
from outlast.core.states import Status
from outlast.http.schemas import Task
from outlast.options import Options

Kinds = Callable[[], Awaitable[Sequence[Kind]]]


class ServerDesk:
    """`session_id` is None where a session token asks: the server knows whose it is. Session tokens
    may not list types, so `kinds` may come from somewhere else."""

    def __init__(
        self, client: AsyncClient, session_id: str | None, kinds: Kinds | None = None
    ) -> None:
        self._client = client
        self._session = session_id
        self._options: Options = {} if session_id is None else {"session_id": session_id}
        self._kinds = kinds

    async def kinds(self) -> Sequence[Kind]:
        if self._kinds is not None:
            return await self._kinds()
        return [kind_of(msgspec.to_builtins(told)) for told in await self._client.types()]

    async def enqueue(self, type: str, payload: Mapping[str, object]) -> Seen:
        made = await self._client.send(tasks.enqueue(type, payload, **self._options))
        return await self._seen(made)

    async def find(self, task_id: str) -> Seen:
        return await self._seen(await self._client.send(tasks.get(check_id(task_id))))

    async def tasks(self, statuses: Sequence[Status]) -> AsyncGenerator[Seen, None]:
        filters: tasks.PageFilters = {"status": list(statuses) or None, "limit": PAGE}
        if self._session is None:
            found = self._client.tasks(**filters)
        else:
            found = self._client.session_tasks(self._session, **filters)
        async with aclosing(found):
            async for task in found:
                yield await self._seen(task)

    async def place(self, task_id: str) -> Place:
        await self.find(task_id)
        found = await self._client.send(tasks.why(task_id))
        return Place(found.text, found.ahead, found.estimate_seconds)

    async def wait(self, task_id: str, seconds: float) -> Seen:
        try:
            return await self._seen(await self._client.wait(check_id(task_id), seconds))
        except WaitTimeout:
            return await self.find(task_id)

    async def cancel(self, task_id: str) -> Seen:
        await self.find(task_id)
        return await self._seen(
            await self._client.send(tasks.cancel(task_id, "cancelled by the agent"))
        )

    async def signal(self, task_id: str, name: str, data: object) -> None:
        await self.find(task_id)
        await self._client.send(tasks.signal(task_id, name, data))

    async def _seen(self, task: Task) -> Seen:
        seen = msgspec.convert(msgspec.to_builtins(task), Seen)
        if self._session is not None and seen.session_id != self._session:
            raise NotFound(f"There is no task {task.id}.")
        if seen.overdue_at is not None and not seen.is_over:
            seen.late = await self._client.now() >= ms_of(seen.overdue_at)
        return seen
