"""What commands ask for, and the two who can do it: `Here` on an engine, `There` on a server.

The operations are those of `outlast.client`, by name and shape: a command does not know which of
the two it talks to, and prints the same.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Final, Literal, Protocol, TypeVar, Unpack

import msgspec
from msgspec import structs

from outlast import access, budgets, ops, rollup, travel
from outlast.app import Outlast
from outlast.cli.flow_operations import FlowOperations, FlowsHere, shaped
from outlast.client import AsyncClient
from outlast.client.operating import KeyOptions, Role, UsedFor
from outlast.client.tasks import Action, PageFilters
from outlast.core.budgets import Then
from outlast.core.codec import dumps
from outlast.core.durations import Duration, to_ms
from outlast.core.model import Task as Record
from outlast.core.model import TaskQuery
from outlast.core.states import Ms
from outlast.core.text import safe_url
from outlast.http import schemas
from outlast.http.schemas import Enqueued, Task
from outlast.options import Options
from outlast.query import parse_query
from outlast.stream import POLL_S, fetch, wait_final
from outlast.usage import By, picked, usage, used_by, with_usage
from outlast.views import View, key_view, task_view
from outlast.why import why, why_view

T = TypeVar("T")
Tell = Callable[[int], Awaitable[None]]
TOLD: Final = ("state", "done", "progress", "circuit")
"""What a server tells of when it is asked for changes; what tasks put out is none."""


class TaskEvent(Protocol):
    """An event of one task."""

    @property
    def kind(self) -> str: ...
    @property
    def data(self) -> Mapping[str, object]: ...
    @property
    def attempt(self) -> int: ...


class Operations(FlowOperations, Protocol):
    """What commands ask for."""

    @property
    def place(self) -> str:
        """Where it is done, without what is secret in its address."""

    async def now(self) -> Ms: ...
    async def health(self) -> schemas.Health: ...
    def changes(self) -> AsyncGenerator[None, None]:
        """Hints that something has happened, from now on; some may be lost."""

    async def enqueue(
        self, type: str, payload: Mapping[str, object], /, **options: Unpack[Options]
    ) -> Enqueued: ...
    async def get(self, task: str, /) -> Task: ...
    async def page(self, **filters: Unpack[PageFilters]) -> schemas.TaskPage: ...
    async def why(self, task: str, /) -> schemas.Why: ...
    async def wait(self, task: str, /, timeout: Duration | None = None) -> Task: ...  # noqa: ASYNC109  # a Duration
    def stream(self, task: str, /) -> AsyncGenerator[TaskEvent, None]: ...
    async def retry(self, task: str, /, payload: Mapping[str, object] | None = None) -> Task: ...
    async def steps(self, task: str, /) -> schemas.Steps: ...
    async def rerun(
        self,
        task: str,
        /,
        *,
        from_step: str | None = None,
        payload: Mapping[str, object] | None = None,
        steps: Mapping[str, object] | None = None,
    ) -> Task: ...
    async def cancel(self, task: str, /, reason: str = "cancelled") -> Task: ...
    async def signal(self, task: str, name: str, /, data: object = None) -> Task: ...
    async def delete(self, task: str, /) -> None: ...
    async def matching(self, action: Action, filter: str, /) -> int: ...
    async def change(
        self, action: Action, filter: str, /, *, rate: str | None = None, tell: Tell | None = None
    ) -> int:
        """Do it to all tasks that fit, now; how many were changed."""

    async def dead_groups(self) -> list[schemas.DeadGroup]: ...
    async def queues(self) -> schemas.Queues: ...
    async def pause(self, queue: str, /) -> schemas.Paused: ...
    async def resume(self, queue: str, /) -> schemas.Paused: ...
    async def history(
        self,
        by: Literal["hour", "day"] = "day",
        /,
        *,
        since: str | None = None,
        until: str | None = None,
    ) -> list[schemas.TaskMetric]: ...
    async def workers(self) -> list[schemas.Worker]: ...
    async def drain_worker(self, worker: str, /) -> schemas.Worker: ...
    async def limits(self) -> schemas.LimitPage: ...
    async def set_limit(
        self,
        key: str,
        /,
        *,
        slots: int | None = None,
        rate: str | None = None,
        trip: Mapping[str, object] | None = None,
    ) -> schemas.Limit: ...
    async def delete_limit(self, key: str, /) -> None: ...
    async def reset_limit(self, key: str, /) -> schemas.Limit: ...
    async def usage(
        self,
        by: By = "day",
        /,
        *,
        since: str | None = None,
        until: str | None = None,
        **where: Unpack[UsedFor],
    ) -> schemas.UsagePage: ...
    async def budgets(self) -> list[schemas.KnownBudget]: ...
    async def set_budget(
        self,
        key: str,
        /,
        *,
        cost: str | None = None,
        tokens: str | None = None,
        then: Then = "hold",
    ) -> schemas.Budget: ...
    async def delete_budget(self, key: str, /) -> None: ...
    async def keys(self) -> list[schemas.Key]: ...
    async def create_key(self, role: Role, /, **options: Unpack[KeyOptions]) -> schemas.MadeKey: ...
    async def revoke_key(self, id: str, /) -> None: ...


class There(AsyncClient):
    """On a server."""

    @property
    def place(self) -> str:
        return self._link.shown

    async def changes(self) -> AsyncGenerator[None, None]:
        async with aclosing(self.events(kinds=TOLD)) as events:
            async for _ in events:
                yield

    async def change(
        self, action: Action, filter: str, /, *, rate: str | None = None, tell: Tell | None = None
    ) -> int:
        task = await self.bulk(action, filter, rate=rate)
        async for event in self.stream(task):
            if tell is not None and event.progress is not None:
                await tell(round(event.progress.percent / 100 * task.matched))
        told = msgspec.convert(await self.result(task), dict[str, int])
        return told["changed"]


class Here(FlowsHere):
    """On an engine, with what the server would say."""

    def __init__(self, app: Outlast) -> None:
        self._app = app

    @property
    def place(self) -> str:
        return safe_url(self._app.url)

    async def now(self) -> Ms:
        return await self._app.engine.now()

    async def health(self) -> schemas.Health:
        return shaped(await ops.health(self._app), schemas.Health)

    async def changes(self) -> AsyncGenerator[None, None]:
        async with self._app.engine.watch(["log"]) as watch:
            while True:
                if await watch.wait(POLL_S):
                    yield

    async def enqueue(
        self, type: str, payload: Mapping[str, object], /, **options: Unpack[Options]
    ) -> Enqueued:
        handle = await self._app.submit(type, dumps(payload, "payload"), **options)
        told = {"existing": handle.existing, "durability": handle.durability}
        return shaped({**self._view(await handle.refresh()), **told}, Enqueued)

    async def get(self, task: str, /) -> Task:
        view = self._view(await fetch(self._app.engine, task))
        return shaped(with_usage(view, await used_by(self._app.engine, task)), Task)

    async def page(self, **filters: Unpack[PageFilters]) -> schemas.TaskPage:
        found = await self._app.engine.tasks(await parse_query(self._app.engine, filters))  # type: ignore[arg-type]  # commands give text
        return schemas.TaskPage([self._task(task) for task in found.items], found.next)

    async def why(self, task: str, /) -> schemas.Why:
        return shaped(why_view(await why(self._app, task)), schemas.Why)

    async def wait(self, task: str, /, timeout: Duration | None = None) -> Task:  # noqa: ASYNC109  # a Duration
        timeout_ms = None if timeout is None else to_ms(timeout)
        return self._task(await wait_final(self._app.engine, task, timeout_ms))

    async def stream(self, task: str, /) -> AsyncGenerator[TaskEvent, None]:
        async with aclosing(self._app.handle(task).events()) as events:
            async for event in events:
                yield structs.replace(event, data=self._app.redactor.event(event.data))

    async def retry(self, task: str, /, payload: Mapping[str, object] | None = None) -> Task:
        return self._task(await ops.retry(self._app, task, payload))

    async def steps(self, task: str, /) -> schemas.Steps:
        return shaped(await travel.steps(self._app, task), schemas.Steps)

    async def rerun(
        self,
        task: str,
        /,
        *,
        from_step: str | None = None,
        payload: Mapping[str, object] | None = None,
        steps: Mapping[str, object] | None = None,
    ) -> Task:
        told = {"from_step": from_step, "payload": payload, "steps": steps}
        return self._task(await ops.rerun(self._app, task, **told))  # type: ignore[arg-type]  # by name

    async def cancel(self, task: str, /, reason: str = "cancelled") -> Task:
        return self._task(await ops.cancel(self._app, task, reason))

    async def signal(self, task: str, name: str, /, data: object = None) -> Task:
        await self._app.handle(task).signal(name, data)
        return self._task(await fetch(self._app.engine, task))

    async def delete(self, task: str, /) -> None:
        await ops.forget(self._app, task)

    async def matching(self, action: Action, filter: str, /) -> int:
        return await ops.matching(self._app, action, await self._query(filter))

    async def change(
        self, action: Action, filter: str, /, *, rate: str | None = None, tell: Tell | None = None
    ) -> int:
        query = await self._query(filter)
        return await ops.bulk(self._app, action, query, rate=rate, tell=tell)

    async def dead_groups(self) -> list[schemas.DeadGroup]:
        return [shaped(group, schemas.DeadGroup) for group in await ops.dead_groups(self._app)]

    async def queues(self) -> schemas.Queues:
        return shaped(await ops.queues_status(self._app), schemas.Queues)

    async def pause(self, queue: str, /) -> schemas.Paused:
        await ops.pause(self._app, queue)
        return schemas.Paused(queue, paused=True)

    async def resume(self, queue: str, /) -> schemas.Paused:
        await ops.resume(self._app, queue)
        return schemas.Paused(queue, paused=False)

    async def history(
        self,
        by: Literal["hour", "day"] = "day",
        /,
        *,
        since: str | None = None,
        until: str | None = None,
    ) -> list[schemas.TaskMetric]:
        totals = await self._app.publisher.fleet(self._app.engine)
        rows = await rollup.history(self._app.engine, totals, by, since, until)
        return [shaped(row, schemas.TaskMetric) for row in rows]

    async def workers(self) -> list[schemas.Worker]:
        return [shaped(worker, schemas.Worker) for worker in await ops.workers(self._app)]

    async def drain_worker(self, worker: str, /) -> schemas.Worker:
        return shaped(await ops.drain(self._app, worker), schemas.Worker)

    async def limits(self) -> schemas.LimitPage:
        return shaped({**await ops.limits(self._app), "next": None}, schemas.LimitPage)

    async def set_limit(
        self,
        key: str,
        /,
        *,
        slots: int | None = None,
        rate: str | None = None,
        trip: Mapping[str, object] | None = None,
    ) -> schemas.Limit:
        body = {"slots": slots, "rate": rate, "trip": trip}
        return shaped(await ops.set_limit(self._app, key, body), schemas.Limit)

    async def delete_limit(self, key: str, /) -> None:
        await ops.delete_limit(self._app, key)

    async def reset_limit(self, key: str, /) -> schemas.Limit:
        return shaped(await ops.reset_limit(self._app, key), schemas.Limit)

    async def usage(
        self,
        by: By = "day",
        /,
        *,
        since: str | None = None,
        until: str | None = None,
        **where: Unpack[UsedFor],
    ) -> schemas.UsagePage:
        told = {name: str(value) for name, value in where.items() if value is not None}
        found = await usage(self._app.engine, by, since=since, until=until, where=picked(told))
        return shaped(found, schemas.UsagePage)

    async def budgets(self) -> list[schemas.KnownBudget]:
        found = await budgets.budgets(self._app)
        return [shaped(budget, schemas.KnownBudget) for budget in found]

    async def set_budget(
        self,
        key: str,
        /,
        *,
        cost: str | None = None,
        tokens: str | None = None,
        then: Then = "hold",
    ) -> schemas.Budget:
        body = {"cost": cost, "tokens": tokens, "then": then}
        return shaped(await budgets.set_budget(self._app, key, body), schemas.Budget)

    async def delete_budget(self, key: str, /) -> None:
        await budgets.delete_budget(self._app, key)

    async def keys(self) -> list[schemas.Key]:
        found = await access.keys(self._app.engine)
        return [shaped(key_view(key), schemas.Key) for key in found]

    async def create_key(self, role: Role, /, **options: Unpack[KeyOptions]) -> schemas.MadeKey:
        text, key = await access.create_key(self._app.engine, role, **options)
        return shaped({"key": text, **key_view(key)}, schemas.MadeKey)

    async def revoke_key(self, id: str, /) -> None:
        await access.revoke_key(self._app.engine, id)

    async def _query(self, filter: str) -> TaskQuery:
        return await parse_query(self._app.engine, {"q": filter})

    def _task(self, task: Record) -> Task:
        return shaped(self._view(task), Task)

    def _view(self, task: Record) -> View:
        return task_view(task, self._app.redactor)
