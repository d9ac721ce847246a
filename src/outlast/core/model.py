"""The values that cross the engine protocol: what goes in, what comes out, nothing that acts.

Everything here is plain data. Times are integer milliseconds of engine time. Payloads, results,
errors and event data are JSON bytes that no engine looks into.
"""

from __future__ import annotations

from typing import Final, Generic, Literal, TypeVar

from msgspec import Struct

from outlast.core.states import Lane, Ms, State, Status, Verdict

TaskId = str
WorkerId = str
Fence = int
Cursor = str
Json = bytes

T = TypeVar("T")

PRIORITIES: Final[dict[str, int]] = {"critical": 0, "high": 1, "normal": 2, "low": 3}
MAX_PRIORITY: Final = 32767
KEPT_ATTEMPTS: Final = 50
"""Attempts kept in a record: the first half and the last half of them."""


# Going in ----------------------------------------------------------------------------------------


# gc=False: made by the thousand, and of values only. The collector would take a tenth of an enqueue
# to find that out.
class NewTask(Struct, frozen=True, kw_only=True, gc=False):
    """A task as it enters. The caller makes the id, so a repeated enqueue is the same enqueue."""

    id: TaskId
    type: str
    payload: Json = b"{}"
    queue: str = "default"
    lane: Lane = "primary"
    priority: int = 2
    run_at: Ms | None = None
    delay_ms: int = 0
    max_attempts: int = 4
    max_losses: int = 3
    timeout_ms: int | None = None
    overdue_after_ms: int | None = None
    max_age_ms: int | None = None
    limits: tuple[tuple[str, int], ...] = ()
    """(key, units) of every limit it must hold to run: all or none."""
    unique_key: str | None = None
    unique_for_ms: int | None = None
    """None: unique among living tasks. A span: for that long, in any state."""
    digest: str | None = None
    """What the caller hashed the request to; kept beside the unique key and given back, so that
    an Idempotency-Key that returns with another body can be told from a repetition."""
    after: tuple[TaskId, ...] = ()
    needs: Literal["success", "any"] = "success"
    hold: str | None = None
    """Name of the signal it waits for before its first attempt."""
    session_id: str | None = None
    user_id: str | None = None
    parent_id: TaskId | None = None
    workflow_id: str | None = None
    tags: tuple[str, ...] = ()
    attrs: tuple[tuple[str, str], ...] = ()
    """(name, value) pairs that core took from the payload, to be found by."""
    fair_key: str | None = None
    """Set in queues that are shared fairly between keys; the rank is then a virtual time."""
    followed: bool = True
    """Log every change of state; otherwise only failures and the end."""
    meta: Json = b"{}"
    """What core remembers about it and no engine needs to know."""


class Receipt(Struct, frozen=True, gc=False):
    """The answer to one enqueue: the living task it met, or the new one."""

    id: TaskId
    existing: bool = False
    digest: str | None = None


class NewEvent(Struct, frozen=True, kw_only=True):
    """A fact to append. Without a task it speaks of a session, a workflow or the system."""

    kind: str
    data: Json = b"{}"
    task_id: TaskId | None = None
    session_id: str | None = None
    workflow_id: str | None = None


class Step(Struct, frozen=True):
    """A remembered part of a handler: written once, given back with every later lease."""

    key: str
    value: Json


class SignalIn(Struct, frozen=True):
    """A signal in a task's inbox, in order of arrival."""

    name: str
    data: Json
    at: Ms


class Memory(Struct, frozen=True):
    """What a task has kept over its attempts: its steps and its inbox, each in order."""

    steps: tuple[Step, ...] = ()
    inbox: tuple[SignalIn, ...] = ()


class Charge(Struct, frozen=True):
    """What an attempt has to say about one of its limits: did the service work, what was used."""

    key: str
    ok: bool | None = None
    units: int = 0


class Outcome(Struct, frozen=True, kw_only=True, gc=False):
    """A patch by a running attempt, guarded by its fence.

    `state="running"` reports from the middle (progress, chunks, steps, children) and keeps the
    lease; any other state ends the attempt. The engine never decides whether to retry: it sets
    what is said here, frees the limits, logs, spawns, and releases dependents, in one step.
    """

    id: TaskId
    fence: Fence
    state: State = "running"
    verdict: Verdict = "succeeded"
    lane: Lane | None = None
    delay_ms: int = 0
    park: str | None = None
    """`signal:<name>`: parked until `awaits` signals of that name have come in all, at most
    `delay_ms` when that is set. Checked against the inbox in the same step."""
    awaits: int = 1
    after: tuple[TaskId, ...] = ()
    """Parked until these are over, however they end."""
    refund: bool = False
    """The attempt does not count (released, waiting, throttled)."""
    result: Json | None = None
    error: Json | None = None
    fingerprint: str | None = None
    reason: str | None = None
    progress: Json | None = None
    timeout_ms: int | None = None
    """A longer timeout for the next attempt."""
    charges: tuple[Charge, ...] = ()
    pauses: tuple[tuple[str, int], ...] = ()
    """(limit key, milliseconds): nobody takes the key for that long."""
    steps: tuple[Step, ...] = ()
    events: tuple[NewEvent, ...] = ()
    spawn: tuple[NewTask, ...] = ()


class Want(Struct, frozen=True):
    """Up to `n` tasks of one lane of one queue."""

    queue: str
    lane: Lane
    n: int


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """What a worker says about itself when it first takes a turn, and whenever that changes."""

    host: str
    pid: int
    started_at: Ms = 0
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    slots: int = 1
    version: str = ""


class Turn(Struct, frozen=True, kw_only=True):
    """One exchange: hand back outcomes, keep the worker's lease, take new work.

    The caller draws `token`; it becomes the fence of every lease of this turn. A turn that
    comes again with the same token (its reply was lost) gets the same leases again.
    """

    token: Fence
    worker: WorkerId
    lease_ms: int = 10_000
    wants: tuple[Want, ...] = ()
    room: int = 0
    """How many leases in all; after the wants, what remains is filled from their queues."""
    outcomes: tuple[Outcome, ...] = ()
    info: WorkerInfo | None = None
    pressure: bool = False
    """Count the ready retries of the wanted queues (bounded) into the deal."""
    leaving: bool = False
    """The worker's last turn: its row goes, and what it still holds is released."""


class Lease(Struct, frozen=True, kw_only=True, gc=False):
    """The right to run one task, with what an attempt needs to know."""

    id: TaskId
    fence: Fence
    type: str
    queue: str
    lane: Lane
    payload: Json
    attempt: int
    """Attempts that count, this one included."""
    number: int
    """Attempts ever started, this one included: the number in the history and in events."""
    max_attempts: int
    losses: int
    max_losses: int = 3
    priority: int
    timeout_ms: int | None
    run_at: Ms
    created_at: Ms
    limits: tuple[tuple[str, int], ...] = ()
    session_id: str | None = None
    user_id: str | None = None
    parent_id: TaskId | None = None
    workflow_id: str | None = None
    unique_key: str | None = None
    meta: Json = b"{}"
    steps: tuple[Step, ...] = ()
    inbox: tuple[SignalIn, ...] = ()


class Deal(Struct, frozen=True, kw_only=True):
    """The engine's side of an exchange."""

    now: Ms
    leases: tuple[Lease, ...] = ()
    lost: tuple[tuple[TaskId, Fence], ...] = ()
    """Outcomes that were refused: somebody else owns the task now, or nobody does."""
    cancel: tuple[tuple[TaskId, str], ...] = ()
    """(id, reason) of running tasks of this worker that are to stop."""
    next_due: Ms | None = None
    """When the next parked task of the wanted queues comes due, if one is known."""
    again: bool = False
    """Bounded work ran out before room did: ask again now."""
    untold: bool = False
    """What this turn has ended has more dependents than were told: a sweep tells the rest."""
    evicted: bool = False
    """The worker was taken for dead: all its leases are gone, it needs a new identity."""
    pressure: dict[str, int] = {}


# Changing ----------------------------------------------------------------------------------------


class Cancel(Struct, frozen=True, tag=True):
    """Pending: cancelled at once. Running: the owner is told. Final: refused."""

    reason: str = "cancelled"


class Redrive(Struct, frozen=True, tag=True):
    """Dead or cancelled goes back to pending with fresh budgets; retrying runs now."""

    delay_ms: int = 0
    payload: Json | None = None
    attrs: tuple[tuple[str, str], ...] | None = None


class Reschedule(Struct, frozen=True, tag=True):
    """A pending task parked on time, or ready, becomes due after `delay_ms` (or at `run_at`)."""

    delay_ms: int = 0
    run_at: Ms | None = None


class Reprioritize(Struct, frozen=True, tag=True):
    """Another priority for a pending task."""

    priority: int


class EditPayload(Struct, frozen=True, tag=True):
    """Another payload for a task that is pending, dead or cancelled."""

    payload: Json
    attrs: tuple[tuple[str, str], ...] = ()


class Resolve(Struct, frozen=True, tag=True):
    """Completed by hand, with a result: pending or dead tasks."""

    result: Json
    reason: str = "resolved"


class Signal(Struct, frozen=True, tag=True):
    """Into the inbox of a living task; wakes it when it is parked on that name."""

    name: str
    data: Json = b"null"


class Forget(Struct, frozen=True, tag=True):
    """Delete a task that is not running, with its events, steps and edges."""


Change = Cancel | Redrive | Reschedule | Reprioritize | EditPayload | Resolve | Signal | Forget


class Altered(Struct, frozen=True):
    """What became of one change: applied, or why not (`not_found`, `state`, `unique`)."""

    id: TaskId
    applied: bool
    why: str | None = None
    state: State | None = None
    """The state that the change met."""


class Swept(Struct, frozen=True, kw_only=True):
    """How much one sweep did; `more` when its budget ran out first."""

    rescued: int = 0
    died: int = 0
    expired: int = 0
    overdue: int = 0
    unparked: int = 0
    settled: int = 0
    forgotten: int = 0
    workers: int = 0
    more: bool = False


# Reading -----------------------------------------------------------------------------------------


class Task(Struct, frozen=True, kw_only=True):
    """The record of one task."""

    id: TaskId
    type: str
    queue: str
    lane: Lane
    priority: int
    state: State
    parked: str | None
    """`time`, `limit:<key>`, `deps`, `signal:<name>`, or None: ready (or not pending)."""
    status: Status
    payload: Json
    result: Json | None
    error: Json | None
    attempts: Json
    progress: Json | None
    attempt: int
    number: int
    max_attempts: int
    losses: int
    max_losses: int
    timeout_ms: int | None
    overdue_after_ms: int | None
    overdue_at: Ms | None
    max_age_ms: int | None
    run_at: Ms
    created_at: Ms
    started_at: Ms | None
    updated_at: Ms
    completed_at: Ms | None
    worker: WorkerId | None
    lease_until: Ms | None
    limits: tuple[tuple[str, int], ...]
    reason: str | None
    """Why it died or was cancelled; for a running task, why it was asked to stop."""
    fingerprint: str | None
    session_id: str | None
    user_id: str | None
    tags: tuple[str, ...]
    parent_id: TaskId | None
    workflow_id: str | None
    unique_key: str | None
    after: tuple[TaskId, ...]
    needs: str
    awaits: int
    """How many upstream tasks are unfinished, or how many signals it waits for in all."""
    version: int
    followed: bool
    meta: Json

    @property
    def retry_at(self) -> Ms | None:
        return self.run_at if self.status == "retrying" else None


class Term(Struct, frozen=True):
    """One condition of a task query; `values` are alternatives."""

    field: str
    values: tuple[str | int, ...]
    op: Literal["=", ">", "<"] = "="
    negated: bool = False


QUERY_FIELDS: Final[frozenset[str]] = frozenset(
    {
        "id",
        "status",
        "type",
        "queue",
        "lane",
        "priority",
        "session_id",
        "user_id",
        "tag",
        "workflow_id",
        "parent_id",
        "unique_key",
        "worker",
        "limit",
        "fingerprint",
        "reason",
        "parked",
        "created_at",
        "completed_at",
        "ahead_of",
        "text",
    }
)
"""Fields of a term, besides `attr.<name>` (declared with search=) and `payload.<path>`.

`limit` finds tasks that carry the key; `ahead_of` the ready tasks that will be claimed before
the given one; `text` a piece of the payload, by a bounded scan."""


class TaskQuery(Struct, frozen=True, kw_only=True):
    """Tasks for which every term holds, newest first."""

    terms: tuple[Term, ...] = ()
    limit: int = 50
    cursor: Cursor | None = None

    @classmethod
    def of(cls, *, limit: int = 50, cursor: Cursor | None = None, **equal: object) -> TaskQuery:
        """Shorthand: `TaskQuery.of(status="dead", type=("a", "b"))`."""
        terms = []
        for field, value in equal.items():
            if value is not None:
                many = tuple(value) if isinstance(value, tuple | list | frozenset) else (value,)
                terms.append(Term(field, many))
        return cls(terms=tuple(terms), limit=limit, cursor=cursor)


class Page(Struct, Generic[T], frozen=True):
    """A piece of a list. It may be short and still have a `next`: work per call is bounded."""

    items: tuple[T, ...]
    next: Cursor | None = None


class Count(Struct, frozen=True):
    """How many tasks share these values, and since when the oldest of them has been due."""

    by: tuple[str | int | None, ...]
    n: int
    oldest_at: Ms | None = None


class Event(Struct, frozen=True, kw_only=True):
    """A fact of the log. `cursor` is its place, opaque and fit for an SSE id."""

    cursor: Cursor
    kind: str
    at: Ms
    data: Json
    task_id: TaskId | None = None
    attempt: int = 0
    type: str | None = None
    queue: str | None = None
    session_id: str | None = None
    workflow_id: str | None = None


class EventQuery(Struct, frozen=True, kw_only=True):
    """Events after a cursor, in order; `after="$"` is the end, an empty page to go on from."""

    after: Cursor | None = None
    task_id: TaskId | None = None
    session_id: str | None = None
    workflow_id: str | None = None
    kinds: tuple[str, ...] = ()
    limit: int = 200


class EventPage(Struct, frozen=True):
    """Events and where to go on. `reset`: what lay between the cursor and here was pruned."""

    items: tuple[Event, ...]
    next: Cursor
    reset: bool = False


class Record(Struct, frozen=True, kw_only=True):
    """A small versioned document."""

    kind: str
    key: str
    value: Json
    version: int
    expires_at: Ms | None = None


class Put(Struct, frozen=True, kw_only=True):
    """Write (or, with `value=None`, delete) a record if its version is the expected one.

    `expect=None` writes whatever is there; `expect=0` only if nothing is."""

    kind: str
    key: str
    value: Json | None
    expect: int | None = None
    ttl_ms: int | None = None


class GaugeView(Struct, frozen=True, kw_only=True):
    """The state of one limit key, for people."""

    key: str
    limit: Json | None
    """The definition that applies to it, as stored; None when there is none."""
    used: int
    waiting: int
    circuit: Literal["closed", "open", "half_open"]
    open_until: Ms | None
    paused_until: Ms | None
    probe: TaskId | None
    holders: tuple[TaskId, ...]
    spent: int = 0
    """Units used of the cap in the span that runs."""


class WorkerView(Struct, frozen=True, kw_only=True):
    """A registered worker."""

    id: WorkerId
    info: WorkerInfo
    seen_at: Ms
    lease_until: Ms
    running: int
    alive: bool


class Dumped(Struct, frozen=True, kw_only=True):
    """A task with everything that belongs to it, but for its edges and events."""

    task: Task
    attrs: tuple[tuple[str, str], ...] = ()
    steps: tuple[tuple[str, Json, Ms], ...] = ()
    signals: tuple[SignalIn, ...] = ()
    fair_key: str | None = None
    hold: str | None = None
    wake_at: Ms | None = None
    overdue: bool = False
    unique_until: Ms | None = None
    digest: str | None = None


class Item(Struct, frozen=True):
    """One whole thing, as `dump` gives it and `load` takes it; JSON of a `Dumped` task, an
    `(up, down, done)` edge, an `Event`, a `Record`, or a gauge (`core.limits.Gauge`)."""

    kind: Literal["record", "gauge", "task", "edge", "event"]
    data: Json
