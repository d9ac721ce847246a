"""The shapes that OpenAPI tells: what goes in and what comes out of the routes.

They are descriptions, not parsers: requests are checked where the values are used (`app.prepare`,
`parse_query`, `ops`), so that Python, HTTP and the command line refuse with the same words.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from outlast import notices
from outlast.access import Quota
from outlast.core.states import Lane, State, Status, Verdict
from outlast.notices import Action, NoticeType
from outlast.webhooks import HAPPENINGS, Happening

Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Id = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
Span = Annotated[float | str, Meta(description="seconds, or text such as '10m'")]
Json = Any
"""Whatever JSON can say."""
Object = dict[str, Any]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Priority = Annotated[int, Meta(ge=0, le=32767)] | Literal["critical", "high", "normal", "low"]

Path = Annotated[str | list[str | int], Meta(description='`words.0`, or ["words", 0]')]
Test = Literal["is", "==", "!=", "<", "<=", ">", ">="]
WorkflowStatus = Literal[
    "running", "completed", "dead", "cancelled", "undoing", "undone", "undo_failed"
]

PREFIX: Final = "#/components/schemas/"


class Sent(Struct, forbid_unknown_fields=True):
    """What comes in: a field that nobody knows is refused, for it was meant to do something."""


class Problem(Struct, kw_only=True):
    """Why a request was refused (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    """Stable, for programs."""
    field: str = ""
    """The part of the request that is wrong, where there is one."""


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


class Queue(Struct, kw_only=True):
    """Depths and counts of one queue."""

    primary: int
    retry: int
    scheduled: int
    dlq: int
    states: dict[Status, int]
    retry_ratio: float
    pressure: Literal["normal", "warning", "critical"]
    oldest_seconds: float
    paused: bool
    completed_per_minute: int


class Queues(Struct):
    """Depths and counts of all queues."""

    queues: dict[Literal["primary", "retry", "scheduled", "dlq"], int]
    states: dict[Status, int]
    retry_ratio: float
    pressure: Literal["normal", "warning", "critical"]
    by_queue: dict[str, Queue]


class Paused(Struct):
    """A queue, and whether workers take from it."""

    queue: str
    paused: bool


class Worker(Struct):
    """A worker that has registered."""

    id: str
    host: str
    pid: int
    version: str
    queues: list[str]
    types: list[str]
    slots: int
    running: int
    alive: bool
    started_at: Time | None
    seen_at: Time
    lease_until: Time
    draining: bool
    """It was asked to end what it runs, and to stop."""


class WorkerPage(Struct):
    """All workers."""

    items: list[Worker]
    next: str | None


class TripSpec(Sent):
    """A circuit breaker."""

    rate: float = 0.5
    volume: int = 10
    window: Span = "60s"
    open: Span = "60s"


class LimitSpec(Sent):
    """A limit: slots, a rate such as `60/min`, a circuit breaker, or several of them."""

    slots: int | None = None
    rate: str | None = None
    trip: TripSpec | None = None


class Limit(Struct):
    """A definition, by exact key or family."""

    key: str
    slots: int | None
    rate: str | None
    trip: TripSpec | None


class KnownLimit(Limit):
    """A definition and who gave it."""

    source: Literal["code", "people"]


class Gauge(Struct):
    """The state of a limit key that is in use."""

    key: str
    limit: Limit | None
    used: int
    waiting: int
    circuit: Literal["closed", "open", "half_open"]
    open_until: Time | None
    paused_until: Time | None
    probe: Id | None
    holders: list[Id]


class LimitPage(Struct):
    """All definitions, and the keys in use."""

    items: list[KnownLimit]
    gauges: list[Gauge]
    next: str | None


class BudgetSpec(Sent):
    """Amounts such as `5.00/day`: per hour, day or month (UTC), or without a span for ever."""

    cost: str | None = None
    tokens: str | None = None
    then: Literal["hold", "refuse"] = "hold"
    """When it is used up: tasks wait, or new ones are refused."""


class Budget(Struct, kw_only=True):
    """A definition: `global`, or `type:`, `queue:`, `user:` or `session:` with a name or a star."""

    key: str
    cost: str | None
    tokens: str | None
    then: Literal["hold", "refuse"]
    source: Literal["code", "people"]


class BudgetUse(Struct, kw_only=True):
    """What was used in the span that runs."""

    key: str
    """Whose: `user:ada`."""
    measure: Literal["cost", "tokens"]
    used: float
    amount: float
    span: Literal["hour", "day", "month", "total"]
    resets_at: Time | None
    waiting: int


class KnownBudget(Budget, kw_only=True):
    """A budget and its use."""

    used: list[BudgetUse]


class BudgetPage(Struct):
    """All budgets."""

    items: list[KnownBudget]
    next: str | None


class UsageItem(UsageSum, kw_only=True):
    """The sum for one day, type, queue, model, user or session; null is for none."""

    day: str | UnsetType = UNSET
    type: str | UnsetType | None = UNSET
    queue: str | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    user: str | UnsetType | None = UNSET
    session: str | UnsetType | None = UNSET


class UsagePage(Struct, kw_only=True):
    """What was used from one day to another, the dearest first; days as they come."""

    by: Literal["day", "type", "queue", "model", "user", "session"]
    first: str = field(name="from")
    last: str = field(name="to")
    items: list[UsageItem]
    total: UsageSum
    next: str | None


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


class NewKey(Sent, kw_only=True):
    """An API key to be made. Without queues and types it is for all of them."""

    role: Literal["admin", "operator", "client", "worker"]
    name: Annotated[str, Meta(max_length=200)] | None = None
    queues: list[Name] = []
    types: list[Name] = []
    read_only: bool = False
    rate: str | None = None
    """Requests in a time, as in `600/min`."""
    quota: Quota | None = None
    expires: Span | None = None


class Key(Struct, kw_only=True):
    """An API key, without the key."""

    id: str
    name: str
    role: Literal["admin", "operator", "client", "worker"]
    queues: list[str]
    types: list[str]
    read_only: bool
    rate: str | None
    quota: Quota | None
    created_at: Time
    expires_at: Time | None


class MadeKey(Key, kw_only=True):
    """A new API key: the only time that it is shown."""

    key: str


class KeyPage(Struct):
    """All API keys."""

    items: list[Key]
    next: str | None


class NewToken(Sent, kw_only=True):
    """For whom a session token is."""

    user_id: Name | None = None
    types: list[Name] = []
    priority: Priority | None = None
    """Of the tasks that the token enqueues, where their type names none."""
    ttl: Span = "12h"


class Token(Struct, kw_only=True):
    """A session token."""

    token: str
    session_id: str
    user_id: str | None


class Notice(Struct, kw_only=True):
    """One notification."""

    notification_id: Id
    type: NoticeType
    task_id: Id
    task_type: str
    message: str
    action: Action
    timestamp: Time
    priority: Literal["critical", "high", "normal", "low"]


class NoticePage(Struct):
    """Notifications that were not acknowledged; `more` when there are others behind them, at
    `next`."""

    items: list[Notice]
    more: bool
    next: str | None


class Ack(Sent):
    """Notifications that have arrived."""

    ids: Annotated[list[str], Meta(max_length=1000)]


class Acked(Struct):
    """Those that were acknowledged now, and not before."""

    acknowledged: list[str]


class Preferences(Sent, kw_only=True):
    """What a session wants to be told."""

    types: tuple[NoticeType, ...] = notices.Preferences().types
    min_priority: Literal["critical", "high", "normal", "low"] = "low"
    push: bool = True


class Login(Sent):
    """An API key, given once."""

    key: str


class LoggedIn(Struct):
    """Who it is."""

    role: Literal["admin", "operator", "client", "worker", "session"]
    name: str
    read_only: bool


class NewTicket(Sent):
    """For what a ticket is."""

    path: Annotated[str, Meta(max_length=400)]
    """The path of a stream or a socket, as in `/api/v1/events`."""


class Ticket(Struct):
    """Good for one connection, within half a minute: `…/ws?ticket=…`."""

    ticket: str


class NewClaim(Sent, kw_only=True):
    """What a worker asks for: queues, types or both. Without types, whatever is in its queues."""

    worker: Name
    queues: Annotated[list[Name], Meta(max_length=50)] = []
    types: Annotated[list[Name], Meta(max_length=200)] = []
    max: Annotated[int, Meta(ge=1, le=50)] = 1
    wait: Annotated[float, Meta(ge=0, le=60)] = 0
    """Seconds to wait for a task when there is none."""
    token: Name | None = None
    """A random text: the same again within an hour gives the same leases again."""


class SignalCome(Struct):
    """A signal that has come for a task."""

    name: str
    data: Json
    at: Time


class LeasedTask(Struct, kw_only=True):
    """A task to work on, and the right to do so."""

    lease: str
    """For the other calls; opaque."""
    task: Task
    until: Time
    """The lease is over then, unless there was a call with it."""
    deadline: Time | None
    """The attempt has timed out then."""
    steps: dict[str, Json]
    """What earlier attempts remembered."""
    signals: list[SignalCome]


class Claimed(Struct):
    """Tasks to work on; none when there was none in time."""

    items: list[LeasedTask]


class Kept(Struct):
    """Until when the lease holds now, and why the task is to stop, if it is."""

    until: Time
    cancel: str | None


class NewUsage(Sent, kw_only=True):
    """What the attempt has used since it last told. Without `tokens` they are those that went in
    and came out."""

    tokens: Annotated[int, Meta(ge=0)] | None = None
    cost: Annotated[float, Meta(ge=0)] | str | None = None
    """In your currency; as text it is exact to nine decimals."""
    model: str | None = None
    input_tokens: Annotated[int, Meta(ge=0)] | None = None
    output_tokens: Annotated[int, Meta(ge=0)] | None = None
    more: dict[str, float] | None = None
    """Whatever else is counted: pictures, seconds, searches."""


class NewProgress(Sent, kw_only=True):
    """How far an attempt is."""

    percent: Annotated[float, Meta(ge=0, le=100)]
    message: str = ""
    data: Object = {}
    usage: NewUsage | None = None


class NewChunk(Sent):
    """A piece of output."""

    chunk: Json


class NewResult(Sent):
    """What came out."""

    result: Json = None
    usage: NewUsage | None = None


class FailureReport(Struct, kw_only=True):
    """What went wrong; `status` (HTTP) or `code` tell whether another attempt may help."""

    type: str = "Error"
    message: str = ""
    code: str | None = None
    status: int | None = None
    retry_after: float | None = None
    details: Object | None = None
    traceback: str | None = None


class NewFailure(Sent, kw_only=True):
    """How an attempt failed. `retry`: false never, true by the schedule, or after how long; null
    leaves it to the policy of the type."""

    error: FailureReport | None = None
    retry: bool | Span | None = None
    usage: NewUsage | None = None


class Ended(Struct):
    """How the attempt was recorded."""

    task_id: Id
    outcome: Verdict


class NewWebhook(Sent, kw_only=True):
    """Where to send what."""

    url: Annotated[str, Meta(max_length=2000)]
    events: tuple[Happening, ...] = HAPPENINGS
    filter: Annotated[str, Meta(max_length=2000)] = ""
    """By type, queue, session and workflow, as in `type:report -queue:bulk`."""


class Webhook(Struct, kw_only=True):
    """A subscription."""

    id: Id
    url: str
    events: list[Happening]
    filter: str
    disabled: str | None
    created_at: Time


class MadeWebhook(Webhook, kw_only=True):
    """A subscription with its newest secret."""

    secret: str


class WebhookPage(Struct):
    """All subscriptions."""

    items: list[Webhook]
    next: str | None


class Health(Struct):
    """How the server, its engine and its workers are."""

    status: Literal["healthy", "degraded", "unhealthy"]
    components: dict[Literal["engine", "workers", "circuit_breaker"], Object | None]
    timestamp: Time | None


class Times(Struct):
    """How long something took, in seconds."""

    average: float | None
    p95: float | None


class TaskMetric(Struct):
    """What happened to one type in one queue, in one hour or day."""

    begin: Time
    end: Time
    type: str
    queue: str
    enqueued: int
    completed: int
    dead: int
    cancelled: int
    retried: int
    failed: int
    """Attempts that failed."""
    timed_out: int
    error_rate: float | None
    """Of the attempts that succeeded or failed, how many failed."""
    wait: Times
    """From when a task was due until its attempt began."""
    run: Times
    heartbeat_delay: float
    """The longest that a living worker was not heard of, in seconds."""


class TaskMetrics(Struct):
    """What happened, oldest first."""

    items: list[TaskMetric]
    next: str | None


class Alive(Struct):
    """The process answers."""

    status: str


SHAPES: Final = (
    TaskEvents, Events, NewTicket, Login, LoggedIn,
    Problem, NewTask, NewSummary, Batch, Task, Enqueued, EnqueuedBatch, TaskPage, Why, Reason, Edit,
    Bulk, Matched, Requeued, Queues, Paused, WorkerPage, LimitSpec, Limit, LimitPage, TypePage,
    BulkEnqueued, DeadGroupPage, TaskMetrics, Health, Alive, NewKey, MadeKey, KeyPage, NewToken,
    Token, Ticket, NewWebhook, Webhook, MadeWebhook, WebhookPage, NoticePage, Ack, Acked,
    Preferences,
    UsagePage, BudgetSpec, Budget, BudgetPage, NewUsage,
    NewWorkflow, EnqueuedWorkflow, WorkflowItem, Workflow, WorkflowPage, CancelWorkflow,
    RetryWorkflow, NewSchedule, Schedule, SchedulePage, ApprovalPage, Answer,
    Rerun, Steps, NewClaim, Claimed, Kept, NewProgress, NewChunk, NewResult, NewFailure, Ended,
)  # fmt: skip


def components() -> dict[str, Any]:
    """The schemas that the routes refer to."""
    return msgspec.json.schema_components(SHAPES, ref_template=PREFIX + "{name}")[1]
