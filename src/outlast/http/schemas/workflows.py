"""Workflows, schedules and approvals."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from outlast.core.states import Status
from outlast.http.schemas.base import Id, Json, Name, Object, Priority, Sent, Span, Time
from outlast.http.schemas.tasks import AttemptError, Progress, TaskError

Path = Annotated[str | list[str | int], Meta(description='`words.0`, or ["words", 0]')]
Test = Literal["is", "==", "!=", "<", "<=", ">", ">="]
WorkflowStatus = Literal[
    "running", "completed", "dead", "cancelled", "undoing", "undone", "undo_failed"
]


class Ref(Sent, kw_only=True):
    """Stands for the result of another node, or the part of it at a path, in a payload."""

    node: Annotated[str, Meta(min_length=1, max_length=220)] = field(name="$from")
    path: Path = []


class WhenSpec(Ref, kw_only=True):
    """What must hold for a node to run: a result compared with a value, or (`is`) its truth."""

    test: Test = "is"
    value: Json = None


class NodeOptions(Sent, kw_only=True):
    """What may be said about the task of a node."""

    queue: Name | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    delay: Span | UnsetType = UNSET
    run_at: Time | UnsetType = UNSET
    max_attempts: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    max_losses: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    timeout: Span | UnsetType = UNSET
    overdue_after: Span | UnsetType = UNSET
    max_age: Span | UnsetType = UNSET
    hold: Name | UnsetType = UNSET
    tags: list[Name] | UnsetType = UNSET
    followed: bool | UnsetType = UNSET


class NewNode(Sent, kw_only=True):
    """One task of a workflow; with `over` one for each item of a list; with `nodes` a workflow."""

    name: Name
    type: Name | UnsetType = UNSET
    nodes: list[NewNode] | UnsetType = UNSET
    """Instead of a type: the node is a workflow, whose nodes may refer to those around it."""
    payload: Object = {}
    """May hold references, `{"$from": "node", "path": "words.0"}`, wherever a value may stand."""
    after: list[Name] | Name = []
    needs: Literal["success", "any"] = "success"
    """`any`: it runs when those before it are over, however they ended."""
    when: WhenSpec | None = None
    undo: Name | None = None
    """The type that undoes it, run with the same payload when the workflow fails."""
    over: Ref | list[Json] | UnsetType = UNSET
    item: Name | None = None
    """The argument that takes the item; else the first of the type."""
    options: NodeOptions = field(default_factory=NodeOptions)


class SpawnSpec(Sent):
    """A task to enqueue."""

    type: Name
    payload: Object = {}


class EscalationSpec(Sent, kw_only=True):
    """When one thing (`failures`, `dead` or `age`) has happened in a workflow, what is done about
    it, once."""

    failures: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    """Attempts that have failed."""
    dead: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    """Tasks that have died."""
    age: Span | UnsetType = UNSET
    of: Name | UnsetType = UNSET
    """Only those of this type."""
    priority: Priority | UnsetType = UNSET
    """Of all its tasks that wait."""
    spawn: SpawnSpec | UnsetType = UNSET
    notify: Annotated[str, Meta(min_length=1, max_length=500)] | UnsetType = UNSET
    """What its session is told."""
    stop: bool = False
    """Cancel it, and undo what it did."""


class NewWorkflow(Sent, kw_only=True):
    """A graph of tasks. What else is said is said of all of them."""

    name: Name
    nodes: Annotated[list[NewNode], Meta(min_length=1, max_length=10_000)]
    escalate: Annotated[list[EscalationSpec], Meta(max_length=20)] = []
    id: Id | None = None
    queue: Name | None = None
    priority: Priority | None = None
    delay: Span | None = None
    run_at: Time | None = None
    max_attempts: Annotated[int, Meta(ge=1)] | None = None
    max_losses: Annotated[int, Meta(ge=0)] | None = None
    timeout: Span | None = None
    overdue_after: Span | None = None
    max_age: Span | None = None
    session_id: Name | None = None
    user_id: Name | None = None
    tags: list[Name] | None = None
    followed: bool | None = None


class WorkflowItem(Struct, kw_only=True):
    """A workflow as one: how far its tasks are, and its result."""

    id: Id
    name: str
    status: WorkflowStatus
    origin: Id | None
    """The workflow that this one runs again from a node."""
    within: Id | None
    """The workflow of which this one is a part."""
    percent: float
    counts: dict[Status, int]
    """Its tasks by status."""
    result: Json
    error: TaskError | None
    reason: str | None
    priority: int
    session_id: str | None
    user_id: str | None
    tags: list[str]
    created_at: Time
    started_at: Time | None
    completed_at: Time | None


class EnqueuedWorkflow(WorkflowItem, kw_only=True):
    """A workflow as its enqueue answers."""

    existing: bool
    """It was there already, under this id or Idempotency-Key."""
    durability: Literal["memory", "fsync", "replicated"]


class When(Struct, kw_only=True):
    """What must hold for a node to run."""

    id: Id
    """The node whose result it is about."""
    path: list[str | int]
    test: Test
    value: Json


class WorkflowNode(Struct, kw_only=True):
    """A task of a workflow, as its graph is drawn."""

    id: Id
    name: str
    kind: Literal["node", "map", "workflow", "child", "undo"]
    type: str
    status: Status
    after: list[Id]
    needs: Literal["success", "any"]
    when: When | None
    undo: str | None
    error: AttemptError | None
    parent_id: Id | None
    """Of a child, the node that made it; of an undo, what it undoes."""
    reason: str | None
    attempt: int
    max_attempts: int
    progress: Progress | None
    priority: int
    started_at: Time | None
    completed_at: Time | None
    run_at: Time


class Workflow(WorkflowItem, kw_only=True):
    """A workflow with its graph."""

    nodes: list[WorkflowNode]
    truncated: bool
    undo: list[Id]
    """The tasks that undo it, in their order."""


class WorkflowPage(Struct):
    """A page of workflows, newest first."""

    items: list[WorkflowItem]
    next: str | None


class CancelWorkflow(Sent, kw_only=True):
    """Why it is cancelled; with `from` only that node, and what comes after it."""

    reason: Name = "cancelled"
    node: Name | None = field(name="from", default=None)


class RetryWorkflow(Sent, kw_only=True):
    """From which node on it runs again, as a new workflow; not given, from where it died."""

    node: Name | None = field(name="from", default=None)


class NewSchedule(Sent, kw_only=True):
    """What to enqueue, and when: `every` (a cron expression, or a span) or `at`, one moment."""

    name: Name
    type: Name
    payload: Object = {}
    every: Span | None = None
    at: Time | None = None
    tz: str = "UTC"
    catch_up: Literal["latest", "all", "none"] = "latest"
    overlap: Literal["allow", "skip", "cancel"] = "allow"
    jitter: Span = 0
    options: Object = {}
    """Options of the tasks, as `POST /tasks` takes them."""


class Schedule(Struct, kw_only=True):
    """A schedule, and how far it is."""

    name: str
    type: str
    payload: Object
    every: str | None
    at: Time | None
    tz: str
    catch_up: Literal["latest", "all", "none"]
    overlap: Literal["allow", "skip", "cancel"]
    jitter: float
    options: Object
    source: Literal["code", "people"]
    paused: bool
    error: str | None
    """Why the last firing made no task."""
    last_task: Id | None
    last_at: Time | None
    next: list[Time]
    """Its next firings; none while it is paused."""


class SchedulePage(Struct):
    """All schedules."""

    items: list[Schedule]
    next: str | None


class Approval(Struct, kw_only=True):
    """An open question of a task to people."""

    task_id: Id
    type: str
    question: str
    action: Json
    """What the task proposes to do."""
    signal: str
    """What the answer is sent as: `POST /tasks/{id}/signal/{signal}` answers it too."""
    deadline: Time | None
    asked_at: Time
    session_id: str | None
    user_id: str | None
    workflow_id: str | None
    tags: list[str]


class ApprovalPage(Struct):
    """Open questions."""

    items: list[Approval]
    next: str | None


class Answer(Sent):
    """The answer to what a task asks."""

    answer: Json
