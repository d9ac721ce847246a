"""What a handler gets: whom it works for, a way to tell how far it is, and `Again`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

from outlast.core.codec import dumps
from outlast.core.durations import Duration, to_ms
from outlast.core.errors import BadInput
from outlast.core.model import Json, Lease, NewTask, TaskId
from outlast.core.redact import mask_of
from outlast.core.states import Ms
from outlast.core.usage import Money, usage_of
from outlast.logs import MaskedLog
from outlast.steps import NOTHING, Steps, Suspended, Wait, at_once
from outlast.steps import Line as StepsLine

if TYPE_CHECKING:
    from outlast.handler import Call, Handler

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

logger: Final = logging.getLogger("outlast.task")


@dataclass(frozen=True, slots=True)
class Again:
    """Returned by a handler: not done, run me again, later. It costs no attempt.

    `Again(after="30s")` counts from now; `Again(at=…)` takes a datetime with a zone, or engine
    milliseconds. `Again()` is at once, behind what waits already.
    """

    after: Duration = 0
    at: datetime | Ms | None = None

    def __post_init__(self) -> None:
        to_ms(self.after)
        if self.at is not None and self.after:
            raise BadInput("Again takes after= or at=, not both.")
        if isinstance(self.at, datetime) and self.at.tzinfo is None:
            raise BadInput("Again(at=…) needs a datetime with a time zone: datetime.now(UTC).")

    def delay_ms(self, now: Ms) -> int:
        """How long from now, on the engine's clock."""
        if self.at is None:
            return to_ms(self.after)
        at = round(self.at.timestamp() * 1_000) if isinstance(self.at, datetime) else self.at
        return max(0, at - now)


class Done(Generic[T_co]):
    """An awaitable that is done already, so that threads may call without awaiting."""

    __slots__ = ("_value",)

    def __init__(self, value: T_co) -> None:
        self._value = value

    def __await__(self) -> Generator[None, None, T_co]:
        return self._value
        yield  # makes it a generator


DONE: Final = Done(None)


class Line(StepsLine, Protocol):
    """An attempt's line to whoever writes for it: the worker, or the pipe of a child process."""

    @property
    def cancelled(self) -> bool: ...

    @property
    def elapsed_ms(self) -> int: ...

    def tell(self, *, progress: Json | None = None, chunk: Json | None = None) -> Awaitable[None]:
        """Pass it on in order; `LeaseLost` when the attempt is no longer the current one."""

    def used(self, usage: Json) -> Awaitable[None]:
        """Record it, and wait until it is stored; `LeaseLost` likewise."""

    def paused(self, key: str, pause_ms: Ms) -> Awaitable[None]:
        """Close a limit for that long, and wait until it is; `LeaseLost` likewise."""


class _Context:
    """One attempt at one task, as its handler sees it.

    `progress` and `emit` hand their news to the worker's next turn. Async handlers await them
    (which waits only when the engine is far behind); handlers in threads and child processes just
    call. Both raise `LeaseLost` once the attempt has lost its lease: let it pass.
    """

    __slots__ = ("_lease", "_line", "_log", "_parts")

    def __init__(self, lease: Lease, line: Line) -> None:
        self._lease = lease
        self._line = line
        self._log: logging.LoggerAdapter[logging.Logger] | None = None
        self._parts: Steps | None = None

    @property
    def _steps(self) -> Steps:
        """Made when it is needed: most handlers have no steps."""
        if self._parts is None:
            self._parts = Steps(self._lease, self._line)
        return self._parts

    @property
    def task_id(self) -> TaskId:
        return self._lease.id

    @property
    def type(self) -> str:
        return self._lease.type

    @property
    def attempt(self) -> int:
        """Attempts that count, this one included, from 1."""
        return self._lease.attempt

    @property
    def number(self) -> int:
        """Attempts ever started, this one included: also those that were released or waited."""
        return self._lease.number

    @property
    def created_at(self) -> Ms:
        return self._lease.created_at

    @property
    def now(self) -> Ms:
        """Engine time, as well as the worker can tell."""
        return self._line.now

    @property
    def session_id(self) -> str | None:
        return self._lease.session_id

    @property
    def user_id(self) -> str | None:
        return self._lease.user_id

    @property
    def owner(self) -> dict[str, Any]:
        """What tasks that belong to this one share with it."""
        lease = self._lease
        return {
            "workflow_id": lease.workflow_id,
            "session_id": lease.session_id,
            "user_id": lease.user_id,
            "priority": lease.priority,
        }

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt at this task: hand it to services that deduplicate."""
        return f"outlast-{self._lease.id}"

    @property
    def cancelled(self) -> bool:
        """Was this attempt told to stop? From any thread; handlers in threads look at it."""
        return self._line.cancelled

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry task, type and attempt, and none of the task's secrets."""
        if self._log is None:
            lease = self._lease
            extra = {"task": lease.id, "type": lease.type, "attempt": lease.number}
            mask = mask_of(lease.payload, lease.meta)
            adapter = logging.LoggerAdapter(logger, extra)
            self._log = adapter if mask is None else MaskedLog(logger, extra, mask)
        return self._log

    def progress(self, percent: float, message: str = "", **data: object) -> Awaitable[None]:
        """How far it is, 0 to 100. Only the last one of a turn is stored."""
        line = self._line
        return line.tell(progress=progress_of(percent, message, line.elapsed_ms, line.now, data))

    def emit(self, chunk: object) -> Awaitable[None]:
        """A piece of output for whoever follows the task: text, or anything that has JSON."""
        return self._line.tell(chunk=chunk_of(chunk))

    def usage(
        self,
        tokens: int | None = None,
        cost: Money | None = None,
        *,
        model: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        **more: float,
    ) -> Awaitable[None]:
        """What this attempt has used since it last told: tokens, money, things of your own.

        It is recorded when this returns, and stays so if the attempt fails: it was used. Budgets
        are charged with it. Without `tokens` they are those that went in and came out.
        """
        told = usage_of(
            tokens=tokens,
            cost=cost,
            model=model,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            more=more,
        )
        return self._line.used(told)

    def pause(self, limit: str, span: Duration) -> Awaitable[None]:
        """Close a limit for everyone for this long: the service behind it has asked for rest. This
        attempt goes on; of several pauses the one that ends last holds."""
        return self._line.paused(limit, to_ms(span))

    def spawn(self, tasks: tuple[NewTask, ...]) -> Awaitable[None]:
        """Enqueue in the name of this attempt: refused once it is not the current one."""
        return self._line.record((), tasks)

    def suspend(self, wait: Wait) -> NoReturn:
        """End the attempt here; the task waits."""
        raise Suspended(wait)

    def suspend_once(self, name: str, wait: Wait, value: object = True) -> None:
        """The same, but go on when a later attempt comes to it."""
        self._steps.suspend_once(name, wait, value)

    def heard(self, signal: str) -> int:
        """How many signals of that name had come when this attempt began."""
        return sum(told.name == signal for told in self._lease.inbox)

    def remembered(self, name: str) -> Any:
        """The value of `suspend_once`, from the attempt that it suspended; None if none was."""
        return self._steps.remembered(name)

    def suspended_before(self, name: str) -> bool:
        """Has an earlier attempt done so?"""
        return self._steps.suspended_before(name)

    def retired(self, *names: str) -> None:
        """These steps are no longer in the code: what was stored of them is ignored."""
        self._steps.retired(names)


class Context(_Context):
    """One attempt at one task, as an async handler sees it.

    A *step* is run once and then remembered: later attempts get its result without running it. A
    *wait* (`sleep`, `wait_for`, `call`) ends the attempt and holds no worker; when it is over, the
    handler runs again and comes to the same line with the answer. So what stands between steps runs
    again each time: keep it quick and free of effects.
    """

    __slots__ = ()

    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., Awaitable[T]],
        *args: Any,
        undo: Handler[..., Any],
        **kwargs: Any,
    ) -> Awaitable[T]: ...

    @overload
    def step(
        self, name: str, fn: Callable[..., T], *args: Any, undo: Handler[..., Any], **kwargs: Any
    ) -> Awaitable[T]: ...

    @overload
    def step(
        self, name: str, fn: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]: ...

    @overload
    def step(
        self, name: str, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]: ...

    def step(self, name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """The result of `fn(…)`, run once. Its annotation says how the result is read back.

        `undo` is a task with the same arguments: it is run when this one dies or is cancelled,
        also when the step had only begun.
        """
        undo = _undo(args, kwargs)
        return self._steps.step(name, fn, args, kwargs, undo)

    def sleep(self, span: Duration) -> Awaitable[None]:
        """Go on after a while, wherever that is."""
        return self._steps.sleep(span)

    def wait_for(self, signal: str, timeout: Duration | None = None) -> Awaitable[Any]:
        """The data of the next signal of that name; `SignalTimeout` when none comes in time."""
        return self._steps.wait_for(signal, timeout)

    def ask(
        self,
        question: str,
        *,
        action: object = None,
        timeout: Duration | None = None,
        default: Any = NOTHING,
    ) -> Awaitable[Any]:
        """A person's answer to a question about a proposed action; `default` when none comes in
        time. `SignalTimeout` without one."""
        return self._steps.ask(question, action, timeout, default)

    def call(self, task: Handler[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """The result of another task, a child of this one; `TaskDead` or `TaskCancelled`."""
        return self._steps.call(lambda: task.call(*args, **kwargs), task.type, task.signature)

    def gather(self, *parts: Awaitable[Any]) -> Awaitable[list[Any]]:
        """Several steps, calls or waits at once; their results in order."""
        return self._steps.gather(parts)

    def changed(self, name: str) -> Awaitable[bool]:
        """Was this change of the code there when the task came here first? Then take the new way,
        else the old one, which its earlier attempts took."""
        return self._steps.changed(name)


class SyncContext(_Context):
    """The same for a handler that is a plain function: it calls, and has the answer."""

    __slots__ = ()

    @overload
    def step(
        self, name: str, fn: Callable[..., T], *args: Any, undo: Handler[..., Any], **kwargs: Any
    ) -> T: ...

    @overload
    def step(self, name: str, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    def step(self, name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """As for `Context`."""
        undo = _undo(args, kwargs)
        return at_once(self._steps.step(name, fn, args, kwargs, undo))

    def sleep(self, span: Duration) -> None:
        """Go on after a while, wherever that is."""
        at_once(self._steps.sleep(span))

    def wait_for(self, signal: str, timeout: Duration | None = None) -> Any:
        """The data of the next signal of that name; `SignalTimeout` when none comes in time."""
        return at_once(self._steps.wait_for(signal, timeout))

    def ask(
        self,
        question: str,
        *,
        action: object = None,
        timeout: Duration | None = None,
        default: Any = NOTHING,
    ) -> Any:
        """As for `Context`."""
        return at_once(self._steps.ask(question, action, timeout, default))

    def call(self, task: Handler[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of another task, a child of this one; `TaskDead` or `TaskCancelled`."""
        make = lambda: task.call(*args, **kwargs)  # noqa: E731
        result: T = at_once(self._steps.call(make, task.type, task.signature))
        return result

    def gather(self, *parts: Callable[[], Any]) -> list[Any]:
        """Several waits at once: `ctx.gather(lambda: ctx.call(a), lambda: ctx.call(b))`."""
        return self._steps.gather_at_once(parts)

    def changed(self, name: str) -> bool:
        """As for `Context`."""
        return at_once(self._steps.changed(name))


def _undo(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Call[Any]] | None:
    """Takes `undo=` out of the arguments of a step; one that is no task is the step's own."""
    from outlast.handler import Handler

    if not isinstance(kwargs.get("undo"), Handler):
        return None
    task: Handler[..., Any] = kwargs.pop("undo")
    return lambda: task.call(*args, **kwargs)


def progress_of(
    percent: float, message: str, elapsed_ms: int, now: Ms, data: Mapping[str, object]
) -> Json:
    """The `progress` of a task's record."""
    if not isinstance(percent, int | float) or not 0 <= percent <= 100:
        raise BadInput(f"progress({percent!r}): give a percentage from 0 to 100.")
    fields = {
        "percent": percent,
        "message": message,
        "elapsed_ms": elapsed_ms,
        "updated_at": now,
        "data": data,
    }
    return dumps(fields, "progress")


def chunk_of(chunk: object) -> Json:
    """The data of a `chunk` event."""
    return dumps({"chunk": chunk}, "chunk")
