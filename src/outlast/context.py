"""What a handler gets: whom it works for, a way to tell how far it is, and `Again`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Generator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from outlast.core.codec import dumps
from outlast.core.durations import Duration, to_ms
from outlast.core.errors import BadInput
from outlast.core.model import Json, Lease, TaskId
from outlast.core.states import Ms

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


class Done:
    """An awaitable that is done already, so that threads may call without awaiting."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        return
        yield  # makes it a generator


DONE: Final = Done()


class Line(Protocol):
    """An attempt's line to whoever writes for it: the worker, or the pipe of a child process."""

    @property
    def cancelled(self) -> bool: ...

    @property
    def elapsed_ms(self) -> int: ...

    @property
    def now(self) -> Ms:
        """Engine time, as well as the worker can tell."""

    def tell(self, *, progress: Json | None = None, chunk: Json | None = None) -> Awaitable[None]:
        """Pass it on in order; `LeaseLost` when the attempt is no longer the current one."""


class Context:
    """One attempt at one task, as its handler sees it.

    `progress` and `emit` hand their news to the worker's next turn. Async handlers await them
    (which waits only when the engine is far behind); handlers in threads and child processes just
    call. Both raise `LeaseLost` once the attempt has lost its lease: let it pass.
    """

    __slots__ = ("_lease", "_line", "_log")

    def __init__(self, lease: Lease, line: Line) -> None:
        self._lease = lease
        self._line = line
        self._log: logging.LoggerAdapter[logging.Logger] | None = None

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
    def session_id(self) -> str | None:
        return self._lease.session_id

    @property
    def user_id(self) -> str | None:
        return self._lease.user_id

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
        """A logger whose lines carry the task, its type and the attempt."""
        if self._log is None:
            lease = self._lease
            extra = {"task": lease.id, "type": lease.type, "attempt": lease.number}
            self._log = logging.LoggerAdapter(logger, extra)
        return self._log

    def progress(self, percent: float, message: str = "", **data: object) -> Awaitable[None]:
        """How far it is, 0 to 100. Only the last one of a turn is stored."""
        line = self._line
        return line.tell(progress=progress_of(percent, message, line.elapsed_ms, line.now, data))

    def emit(self, chunk: object) -> Awaitable[None]:
        """A piece of output for whoever follows the task: text, or anything that has JSON."""
        return self._line.tell(chunk=chunk_of(chunk))


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
