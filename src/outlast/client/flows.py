"""The calls about workflows, schedules and approvals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, TypedDict, Unpack

from outlast.client.tasks import Filters, Values, given, idempotent, plain
from outlast.client.wire import Call, id_of, nothing, path, shaped
from outlast.core.codec import dumps
from outlast.core.durations import Duration
from outlast.http.schemas import (
    ApprovalPage,
    EnqueuedWorkflow,
    Schedule,
    SchedulePage,
    Task,
    Workflow,
    WorkflowItem,
    WorkflowPage,
)
from outlast.options import HasId, Options


class WorkflowFilters(TypedDict, total=False):
    """Which workflows, and which page of them."""

    status: Values | None
    session_id: Values | None
    user_id: Values | None
    tag: Values | None
    q: str | None
    limit: int
    cursor: str | None


class ApprovalFilters(Filters, total=False):
    """The questions of which tasks, and which page of them."""

    limit: int
    cursor: str | None


class Times(TypedDict, total=False):
    """When a schedule fires: `every` (a cron expression or a span) or `at`, one moment."""

    every: Duration | None
    at: datetime | str | None
    tz: str
    catch_up: Literal["latest", "all", "none"]
    overlap: Literal["allow", "skip", "cancel"]
    jitter: Duration


# Workflows ---------------------------------------------------------------------------------------


def enqueue_workflow(
    name: str,
    nodes: Sequence[Mapping[str, object]],
    escalate: Sequence[Mapping[str, object]] = (),
    **options: Unpack[Options],
) -> Call[EnqueuedWorkflow]:
    """Hand over a graph, whole or not at all: `enqueue_workflow("ingest", [{"name": "page", "type":
    "fetch", "payload": {…}}, …])`. `{"$from": "page"}` stands for the result of a node."""
    told = plain(options)
    rules = {"escalate": escalate} if escalate else {}
    return Call(
        method="POST", path="/workflows", read=shaped(EnqueuedWorkflow), again=True,
        body=dumps({"name": name, "nodes": nodes, **rules, **told}, "workflow", reveal=True),
        headers={} if "id" in told else idempotent(),
    )  # fmt: skip


def workflow_page(**filters: Unpack[WorkflowFilters]) -> Call[WorkflowPage]:
    """One page of workflows, newest first."""
    return Call(
        method="GET", path="/workflows", params=given(filters), read=shaped(WorkflowPage),
        again=True,
    )  # fmt: skip


def workflow(workflow: HasId | str) -> Call[Workflow]:
    """A workflow with its nodes, their edges and states."""
    where = path("/workflows/{id}", id=id_of(workflow))
    return Call(method="GET", path=where, read=shaped(Workflow), again=True)


def cancel_workflow(
    workflow: HasId | str, reason: str = "cancelled", *, node: str | None = None
) -> Call[WorkflowItem]:
    """Stop a workflow and undo what it did; or stop one node, and what comes after it."""
    where = path("/workflows/{id}/cancel", id=id_of(workflow))
    body = dumps({"reason": reason, "from": node}, "reason")
    return Call(method="POST", path=where, read=shaped(WorkflowItem), body=body)


def retry_workflow(workflow: HasId | str, *, node: str | None = None) -> Call[WorkflowItem]:
    """Go on where it died; or run it again from a node, as a new workflow, which is the answer."""
    where = path("/workflows/{id}/retry", id=id_of(workflow))
    body = dumps({"from": node}, "node")
    return Call(method="POST", path=where, read=shaped(WorkflowItem), body=body)


# Schedules ---------------------------------------------------------------------------------------


def schedules() -> Call[list[Schedule]]:
    """Schedules by name, with their next firings."""
    return Call(
        method="GET", path="/schedules", read=lambda data: shaped(SchedulePage)(data).items,
        again=True,
    )  # fmt: skip


def schedule(name: str) -> Call[Schedule]:
    """A schedule, with its next ten firings."""
    return Call(
        method="GET", path=path("/schedules/{name}", name=name), read=shaped(Schedule), again=True
    )


def save_schedule(
    name: str,
    type: str,
    payload: Mapping[str, object] | None = None,
    *,
    options: Mapping[str, object] | None = None,
    **times: Unpack[Times],
) -> Call[Schedule]:
    """Make a schedule, or replace it: `save_schedule("nightly", "report", every="0 3 * * *")`."""
    told = {"name": name, "type": type, "payload": payload or {}, "options": plain(options or {})}
    body = dumps({**told, **plain(times)}, "schedule", reveal=True)
    return Call(method="POST", path="/schedules", read=shaped(Schedule), body=body, again=True)


def delete_schedule(name: str) -> Call[None]:
    """Delete a schedule; one that code gives comes back when a program with it starts."""
    return Call(method="DELETE", path=path("/schedules/{name}", name=name), read=nothing)


def pause_schedule(name: str) -> Call[Schedule]:
    """Fire nothing; what falls into the pause is not made up for."""
    where = path("/schedules/{name}/pause", name=name)
    return Call(method="POST", path=where, read=shaped(Schedule), again=True)


def resume_schedule(name: str) -> Call[Schedule]:
    """Fire again, from the next firing that is due from now."""
    where = path("/schedules/{name}/resume", name=name)
    return Call(method="POST", path=where, read=shaped(Schedule), again=True)


def run_schedule(name: str) -> Call[Task]:
    """Fire once, now; the task that it made."""
    where = path("/schedules/{name}/run", name=name)
    return Call(method="POST", path=where, read=shaped(Task))


# Approvals ---------------------------------------------------------------------------------------


def approval_page(**filters: Unpack[ApprovalFilters]) -> Call[ApprovalPage]:
    """One page of open questions, those of the newest tasks first."""
    return Call(
        method="GET", path="/approvals", params=given(filters), read=shaped(ApprovalPage),
        again=True,
    )  # fmt: skip


def respond(task: HasId | str, answer: object) -> Call[Task]:
    """Answer what a task asks now; `Conflict` when it asks nothing."""
    where = path("/approvals/{id}", id=id_of(task))
    body = dumps({"answer": answer}, "answer", reveal=True)
    return Call(method="POST", path=where, read=shaped(Task), body=body)
