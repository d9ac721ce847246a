"""Sub-agents: programs that are given a prompt, run as processes of their own, kept by tasks.

    agents = SubAgents(app, {"researcher": Agent(["letta", "run-agent", "--model", "{model}"])})
    tool = TaskTool(agents)
    result = await tool.run("Find three sources", "researcher", persist=True)

Each kind of agent is a task type, `agent.<kind>`. Its command's words may name `{prompt}`,
`{system_prompt}`, `{model}` and `{task_id}`; all of them come as JSON on standard input, too. What
the agent prints is streamed to whoever follows, and its last word is the result, read as JSON where
it is some. How it ended decides what follows (`classified`): a crash is tried again, code that
cannot be parsed is not, a rate limit backs off, and one that ran out of memory raises an alert.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, Unpack

import msgspec
from msgspec import Struct

from outlast.app import Outlast
from outlast.context import Context
from outlast.core.codec import dumps
from outlast.core.durations import Duration
from outlast.core.errors import BadInput, Permanent, TaskCancelled, TaskDead, TooLarge, suggest
from outlast.core.failures import Failure, from_wire
from outlast.core.model import TaskId
from outlast.core.retry import Retry
from outlast.handler import Gates, Handler
from outlast.options import Options, memory_mb
from outlast.worker.isolate import (
    ChildFailed,
    Said,
    ending,
    fill,
    last_words,
    ran_out_of_memory,
    run_words,
)

QUEUE: Final = "agents"
PRIORITY: Final = 100
"""What the design gives by default; lower runs sooner."""
MAX_RETRIES: Final = 3
RETRY: Final = Retry.exponential("2s", "5m", timeout_factor=2.0)
"""2^n seconds up to five minutes; after a timeout the next attempt has twice the time."""

_SYNTAX: Final = re.compile(r"^\s*(SyntaxError|IndentationError|TabError)\b", re.MULTILINE)
_RATE: Final = re.compile(r"\b429\b|rate.?limit|too many requests", re.IGNORECASE)
_NETWORK: Final = re.compile(r"ConnectionError|Connection (refused|reset)|ECONNRE", re.IGNORECASE)

Parse = Callable[[str], object]
Listener = Callable[[str], Awaitable[None]]


def parse_result(output: str) -> object:
    """What an agent said: its output if that is JSON, else its last line if that is, else the text.
    Agents tell how they get on before they tell the result."""
    for text in (output, output.strip().rpartition("\n")[2]):
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            continue
    return output.strip()


class Agent(Struct, frozen=True):
    """How agents of one kind are run. Without a command others run them: see `TaskQueue`."""

    command: Sequence[str] = ()
    model: str | None = None
    system_prompt: str | None = None
    stdin: Literal["payload", "prompt", "nothing"] = "payload"
    env: Mapping[str, str] = {}
    """Variables besides those of the worker, whose own (`OUTLAST_…`) it is not told."""
    folder: str | None = None
    """Where it works."""
    memory: str | int | None = None
    timeout: Duration | None = "10m"
    max_retries: int = MAX_RETRIES
    limits: Gates = ()
    """What its tasks hold while they run, as of any type; closed for all of them by a 429."""
    parse: Parse = parse_result


class Report(Struct, frozen=True):
    """The result of a task of an agent."""

    result: Any
    exit_code: int = 0
    stderr: str = ""


class SubAgents:
    """The kinds of agents that an app has."""

    def __init__(self, app: Outlast, agents: Mapping[str, Agent], *, queue: str = QUEUE) -> None:
        self.app = app
        self.queues = (queue, f"{queue}.fetched")
        """Where those are that have a command, and those that others fetch: workers of the first
        would take the others only to give them back."""
        self.agents = dict(agents)
        self.handlers: dict[str, Handler[..., Any]] = {
            kind: self._register(kind, agent) for kind, agent in agents.items()
        }

    def _register(self, kind: str, agent: Agent) -> Handler[..., Any]:
        if agent.memory is not None:
            memory_mb(agent.memory)  # refused now, not when the first agent runs
        told: dict[str, Any] = {
            "queue": self.queues[0 if agent.command else 1],
            "priority": PRIORITY,
            "retry": RETRY,
            "max_attempts": agent.max_retries + 1,
            "timeout": agent.timeout,
            "limits": agent.limits,
        }
        if not agent.command:
            return self.app.external(type_of(kind), schema=_SCHEMA, **told)

        async def run_agent(
            ctx: Context, prompt: str, system_prompt: str | None = None, model: str | None = None
        ) -> Report:
            return await self.run(
                kind, prompt, system_prompt, model, task_id=ctx.task_id, hear=ctx.emit
            )

        run_agent.__doc__ = f"A {kind} at work on a prompt."
        handler: Handler[..., Any] = self.app.task(name=type_of(kind), **told)(run_agent)
        return handler

    def handler(self, kind: str, **options: Unpack[Options]) -> Handler[..., Any]:
        """The handler of a kind of agents."""
        found = self.handlers.get(kind)
        if found is None:
            hint = suggest(kind, self.handlers) or f". There are: {', '.join(self.handlers)}."
            raise BadInput(f"There is no sub-agent {kind!r}{hint}", field="subagent_type")
        return found.options(**options)

    async def run(
        self,
        kind: str,
        prompt: str,
        system_prompt: str | None = None,
        model: str | None = None,
        *,
        task_id: TaskId = "",
        hear: Listener | None = None,
    ) -> Report:
        """Run one here and now, to its end; `ChildFailed` when that was not a good one."""
        agent = self.agents[self.handler(kind).type.removeprefix(_PREFIX)]
        if not agent.command:
            raise Permanent(f"Agents of the kind {kind!r} have no command: others run them.")
        payload = {
            "prompt": prompt,
            "system_prompt": system_prompt or agent.system_prompt or "",
            "model": model or agent.model or "",
            "task_id": task_id,
        }
        stdin = {"payload": dumps(payload), "prompt": prompt.encode(), "nothing": b""}
        said = await run_words(
            fill(tuple(agent.command), payload),
            type_of(kind),
            {**_environment(), **agent.env, "OUTLAST_TASK_ID": task_id},
            stdin=stdin[agent.stdin],
            folder=agent.folder,
            memory_mb=None if agent.memory is None else memory_mb(agent.memory),
            hear=None if hear is None else _as_text(hear),
        )
        if said.code != 0:
            raise ChildFailed(classified(kind, said))
        result = agent.parse(said.stdout.decode("utf-8", "replace"))
        return Report(result, said.code, said.stderr)


def classified(kind: str, said: Said) -> Failure:
    """What an end that was not a good one means."""
    words = said.stderr
    # Where it happened, which stands indented, says nothing of what: "line 429" is no rate limit.
    what = "\n".join(line for line in words.splitlines() if not line[:1].isspace())
    if ran_out_of_memory(what):
        code, permanent = "out_of_memory", True
    elif _SYNTAX.search(words):
        code, permanent = "syntax_error", True
    elif _RATE.search(what):
        code, permanent = "rate_limit", False
    elif _NETWORK.search(what):
        code, permanent = "network", False
    else:
        code, permanent = "crashed", False
    output = said.stdout[-_KEPT:].decode("utf-8", "replace")
    return from_wire(
        {
            "code": code,
            "type": "SubagentFailed",
            "message": f"The {kind} ended with {ending(said.code)}: {last_words(words)}",
            "permanent": permanent,
            "details": {"exit_code": said.code, "stderr": words, "stdout": output},
        }
    )


def _environment() -> dict[str, str]:
    """The worker's, but for what is Outlast's: its engine and its keys are no agent's business."""
    return {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}


def type_of(kind: str) -> str:
    """The task type of a kind of agents."""
    return f"{_PREFIX}{kind}"


_PREFIX: Final = "agent."
_KEPT: Final = 4_096
_TEXT_OR_NOTHING: Final = {"type": ["string", "null"]}
_SCHEMA: Final[dict[str, object]] = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string"},
        "system_prompt": _TEXT_OR_NOTHING,
        "model": _TEXT_OR_NOTHING,
    },
    "required": ["prompt"],
    "additionalProperties": False,
}


def _as_text(hear: Listener) -> Callable[[bytes], Awaitable[None]]:
    """Pieces of output as text; a letter may begin in one and end in the next."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    async def heard(piece: bytes) -> None:
        if text := decoder.decode(piece):
            await hear(text)

    return heard


# The tool ----------------------------------------------------------------------------------------


class TaskResult(Struct, frozen=True, kw_only=True):
    """What a call of the tool gives: a result, or the task that will have it."""

    status: str
    task_id: TaskId | None = None
    result: object = None
    error: str | None = None
    exit_code: int | None = None


class TaskTool:
    """The tool by which an agent has others work: at once, or kept by the queue."""

    def __init__(self, agents: SubAgents) -> None:
        self._agents = agents

    async def run(
        self,
        prompt: str,
        subagent_type: str,
        *,
        system_prompt: str | None = None,
        model: str | None = None,
        persist: bool = False,
        priority: int = PRIORITY,
        tags: Sequence[str] | None = None,
        user_id: str | None = None,
        parent_task: TaskId | None = None,
    ) -> TaskResult:
        """With `persist` the task is enqueued, and this returns its id at once; otherwise the agent
        runs here, nothing is kept, and this returns when it is over."""
        if not persist:
            return await self._at_once(prompt, subagent_type, system_prompt, model)
        options: Options = {"priority": priority, "tags": tuple(tags or ())}
        if user_id is not None:
            options["user_id"] = user_id
        if parent_task is not None:
            options["parent_id"] = parent_task
        handler = self._agents.handler(subagent_type, **options)
        handle = await handler.enqueue(**payload_of(prompt, system_prompt, model))
        return TaskResult(task_id=handle.id, status="pending")

    async def result(self, task_id: TaskId, timeout: Duration) -> TaskResult:  # noqa: ASYNC109  # a Duration
        """What became of a task that was enqueued; `WaitTimeout` while that is open."""
        try:
            told = await self._agents.app.handle(task_id).result(timeout)
        except TaskDead as dead:
            error = dead.error or {}
            details = error.get("details")
            code = details.get("exit_code") if isinstance(details, Mapping) else None
            return TaskResult(
                task_id=task_id,
                status="failed",
                error=str(error.get("message") or dead.reason),
                exit_code=code if isinstance(code, int) else None,
            )
        except TaskCancelled as cancelled:
            return TaskResult(task_id=task_id, status="cancelled", error=cancelled.reason)
        report = told if isinstance(told, Report) else Report(told)
        return TaskResult(
            task_id=task_id, status="completed", result=report.result, exit_code=report.exit_code
        )

    async def _at_once(
        self, prompt: str, kind: str, system_prompt: str | None, model: str | None
    ) -> TaskResult:
        agent = self._agents.handler(kind)
        try:
            async with asyncio.timeout(
                None if agent.timeout_ms is None else agent.timeout_ms / 1_000
            ):
                report = await self._agents.run(kind, prompt, system_prompt, model)
        except ChildFailed as problem:
            failure = problem.failure
            code = (failure.details or {}).get("exit_code")
            return TaskResult(
                status="failed",
                error=failure.message,
                exit_code=code if isinstance(code, int) else None,
            )
        except (Permanent, TooLarge) as problem:
            return TaskResult(status="failed", error=str(problem))
        except TimeoutError:
            return TaskResult(status="failed", error=f"The {kind} took too long, and was stopped.")
        return TaskResult(status="completed", result=report.result, exit_code=report.exit_code)


def payload_of(prompt: str, system_prompt: str | None, model: str | None) -> dict[str, str]:
    """What an agent's task carries; what is not said is left to the agent's kind."""
    told = {"prompt": prompt, "system_prompt": system_prompt, "model": model}
    return {name: value for name, value in told.items() if value is not None}
