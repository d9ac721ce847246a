"""An orchestrator of agents: who does what, and that nobody does what is another's.

    system = Orchestrator(app)
    fitment = system.agent("FitmentAgent")

    @fitment.task(priority="critical")
    async def generate_fitment(ctx: Context, part: str) -> dict: ...

    async with system.workflow("onboarding") as flow:
        first = flow.create_task(agent_name="FitmentAgent", task_type="generate_fitment", payload=…)

A task type is `<agent>.<task type>`. While an agent works, it may make and change tasks of its own
and of no other agent, known here or not: `ForeignAgent`, and the task is dead. With every result of
an agent a job to embed it is enqueued, in the attempt's own name and behind its end, so that there
is one for each task that completed (`memory.py`). What happened is read from the log, as agent
events.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, Unpack

from msgspec import Struct

from outlast.app import Outlast
from outlast.context import Context
from outlast.core.codec import loads
from outlast.core.errors import BadInput, Permanent, suggest
from outlast.core.model import Cursor, Event, EventQuery, TaskId, TaskQuery
from outlast.core.model import Task as Stored
from outlast.core.retry import Retry
from outlast.core.states import Ms
from outlast.decorating import TaskArgs
from outlast.handle import Handle
from outlast.handler import Function, Handler
from outlast.options import Options, Priority
from outlast.stream import tail
from outlast.systems.memory import Memory
from outlast.workflow import Node, Workflow

P = ParamSpec("P")
R = TypeVar("R")

MAX_ATTEMPTS: Final = 3
RETRY: Final = Retry.polynomial("5s", 2, jitter=0)
"""n² times 5 seconds: 5, 20, 45."""
_NAME: Final = "A name of an agent has letters, digits and _ - only"

_working: ContextVar[str | None] = ContextVar("outlast_agent", default=None)


class ForeignAgent(Permanent):
    """An agent tried to make or change a task of another one; that is the orchestrator's part."""

    code = "foreign_agent"


class AgentEvent(Struct, frozen=True, kw_only=True):
    """Something that happened to a task of an agent."""

    event_id: Cursor
    """Where to go on: `system.events(after=event.event_id)`."""
    agent_name: str
    task_type: str
    task_id: TaskId
    workflow_id: str | None
    status: str
    attempt: int
    error: dict[str, Any] | None
    at: Ms


class DeadTask(Struct, frozen=True, kw_only=True):
    """What people need to know to decide about a dead task."""

    id: TaskId
    agent_name: str
    task_type: str
    workflow_id: str | None
    payload: Any
    attempts: int
    max_attempts: int
    error_info: dict[str, Any] | None
    reason: str | None


class Agent:
    """One agent: its task types."""

    def __init__(self, system: Orchestrator, name: str) -> None:
        self._system = system
        self.name = name

    def task(
        self, **options: Unpack[TaskArgs]
    ) -> Callable[
        [Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]],
        Function[P, R, Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]],
    ]:
        """An `async def` as a task type of this agent, called like it unless `name=` says."""
        told: dict[str, Any] = {"max_attempts": MAX_ATTEMPTS, "retry": RETRY, **options}

        def decorate(
            fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]],
        ) -> Function[P, R, Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]]:
            if not inspect.iscoroutinefunction(fn):
                raise BadInput(f"{self.name}: {fn!r} is no async def, as agents' tasks are.")
            name = told.pop("name", fn.__name__)
            work = self._as_agent(fn)
            return self._system.app.task(name=f"{self.name}.{name}", **told)(work)

        return decorate

    def _as_agent(
        self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]
    ) -> Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]:
        """The function, with the agent at work in it, and what follows it."""

        @functools.wraps(fn)
        async def work(ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> R:
            if _working.get() is not None:  # another agent calls it as a function, as its own work
                return await fn(ctx, *args, **kwargs)
            token = _working.set(self.name)
            try:
                result = await fn(ctx, *args, **kwargs)
            finally:
                _working.reset(token)
            await ctx.spawn((self._system.memory.job_for(ctx),))
            return result

        return work


class AgentWorkflow:
    """A graph of agents' tasks being written down; leaving the block enqueues it whole."""

    def __init__(self, system: Orchestrator, flow: Workflow) -> None:
        self._system = system
        self._flow = flow

    @property
    def id(self) -> TaskId:
        return self._flow.id

    @property
    def handle(self) -> Handle[Any]:
        return self._flow.handle

    def create_task(
        self,
        *,
        agent_name: str,
        task_type: str,
        payload: Mapping[str, Any],
        priority: Priority | None = None,
        max_attempts: int | None = None,
        after: Iterable[Node[Any]] | Node[Any] = (),
        **edges: Any,
    ) -> Node[Any]:
        """A task by its definition. Results of others may stand in its payload; `needs`, `when`,
        `undo` and `name` are those of workflows."""
        handler = self._system.handler(agent_name, task_type, **_given(priority, max_attempts))
        return self._flow.node(handler, payload, after=after, **edges)

    async def __aenter__(self) -> AgentWorkflow:
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        await self._flow.__aexit__(kind, error, trace)


class Orchestrator:
    """The one who hands out work. It keeps nothing: any number may be open on one engine."""

    def __init__(self, app: Outlast, memory: Memory | None = None) -> None:
        self.app = app
        self.agents: dict[str, Agent] = {}
        self.memory = memory or Memory(app)
        app.guard = self._check

    def agent(self, name: str) -> Agent:
        if not name.replace("_", "").replace("-", "").isalnum():
            raise BadInput(f"{_NAME}, not {name!r}.", field="agent_name")
        return self.agents.setdefault(name, Agent(self, name))

    def handler(
        self, agent_name: str, task_type: str, **options: Unpack[Options]
    ) -> Handler[..., Any]:
        """The handler behind a definition."""
        if agent_name not in self.agents:
            hint = suggest(agent_name, self.agents) or f". There are: {', '.join(self.agents)}."
            raise BadInput(f"There is no agent {agent_name!r}{hint}", field="agent_name")
        found = self.app.find(f"{agent_name}.{task_type}")
        if found is None:
            known = [type.partition(".")[2] for type in self._types(agent_name)]
            hint = suggest(task_type, known) or f". It does: {', '.join(known)}."
            raise BadInput(f"{agent_name} does no {task_type!r}{hint}", field="task_type")
        return found.options(**options)

    async def create_task(
        self,
        *,
        agent_name: str,
        task_type: str,
        payload: Mapping[str, Any],
        workflow_id: str | None = None,
        priority: Priority | None = None,
        max_attempts: int | None = None,
    ) -> Handle[Any]:
        """One task by its definition."""
        options = _given(priority, max_attempts)
        if workflow_id is not None:
            options["workflow_id"] = workflow_id
        handler = self.handler(agent_name, task_type, **options)
        [handle] = await self.app.enqueue([handler.accept(payload)])
        return handle

    def workflow(self, name: str, **options: Any) -> AgentWorkflow:
        """A graph of tasks, with the options of `app.workflow`: rules of escalation, too."""
        return AgentWorkflow(self, self.app.workflow(name, **options))

    # looking -------------------------------------------------------------------------------------

    async def events(
        self, after: Cursor | None = None, *, workflow_id: str | None = None
    ) -> AsyncGenerator[AgentEvent, None]:
        """What happens to the agents' tasks, from the first event or a cursor on, as it comes."""
        query = EventQuery(after=after, workflow_id=workflow_id, kinds=("state", "done"))
        async with aclosing(tail(self.app.engine, query, wanted=self._is_ours)) as events:
            async for event in events:
                if event.kind != "reset":
                    yield _event(event)

    async def dead(self, agent_name: str | None = None, limit: int = 100) -> list[DeadTask]:
        """The newest dead tasks of one agent or of all."""
        query = TaskQuery.of(type=tuple(self._types(agent_name)), status="dead", limit=limit)
        return [self._dead(task) for task in (await self.app.engine.tasks(query)).items]

    async def revive(self, task_id: TaskId) -> None:
        """By hand: a dead task runs again, with all its attempts."""
        await self.app.handle(task_id).retry()

    def _check(self, type: str) -> None:
        """May whoever is at work here make or change a task of this type? One that is not known
        here is that of an agent elsewhere."""
        working, agent = _working.get(), type.partition(".")[0]
        if working in (None, agent) or (agent not in self.agents and self.app.find(type)):
            return
        raise ForeignAgent(
            f"{working} may not make or change a task of {agent}: agents have their own tasks only."
            f" Return what {agent} needs, and have the orchestrator hand it over."
        )

    def _types(self, agent_name: str | None = None) -> list[str]:
        names = self.agents if agent_name is None else (agent_name,)
        known = (*self.app.handlers, *self.app.externals)
        return [type for type in known if type.partition(".")[0] in names]

    def _is_ours(self, event: Event) -> bool:
        return (event.type or "").partition(".")[0] in self.agents

    def _dead(self, task: Stored) -> DeadTask:
        agent, _, type = task.type.partition(".")
        shown = self.app.redactor
        return DeadTask(
            id=task.id,
            agent_name=agent,
            task_type=type,
            workflow_id=task.workflow_id,
            payload=loads(shown.shown(task.payload, shown.hidden(task).payload)),
            attempts=task.attempt,
            max_attempts=task.max_attempts,
            error_info=loads(shown.shown(task.error)) if task.error else None,
            reason=task.reason,
        )


def _given(priority: Priority | None, max_attempts: int | None) -> Options:
    options: Options = {}
    if priority is not None:
        options["priority"] = priority
    if max_attempts is not None:
        options["max_attempts"] = max_attempts
    return options


def _event(event: Event) -> AgentEvent:
    told: dict[str, Any] = loads(event.data)
    agent, _, type = (event.type or "").partition(".")
    return AgentEvent(
        event_id=event.cursor,
        agent_name=agent,
        task_type=type,
        task_id=event.task_id or "",
        workflow_id=event.workflow_id,
        status=told["status"],
        attempt=event.attempt,
        error=told.get("error"),
        at=event.at,
    )
