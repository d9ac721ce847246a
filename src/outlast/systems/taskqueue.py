"""`TaskQueue`: the methods of the sub-agents' design, over an app's engine.

For programs that were written against that design, and fetch their work by hand:

    async with TaskQueue(agents) as queue:
        await queue.register_worker("agent-1", capacity=1)
        while (task := await queue.dequeue("agent-1", timeout_ms=5_000)) is not None:
            await queue.complete(task.id, {"answer": 42})

What was dequeued is a lease. The queue keeps its ticket, beats for it while this process lives, and
tells with every write which lease it speaks for: a task that was dequeued elsewhere, or taken away
since, cannot be completed from here (`LeaseLost`).

While the engine is away, what was to be done waits for it, as the design's table of errors says;
`EngineDown` comes when that takes long (`PATIENCE_S`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from time import monotonic
from types import TracebackType
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from outlast.core.codec import dumps, loads
from outlast.core.errors import BadInput, EngineDown, LeaseLost, NotFound, OutlastError
from outlast.core.failures import from_wire
from outlast.core.model import Cancel, Outcome, Redrive, TaskId, TaskQuery
from outlast.core.model import Task as Stored
from outlast.core.states import Ms, Status
from outlast.handle import alter
from outlast.options import Options, name_of
from outlast.stream import fetch
from outlast.systems.subagents import PRIORITY, SubAgents, payload_of, type_of
from outlast.worker import outcomes
from outlast.worker.remote import BEAT_S, MAX_CLAIM, Ask, Remote, Ticket, draw

logger: Final = logging.getLogger("outlast.systems")

R = TypeVar("R")

OWNER: Final = "taskqueue"
PATIENCE_S: Final = 30.0
"""How long an engine that is away is waited for."""
AGAIN_S: Final = 0.5
MAX_LISTED: Final = 500


class TaskStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    STALLED = "stalled"


_STATUS: Final[dict[str, TaskStatus]] = {
    "running": TaskStatus.RUNNING,
    "stalled": TaskStatus.STALLED,
    "completed": TaskStatus.COMPLETED,
    "cancelled": TaskStatus.CANCELLED,
    "dead": TaskStatus.FAILED,
}
_WAITING: Final[tuple[Status, ...]] = ("ready", "scheduled", "retrying", "throttled", "blocked")


class Task(Struct, kw_only=True):
    """A task as the design has it. Of a new one only `subagent_type` and `prompt` must be given."""

    subagent_type: str
    prompt: str
    id: TaskId | None = None
    system_prompt: str | None = None
    model: str | None = None
    status: TaskStatus = TaskStatus.PENDING
    priority: int = PRIORITY
    created_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    agent_id: str | None = None
    retry_count: int = 0
    max_retries: int | None = None
    """None: as its kind of agents has it."""
    result: Any = None
    error: str | None = None
    exit_code: int | None = None
    tags: list[str] = []
    user_id: str | None = None
    parent_task: TaskId | None = None


class TaskSummary(Struct, frozen=True, kw_only=True):
    """A line of a list."""

    id: TaskId
    subagent_type: str
    status: TaskStatus
    priority: int
    created_at: datetime
    tags: tuple[str, ...]


class _Worker(Struct):
    ask: Ask
    heard_at: float
    asking: int = 0
    """How many calls of `dequeue` are under way for it."""


class TaskQueue:
    """Tasks of sub-agents, fetched by hand."""

    def __init__(self, agents: SubAgents) -> None:
        self._agents = agents
        self._app = agents.app
        self._remote = Remote(agents.app)
        self._workers: dict[str, _Worker] = {}
        self._held: dict[TaskId, Ticket] = {}
        self._freed = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None

    async def __aenter__(self) -> TaskQueue:
        await self._app.__aenter__()
        self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait({self._beating})
        for name in list(self._workers):
            with suppress(OutlastError):  # what could not be given back lapses
                await self.unregister_worker(name, "the queue was closed")
        await self._app.__aexit__(kind, error, trace)

    # core ----------------------------------------------------------------------------------------

    async def enqueue(self, task: Task) -> TaskId:
        options: Options = {"priority": task.priority, "tags": tuple(task.tags)}
        if task.id is not None:
            options["id"] = str(task.id)
        if task.max_retries is not None:
            options["max_attempts"] = task.max_retries + 1
        if task.user_id is not None:
            options["user_id"] = task.user_id
        if task.parent_task is not None:
            options["parent_id"] = str(task.parent_task)
        handler = self._agents.handler(task.subagent_type, **options)
        payload = payload_of(task.prompt, task.system_prompt, task.model)
        call = handler.call(**payload)  # with its id, so that it may be said twice
        [handle] = await _patient(lambda: self._app.enqueue([call]))
        return handle.id

    async def dequeue(self, worker_id: object, timeout_ms: int = 5_000) -> Task | None:
        """The next task, as soon as there is one and the worker has room for it; None when that is
        not so in time."""
        worker = self._heard(worker_id)
        until = monotonic() + timeout_ms / 1_000
        while self._is_full(worker):
            freed = self._freed
            try:
                await asyncio.wait_for(freed.wait(), until - monotonic())
            except TimeoutError:
                return None
        worker.asking += 1
        try:
            return await _patient(lambda: self._take(worker, max(until - monotonic(), 0.0)))
        finally:
            worker.asking -= 1
            self._let_in()

    async def _take(self, worker: _Worker, wait_s: float) -> Task | None:
        claim = await self._remote.claim(worker.ask, wait_s)
        if not claim.leases:
            return None
        [lease] = claim.leases
        try:
            stored = await fetch(self._app.engine, lease.id)
        except BaseException:  # whoever asked will not hear of it
            await self._remote.give_back(claim)
            raise
        started_at = stored.started_at or stored.updated_at
        self._held[lease.id] = claim.ticket(lease, started_at, lease.timeout_ms)
        return self._task(stored)

    async def complete(self, task_id: object, result: Any) -> None:
        ticket = await self._ticket(task_id)
        outcome = outcomes.completed(ticket, dumps(result, "result"))
        await _patient(lambda: self._end(ticket, outcome))

    async def fail(self, task_id: object, error: str, retryable: bool = True) -> None:
        """Again by the policy of its kind of agents, while attempts are left; else dead."""
        ticket = await self._ticket(task_id)
        told = {"type": "SubagentFailed", "message": error, "permanent": not retryable}
        outcome = outcomes.failed(ticket, from_wire(told), self._remote.policy(ticket), draw())
        await _patient(lambda: self._end(ticket, outcome))

    async def cancel(self, task_id: object) -> None:
        """From any state that is not final: at once if it waits or was dequeued here; else whoever
        runs it is told within a beat, and cannot complete it any more."""
        await _patient(lambda: alter(self._app.engine, str(task_id), Cancel()))
        if ticket := self._held.get(str(task_id)):
            await self._keep_one(ticket)

    # management ----------------------------------------------------------------------------------

    async def retry(self, task_id: object) -> None:
        """By hand: failed and cancelled tasks run again, with all their attempts."""
        await _patient(lambda: alter(self._app.engine, str(task_id), Redrive()))

    async def requeue_stalled(self, max_age_ms: int = 60_000) -> int:
        """Take away what is held by agents that were not heard of for so long, here, and by those
        whose leases have lapsed, anywhere. How many tasks that were."""
        engine, since = self._app.engine, monotonic() - max_age_ms / 1_000
        silent = {worker.ask.base for worker in self._workers.values() if worker.heard_at <= since}
        gone = {ticket.worker for ticket in self._held.values() if ticket.base in silent}
        for ticket in [t for t in self._held.values() if t.worker in gone]:
            self._drop(ticket)
        swept = await _patient(lambda: engine.sweep(gone=tuple(gone)))
        found = swept.rescued + swept.died
        while swept.more:
            swept = await _patient(engine.sweep)
            found += swept.rescued + swept.died
        return found

    async def get_status(self, task_id: object) -> TaskStatus:
        return _status(await self._stored(task_id))

    async def get(self, task_id: object) -> Task:
        """The whole task."""
        stored = await self._stored(task_id)
        if self._kind(stored) is None:
            raise NotFound(f"Task {task_id} is of the type {stored.type}, which is no agent's.")
        return self._task(stored)

    async def list_by_user(self, user_id: str, status: str | None = None) -> list[TaskSummary]:
        """The newest tasks of a user, at most 500."""
        types = tuple(map(type_of, self._agents.agents))
        query = TaskQuery.of(
            user_id=user_id, type=types, status=_statuses(status), limit=MAX_LISTED
        )
        return [
            TaskSummary(
                id=stored.id,
                subagent_type=self._kind(stored) or stored.type,
                status=_status(stored),
                priority=stored.priority,
                created_at=_moment(stored.created_at),
                tags=stored.tags,
            )
            for stored in (await _patient(lambda: self._app.engine.tasks(query))).items
        ]

    # workers -------------------------------------------------------------------------------------

    async def register_worker(self, agent_id: object, capacity: int) -> None:
        if not 1 <= capacity <= MAX_CLAIM:
            raise BadInput(f"capacity: 1 to {MAX_CLAIM}, not {capacity}.", field="capacity")
        worker = self._heard(agent_id)
        worker.ask = replace(worker.ask, slots=capacity)
        self._let_in()
        await _patient(lambda: self._remote.introduce(worker.ask))

    async def heartbeat(self, agent_id: object) -> None:
        """The agent lives; for what it holds `requeue_stalled` looks at this."""
        worker = self._heard(agent_id)
        await _patient(lambda: self._remote.introduce(worker.ask))
        await self._keep([t for t in self._held.values() if t.base == worker.ask.base])

    async def unregister_worker(self, agent_id: object, reason: str) -> None:
        """It is leaving: what it holds goes back at no cost."""
        worker = self._workers.pop(str(agent_id), None)
        if worker is None:
            raise NotFound(f"There is no worker {agent_id!r} here.")
        logger.info("Worker %s leaves: %s", agent_id, reason)
        for ticket in [t for t in self._held.values() if t.base == worker.ask.base]:
            with suppress(LeaseLost):
                await self._end(ticket, outcomes.released(ticket))
        await self._remote.dismiss(worker.ask)

    # in detail -----------------------------------------------------------------------------------

    def _heard(self, agent_id: object) -> _Worker:
        name = name_of(str(agent_id), "agent_id")
        if "#" in name or "/" in name:
            raise BadInput(f"agent_id={name!r}: it may hold no # and no /.", field="agent_id")
        worker = self._workers.get(name)
        if worker is None:
            ask = Ask(
                owner=OWNER,
                worker=name,
                queues=self._agents.queues,
                types=tuple(sorted(map(type_of, self._agents.agents))),
                most=1,
                token=None,
            )
            worker = self._workers[name] = _Worker(ask, 0.0)
        worker.heard_at = monotonic()
        return worker

    async def _ticket(self, task_id: object) -> Ticket:
        """The ticket of a task that is held here, and that nobody has cancelled meanwhile."""
        ticket = self._held.get(str(task_id))
        if ticket is not None:
            await _patient(lambda: self._tell(ticket))
        if ticket is None or ticket.id not in self._held:
            raise LeaseLost(
                f"Task {task_id} is not held here: it was not dequeued from this queue, or it was"
                " ended, cancelled or given to another worker since."
            )
        return ticket

    async def _end(self, ticket: Ticket, outcome: Outcome) -> None:
        try:
            await self._remote.end(ticket, outcome)
        except LeaseLost:
            self._drop(ticket)
            raise
        self._drop(ticket)

    def _drop(self, ticket: Ticket) -> None:
        """It is held no more, unless it was dequeued anew in the meantime."""
        if self._held.get(ticket.id) is ticket:
            del self._held[ticket.id]
        self._let_in()

    def _is_full(self, worker: _Worker) -> bool:
        """Does it hold as much as it registered for? One that did not register says itself when it
        has enough."""
        if worker.ask.slots is None:
            return False
        held = sum(ticket.base == worker.ask.base for ticket in self._held.values())
        return held + worker.asking >= worker.ask.slots

    def _let_in(self) -> None:
        """Those who wait for room look again."""
        self._freed.set()
        self._freed = asyncio.Event()

    async def _beat(self) -> None:
        """Keep what is held for as long as this process lives."""
        while True:
            await asyncio.sleep(BEAT_S)
            await self._keep(list(self._held.values()))

    async def _keep(self, tickets: list[Ticket]) -> None:
        await asyncio.gather(*map(self._keep_one, tickets))

    async def _keep_one(self, ticket: Ticket) -> None:
        try:
            await self._tell(ticket)
        except OutlastError as problem:  # the engine is away; the next beat may find it
            logger.warning("Could not keep task %s: %s", ticket.id, problem)

    async def _tell(self, ticket: Ticket) -> None:
        """That it is worked on; what is to be cancelled ends here, what was lost is let go."""
        try:
            _, cancel = await self._remote.tell(ticket, Outcome(id=ticket.id, fence=ticket.fence))
            if cancel is not None:
                await self._end(ticket, outcomes.cancelled(ticket, cancel))
        except LeaseLost:
            self._drop(ticket)

    async def _stored(self, task_id: object) -> Stored:
        return await _patient(lambda: fetch(self._app.engine, str(task_id)))

    def _kind(self, stored: Stored) -> str | None:
        """The kind of agents whose task it is."""
        return next((kind for kind in self._agents.agents if type_of(kind) == stored.type), None)

    def _task(self, stored: Stored) -> Task:
        payload: dict[str, Any] = loads(stored.payload)
        error: dict[str, Any] = loads(stored.error) if stored.error else {}
        result = None if stored.result is None else loads(stored.result)
        ended = result if isinstance(result, dict) else error.get("details") or {}
        begun = stored.attempt
        return Task(
            id=stored.id,
            subagent_type=self._kind(stored) or stored.type,
            prompt=payload["prompt"],
            system_prompt=payload.get("system_prompt"),
            model=payload.get("model"),
            status=_status(stored),
            priority=stored.priority,
            created_at=_moment(stored.created_at),
            started_at=None if stored.started_at is None else _moment(stored.started_at),
            completed_at=None if stored.completed_at is None else _moment(stored.completed_at),
            agent_id=_agent_of(stored.worker),
            retry_count=begun if stored.state == "pending" else max(begun - 1, 0),
            max_retries=stored.max_attempts - 1,
            result=result,
            error=error.get("message"),
            exit_code=ended.get("exit_code"),
            tags=list(stored.tags),
            user_id=stored.user_id,
            parent_task=stored.parent_id,
        )


async def _patient(work: Callable[[], Awaitable[R]]) -> R:
    """Do it; while the engine is away, again. What was done already is at worst refused."""
    until = monotonic() + PATIENCE_S
    while True:
        try:
            return await work()
        except EngineDown:
            if monotonic() >= until:
                raise
            await asyncio.sleep(AGAIN_S)


def _status(stored: Stored) -> TaskStatus:
    return _STATUS.get(stored.status, TaskStatus.PENDING)


def _statuses(status: str | None) -> tuple[str, ...] | None:
    if status is None:
        return None
    wanted = TaskStatus(status) if status in set(TaskStatus) else None
    if wanted is None:
        raise BadInput(f"status={status!r}: give {', '.join(TaskStatus)}.", field="status")
    if wanted == TaskStatus.PENDING:
        return _WAITING
    return tuple(ours for ours, theirs in _STATUS.items() if theirs == wanted)


def _agent_of(worker: str | None) -> str | None:
    """Who runs it: the agent that dequeued it here, or a worker of Outlast's."""
    if worker is None or not worker.startswith(f"{OWNER}/"):
        return worker
    return worker.removeprefix(f"{OWNER}/").partition("#")[0]


def _moment(at: Ms) -> datetime:
    return datetime.fromtimestamp(at / 1_000, UTC)
