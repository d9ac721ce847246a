"""Tasks: what makes one, what is told of it, what is done to it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from outlast.core.states import Lane, State, Status, Verdict
from outlast.http.schemas.base import Id, Json, Name, Object, Priority, Sent, Span, Time


class TaskOptions(Sent, kw_only=True):
    """What may be said about a task besides its type and payload."""

    queue: Name | None = "default"
    priority: Priority | None = 2
    delay: Span | None = 0
    run_at: Time | None = None
    max_attempts: Annotated[int, Meta(ge=1)] | None = 4
    max_losses: Annotated[int, Meta(ge=0)] | None = 3
    timeout: Span | None = None
    overdue_after: Span | None = None
    max_age: Span | None = None
    unique_key: Name | None = None
    unique_for: Span | None = None
    session_id: Name | None = None
    user_id: Name | None = None
    tags: list[Name] | None = []
    id: Id | None = None
    parent_id: Id | None = None
    workflow_id: Name | None = None
    after: list[Id] | Id | None = []
    needs: Literal["success", "any"] | None = "success"
    hold: Name | None = None
    followed: bool | None = True


class NewTask(TaskOptions, kw_only=True):
    """A task to be enqueued."""

    type: Name
    payload: Object = {}


class NewSummary(TaskOptions, kw_only=True):
    """A text to be summarised by the type `summarize`."""

    content: Annotated[str, Meta(min_length=1)]


class Batch(Sent):
    """Tasks that are enqueued in one step: all of them or none."""

    tasks: Annotated[list[NewTask], Meta(min_length=1, max_length=1000)]


class AttemptError(Struct):
    """How an attempt failed."""

    code: str
    type: str
    message: str


class TaskError(AttemptError):
    """How the last attempt that failed did so, in full."""

    details: Json
    traceback: str | None


class UsageSum(Struct, kw_only=True):
    """What was used, added up."""

    reports: int
    tokens: int
    input_tokens: int
    output_tokens: int
    cost: float
    """In your currency."""
    more: dict[str, float]
    """Whatever else was counted."""


class Attempt(Struct):
    """One try at running a task."""

    number: int
    worker: str
    lane: Lane
    started_at: Time
    ended_at: Time
    outcome: Verdict
    error: AttemptError | None
    usage: UsageSum | UnsetType | None = UNSET
    """What it has used, where one task is looked at."""


class Progress(Struct):
    """How far the running attempt is."""

    percent: float
    message: str
    elapsed_ms: int
    updated_at: Time
    data: Object


class Task(Struct, kw_only=True):
    """The record of a task."""

    id: Id
    type: str
    queue: str
    lane: Lane
    priority: int
    state: State
    status: Status
    parked: str | None
    payload: Object
    result: Json
    error: TaskError | None
    attempts: list[Attempt]
    progress: Progress | None
    attempt: int
    max_attempts: int
    losses: int
    max_losses: int
    timeout: float | None
    overdue_after: float | None
    overdue_at: Time | None
    max_age: float | None
    run_at: Time
    retry_at: Time | None
    created_at: Time
    started_at: Time | None
    updated_at: Time
    completed_at: Time | None
    worker: str | None
    lease_until: Time | None
    limits: list[str]
    reason: str | None
    fingerprint: str | None
    session_id: str | None
    user_id: str | None
    tags: list[str]
    parent_id: Id | None
    workflow_id: str | None
    origin_id: str | None
    """The task that this one runs again."""
    after: list[Id]
    unique_key: str | None
    version: int
    usage: UsageSum | UnsetType = UNSET
    """What its attempts have used, where one task is looked at that has told of any."""


class Enqueued(Task, kw_only=True):
    """A task as its enqueue answers."""

    existing: bool
    """It was there already, under this id, unique key or Idempotency-Key."""
    durability: Literal["memory", "fsync", "replicated"]


class EnqueuedBatch(Struct):
    """The tasks of a batch, in its order."""

    items: list[Enqueued]


class TaskPage(Struct):
    """A page of tasks, newest first; `next` is the cursor of the page behind it."""

    items: list[Task]
    next: str | None


class Why(Struct):
    """The one thing a task waits for; where the time went, for one that is over."""

    task_id: Id
    status: Status
    waits_for: str | None
    text: str
    action: str | None
    until: Time | None
    estimate_seconds: float | None
    holders: list[Id]
    ahead: int | None
    spent: dict[str, float] | None


class Told(Struct):
    """One event: its kind, its cursor, and what it says."""

    event: str
    id: str
    data: Object


class TaskEvents(Struct):
    """Events of a task; ask again with `after` set to `next` until `done`."""

    items: list[Told]
    next: str | None
    done: bool
    """The task is over, and its last event is among these or was before."""


class Events(Struct):
    """Events of all tasks; ask again with `after` set to `next`."""

    items: list[Told]
    next: str


class Reason(Sent):
    """Why a task is cancelled."""

    reason: Name = "cancelled"


class Edit(Sent):
    """Another payload to retry with."""

    payload: Object | None = None


class Rerun(Sent):
    """From where a task runs again, and with what."""

    from_step: Annotated[str, Meta(min_length=1, max_length=400)] | None = None
    """What it remembers before that step comes along; without one it begins at the first line."""
    payload: Object | None = None
    steps: Object | None = None
    """Other results of steps before, by name."""


class RememberedStep(Struct):
    """What a task remembers: a step, a wait, a call, a sleep or a change, by the name it has."""

    name: str
    kind: Literal["step", "wait", "call", "sleep", "changed"]
    done: bool
    late: bool
    """A wait for which nothing came in time."""
    value: Any
    carried: bool
    """It came along from the task that this one runs again."""


class SentSignal(Struct):
    """A signal that a task was sent."""

    name: str
    data: Any
    at: Time


class Steps(Struct):
    """What a task remembers, in order, and the signals it was sent."""

    items: list[RememberedStep]
    signals: list[SentSignal]


class Bulk(Sent, kw_only=True):
    """What to do with all tasks that fit a filter."""

    action: Literal["retry", "cancel", "delete"]
    filter: Annotated[str, Meta(min_length=1, max_length=2000)]
    dry_run: bool = False
    """Only tell how many it would be."""
    rate: str | None = None
    """What is retried becomes due at this pace, as in `10/s`."""


class BulkEnqueued(Enqueued, kw_only=True):
    """The task that does it, and how many tasks fitted when it was enqueued."""

    matched: int


class Matched(Struct):
    """How many tasks fit."""

    matched: int
    dry_run: bool


class Requeued(Struct):
    """What became of the tasks of lost workers."""

    requeued: int
    died: int


class TaskType(Struct):
    """A type that may be enqueued."""

    type: str
    mode: Literal["async", "thread", "process", "command", "external"] | None
    queue: str | None
    description: str | None
    schema: Object | None
    result_schema: Object | None
    workers: int


class TypePage(Struct):
    """All types."""

    items: list[TaskType]
    next: str | None


class DeadGroup(Struct):
    """Dead tasks that failed in the same way."""

    fingerprint: str | None
    type: str
    count: int
    error_type: str | None
    message: str | None
    reason: str | None
    example: Id | None
    last_at: Time | None


class DeadGroupPage(Struct):
    """Dead tasks by error, the most frequent first."""

    items: list[DeadGroup]
    next: str | None
