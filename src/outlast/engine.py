"""The engine protocol: everything Outlast asks of a store, and what it promises in return.

An engine keeps tasks, the log, small records and the leases of workers, and changes them in atomic
steps. Four verbs change tasks (`enqueue`, `exchange`, `alter`, `sweep`); everything else reads, or
keeps small documents. The chapters of `tests/conformance` are these sentences, executed.

**Time.** All times are integer milliseconds of engine time: the store's clock plus `skew_ms`, which
is 0 in production and is moved by tests. No clock of a caller influences any decision.

**Enqueue** is atomic for the whole batch and idempotent: a known `id`, or a `unique_key` that is
taken, gives the receipt of the task that is there (`existing`), and changes nothing. Edges to tasks
already over are settled on the spot; an edge to an unknown task, or a circle of them, is
`BadInput`. Where a new task goes: held or waiting for upstream tasks -> parked; `run_at`/`delay_ms`
ahead -> parked on time; one of its limits has waiters already -> parked on that limit, behind them;
else ready.

**Exchange** is the worker's whole conversation, one atomic step, in this order: apply outcomes,
unpark what is due (bounded), claim. Wants are served in their order up to `n` each, then, while
`room` remains, again in their order without `n`: that is the lane rule. Leases come in that order.

**Fence.** A claim gives the task the turn's token as its fence. An outcome is applied if and only
if the task is running under exactly that fence; otherwise it changes nothing and comes back in
`lost`. The same final outcome again (its reply was lost) is accepted and changes nothing. The same
turn again, by token, answers with the leases it gave that are still held. The error of the last
failed attempt stays in the record until the task completes; then it is in the history only.

**Order** inside a queue and lane: priority (lower first), then rank, then id. The rank is the due
time; with a `fair_key` it is a virtual time per key: a key's next task ranks one after its last,
but never behind what was claimed last, so a newcomer alternates with a backlog at once.

**Parking.** A pending task is ready or parked on exactly one thing: `time`, `limit:<key>`, `deps`,
`signal:<name>`. What is parked costs a claim nothing.

**Limits** (`core/limits.py` is the arithmetic). A task takes all its limits or none; the first that
does not admit it parks it. Slots belong to leases: whatever ends a lease frees them. Admission is
level-triggered: while a key has waiters and room, every exchange that wants their queue and lane
sees them as candidates, in order with the ready ones. Definitions are records of kind `limit`, by
exact key or family; a change is seen by every exchange that starts after it. A `Cap` counts the
units that outcomes charge in a span of the calendar, from the middle of attempts too, and closes
its key until the span turns or the cap is raised.

**Liveness** is the worker's: it introduces itself with `info` in its first turn, and each exchange
renews its one lease (`lease_ms`). A worker whose lease has ended is evicted by `sweep`: its running
tasks go to the retry lane with jitter until the `max_losses`-th loss, which kills them (`stalled`);
a task that was to be cancelled is cancelled. A turn without `info` of a worker that is not (or no
longer) known takes nothing and is told `Deal.evicted`; its outcomes are judged by their fences.

**Dependencies.** The last upstream to end unparks a task, once. An upstream that dies or is
cancelled cancels dependents with `needs="success"` (reason `upstream`), transitively. Telling is
bounded per step with the rest left to `sweep`, which `Deal.untold` asks for at once. Redriving the
upstream restores them. A task that was held and never heard its signal is still held when it is
redriven or restored.

**Cancel.** Pending: at once. Running: the owner hears of it in its next deal, and by `watch`. If
the lease ends first, the task is cancelled. So it is if the attempt suspends first: the children
that it was to wait for (`after`), and those that wait for these, are not born then, nor are the
steps kept that tell of them: redriven, it makes them anew. Others are born, for example what undoes
its steps.

**Sweep** is bounded, idempotent and safe from everywhere at once: evictions, due tasks, `max_age`
(dead, reason `expired`; an attempt that is given back without a lane, as a 429 and a release are,
makes its task no younger), overdue marks, retention (records of kind `retention`), expired records,
gauges recomputed from leases, dependents left over.

**Log.** A change and its events are one step. Kinds written by engines: `state` (a living status),
`progress`, `chunk`, `step`, `signal`, `rollback` (an attempt that had streamed chunks did not
succeed), `overdue`, `circuit`, `done` (a final state). Followed tasks log every change of state,
others only failures and the end. `events(after=c)` never skips and never reorders for one task.

**Watch** is a hint: it may be late, doubled or lost. Topics: `queue:<name>`, `worker:<id>`,
`task:<id>`, `log`.

**Bounded.** The cost of an exchange depends on its room and outcomes, never on how much is parked,
waiting, finished or logged.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final, Literal, Protocol

from outlast.core.errors import UnknownEngine, Unsupported, suggest
from outlast.core.model import (
    Altered,
    Change,
    Count,
    Cursor,
    Deal,
    EventPage,
    EventQuery,
    GaugeView,
    Item,
    Memory,
    NewEvent,
    NewTask,
    Page,
    Put,
    Receipt,
    Record,
    Swept,
    Task,
    TaskId,
    TaskQuery,
    Turn,
    WorkerId,
    WorkerView,
)
from outlast.core.states import Ms
from outlast.core.text import safe_url

Durability = Literal["memory", "fsync", "replicated"]


class Watch(Protocol):
    """Hints for some topics."""

    async def wait(self, timeout_s: float) -> bool:
        """Until a hint has come since the last wait, or the time is over; was there one?"""


class Engine(Protocol):
    """A store that keeps tasks. The semantics are at the head of this file."""

    skew_ms: int
    """Added to the store's clock. Tests move it; production leaves it 0."""

    @property
    def durability(self) -> Durability:
        """What an acknowledged write survives, read from the store's real settings."""

    # life ----------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect; create the schema if there is none. Idempotent."""

    async def close(self) -> None:
        """Let go of everything. Idempotent."""

    async def migrate(self) -> int:
        """Create or upgrade the schema; the version it has now."""

    async def now(self) -> Ms: ...

    # work ----------------------------------------------------------------------------------------

    async def enqueue(
        self, tasks: Sequence[NewTask], *, within: object | None = None
    ) -> list[Receipt]: ...

    async def exchange(self, turn: Turn) -> Deal: ...

    async def alter(self, ids: Sequence[TaskId], change: Change) -> list[Altered]: ...

    async def sweep(self, budget: int = 500, *, gone: Sequence[WorkerId] = ()) -> Swept:
        """One bounded pass. `gone` are workers known to be dead: evicted without waiting."""

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """A transaction of the engine's own that `enqueue(within=…)` can join."""

    # reading -------------------------------------------------------------------------------------

    async def tasks(self, query: TaskQuery) -> Page[Task]: ...

    async def memory(self, task_id: TaskId) -> Memory:
        """What a task has kept; nothing of one that is not there."""

    async def count(self, query: TaskQuery, by: Sequence[str] = ()) -> list[Count]:
        """Tasks of the query grouped by columns: status, queue, lane, type, fingerprint, …"""

    async def workers(self) -> list[WorkerView]: ...

    async def gauges(self, keys: Sequence[str] | None = None) -> list[GaugeView]: ...

    # the log -------------------------------------------------------------------------------------

    async def append(self, events: Sequence[NewEvent]) -> list[Cursor]:
        """Facts that no attempt tells (notices, audit). Attempts write through `exchange`."""

    async def events(self, query: EventQuery) -> EventPage: ...

    # small documents -----------------------------------------------------------------------------

    async def put(self, puts: Sequence[Put]) -> list[Record | None]:
        """Each as a step of its own; None where the version was another (or it was deleted)."""

    async def get(self, kind: str, keys: Sequence[str] | None = None) -> list[Record]: ...

    # whole things, for copying -------------------------------------------------------------------

    async def dump(self, after: Cursor | None = None, limit: int = 500) -> Page[Item]: ...

    async def load(self, items: Sequence[Item]) -> int:
        """Write whole things as they are; those that are there already are left. How many."""

    # wake-ups ------------------------------------------------------------------------------------

    def watch(self, topics: Collection[str]) -> AbstractAsyncContextManager[Watch]: ...


ENGINES: Final[dict[str, tuple[str, str]]] = {
    "sqlite": ("outlast.engines.sqlite", ""),
    "memory": ("outlast.engines.sqlite", ""),
    **dict.fromkeys(("postgresql", "postgres"), ("outlast.engines.postgres", "postgres")),
    **dict.fromkeys(("mongodb", "mongodb+srv"), ("outlast.engines.mongo", "mongo")),
    **dict.fromkeys(
        ("redis", "rediss", "valkey", "redis+sentinel"), ("outlast.engines.redis", "redis")
    ),
}
"""Scheme -> (module with `connect(url)`, the extra that installs its driver)."""


def connect(url: str) -> Engine:
    """The engine for a URL, not yet open."""
    scheme = url.partition("://")[0] if "://" in url else ""
    module, extra = ENGINES.get(scheme, ("", ""))
    if not module:
        found = [entry for entry in entry_points(group="outlast.engines") if entry.name == scheme]
        if not found:
            known = ", ".join(f"{name}://" for name in ENGINES)
            hint = suggest(scheme, ENGINES) or "."
            raise UnknownEngine(f"No engine for {safe_url(url)!r}{hint} Known are {known}.")
        module = found[0].value
    try:
        loaded = import_module(module)
    except ModuleNotFoundError as missing:
        if not extra or missing.name is None or missing.name.startswith("outlast"):
            raise
        raise Unsupported(
            f"The {scheme} engine needs {missing.name}: pip install 'outlast[{extra}]'"
        ) from missing
    engine: Engine = loaded.connect(url)
    return engine
