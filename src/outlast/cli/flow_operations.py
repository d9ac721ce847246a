"""What commands ask about workflows, schedules and approvals, and how it is done on an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

import msgspec

from outlast import approvals, flows, graphs, schedules
from outlast.core.codec import dumps
from outlast.http import schemas
from outlast.options import Options, moment_of
from outlast.query import parse_query
from outlast.views import View, task_view, to_json

if TYPE_CHECKING:
    from outlast.app import Outlast
    from outlast.client.flows import ApprovalFilters, Times, WorkflowFilters

T = TypeVar("T")


class FlowOperations(Protocol):
    """What commands ask for."""

    async def enqueue_workflow(
        self,
        name: str,
        nodes: Sequence[Mapping[str, object]],
        /,
        escalate: Sequence[Mapping[str, object]] = (),
        **options: Unpack[Options],
    ) -> schemas.EnqueuedWorkflow: ...
    async def workflow_page(self, **filters: Unpack[WorkflowFilters]) -> schemas.WorkflowPage: ...
    async def workflow(self, workflow: str, /) -> schemas.Workflow: ...
    async def cancel_workflow(
        self, workflow: str, /, reason: str = "cancelled", *, node: str | None = None
    ) -> schemas.WorkflowItem: ...
    async def retry_workflow(
        self, workflow: str, /, *, node: str | None = None
    ) -> schemas.WorkflowItem: ...
    async def schedules(self) -> list[schemas.Schedule]: ...
    async def schedule(self, name: str, /) -> schemas.Schedule: ...
    async def save_schedule(
        self,
        name: str,
        type: str,
        /,
        payload: Mapping[str, object] | None = None,
        *,
        options: Mapping[str, object] | None = None,
        **times: Unpack[Times],
    ) -> schemas.Schedule: ...
    async def delete_schedule(self, name: str, /) -> None: ...
    async def pause_schedule(self, name: str, /) -> schemas.Schedule: ...
    async def resume_schedule(self, name: str, /) -> schemas.Schedule: ...
    async def run_schedule(self, name: str, /) -> schemas.Task: ...
    async def approval_page(self, **filters: Unpack[ApprovalFilters]) -> schemas.ApprovalPage: ...
    async def respond(self, task: str, /, answer: object) -> schemas.Task: ...


class FlowsHere:
    """On an engine, with what the server would say."""

    _app: Outlast

    async def enqueue_workflow(
        self,
        name: str,
        nodes: Sequence[Mapping[str, object]],
        /,
        escalate: Sequence[Mapping[str, object]] = (),
        **options: Unpack[Options],
    ) -> schemas.EnqueuedWorkflow:
        flow = await graphs.workflow_of(self._app, name, nodes, {**options, "escalate": escalate})
        handle = await flow.enqueue()
        told = {"existing": handle.existing, "durability": handle.durability}
        view = {**await flows.view(self._app, flow.id), **told}
        return shaped(view, schemas.EnqueuedWorkflow)

    async def workflow_page(self, **filters: Unpack[WorkflowFilters]) -> schemas.WorkflowPage:
        query, wanted = await flows.query_of(self._app, filters)  # type: ignore[arg-type]  # commands give text
        return shaped(await flows.page(self._app, query, wanted), schemas.WorkflowPage)

    async def workflow(self, workflow: str, /) -> schemas.Workflow:
        return shaped(await flows.drawn(self._app, workflow), schemas.Workflow)

    async def cancel_workflow(
        self, workflow: str, /, reason: str = "cancelled", *, node: str | None = None
    ) -> schemas.WorkflowItem:
        await flows.cancel(self._app, workflow, reason, node)
        return await self._item(workflow)

    async def retry_workflow(
        self, workflow: str, /, *, node: str | None = None
    ) -> schemas.WorkflowItem:
        return await self._item(await flows.retry(self._app, workflow, node))

    async def schedules(self) -> list[schemas.Schedule]:
        return [shaped(one, schemas.Schedule) for one in await schedules.views(self._app)]

    async def schedule(self, name: str, /) -> schemas.Schedule:
        return shaped(await schedules.view(self._app, name), schemas.Schedule)

    async def save_schedule(
        self,
        name: str,
        type: str,
        /,
        payload: Mapping[str, object] | None = None,
        *,
        options: Mapping[str, object] | None = None,
        **times: Unpack[Times],
    ) -> schemas.Schedule:
        how: dict[str, Any] = dict(times)
        if (at := how.pop("at", None)) is not None:
            how["every"] = datetime.fromtimestamp(moment_of(at, "at") / 1_000, UTC)
        made = schedules.schedule_of(name, type, payload or {}, options=options, **how)
        await schedules.save(self._app, made)
        return await self.schedule(name)

    async def delete_schedule(self, name: str, /) -> None:
        await schedules.delete(self._app, name)

    async def pause_schedule(self, name: str, /) -> schemas.Schedule:
        await schedules.pause(self._app, name)
        return await self.schedule(name)

    async def resume_schedule(self, name: str, /) -> schemas.Schedule:
        await schedules.pause(self._app, name, paused=False)
        return await self.schedule(name)

    async def run_schedule(self, name: str, /) -> schemas.Task:
        handle = await schedules.run_now(self._app, name)
        return shaped(task_view(await handle.refresh(), self._app.redactor), schemas.Task)

    async def approval_page(self, **filters: Unpack[ApprovalFilters]) -> schemas.ApprovalPage:
        query = await parse_query(self._app.engine, filters)  # type: ignore[arg-type]  # likewise
        page = await approvals.approvals(self._app, query)
        return shaped({"items": page.items, "next": page.next}, schemas.ApprovalPage)

    async def respond(self, task: str, /, answer: object) -> schemas.Task:
        said = dumps(answer, "answer", reveal=True)
        found = await approvals.respond(self._app, task, said)
        return shaped(task_view(found, self._app.redactor), schemas.Task)

    async def _item(self, id: str) -> schemas.WorkflowItem:
        return shaped(await flows.view(self._app, id), schemas.WorkflowItem)


def shaped(view: View, shape: type[T]) -> T:
    """A view as the client would read it."""
    return msgspec.json.decode(to_json(view), type=shape)
