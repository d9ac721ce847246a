"""Every exception of Outlast, under one base class, and the two that handlers raise."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from outlast.core.durations import Duration


def suggest(name: str, known: Iterable[str]) -> str:
    """`"; did you mean 'summarize'?"`, or nothing when no known name comes close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


class OutlastError(Exception):
    """Base of everything that Outlast raises; `code` is stable, the message is for people."""

    code: ClassVar[str] = "error"


class BadInput(OutlastError):
    """What the caller handed over is wrong; `field` says which part, where there is one."""

    code = "bad_input"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class UnknownType(OutlastError):
    """No handler, no declaration and no live worker knows this task type."""

    code = "unknown_type"

    def __init__(self, type: str, known: Iterable[str] = ()) -> None:
        hint = suggest(type, known)
        super().__init__(
            f"Type {type!r} is not registered{hint or '.'} Register it with @app.task, declare it"
            f" with app.external({type!r}), or start a worker that knows it."
        )
        self.type = type


class TooLarge(OutlastError):
    """A payload, result or step is above its size limit."""

    code = "too_large"


class NotFound(OutlastError):
    """There is no such thing, or the caller may not see it: the two look the same."""

    code = "not_found"


class Conflict(OutlastError):
    """The change does not apply to the state the task is in."""

    code = "conflict"


class Mismatch(OutlastError):
    """An Idempotency-Key came back with another body."""

    code = "mismatch"


class BudgetSpent(OutlastError):
    """A budget that refuses is used up. `resets_at` is when it begins anew; None is never."""

    code = "budget_spent"

    def __init__(
        self, message: str, *, key: str, resets_at: int | None, after_ms: int | None
    ) -> None:
        super().__init__(message)
        self.key = key
        self.resets_at = resets_at
        self.after_ms = after_ms


class EngineDown(OutlastError):
    """The engine cannot be reached, or answers nonsense."""

    code = "engine_down"


class EngineFull(OutlastError):
    """The engine has no disk or memory left; nothing was stored."""

    code = "engine_full"


class UnknownEngine(OutlastError):
    """The engine URL names nothing that Outlast can open."""

    code = "unknown_engine"


class Unsupported(OutlastError):
    """This engine cannot do that (only joining the caller's transaction is optional)."""

    code = "unsupported"


class KeyMissing(OutlastError):
    """What was read is encrypted, and this process does not have the key."""

    code = "key_missing"


class LeaseLost(OutlastError):
    """A write carried a stale fence: the attempt is no longer the current one and must stop."""

    code = "lease_lost"


class TaskDead(OutlastError):
    """The awaited task has died; `error` is its last failure as the record shows it."""

    code = "task_dead"

    def __init__(
        self, task_id: str, reason: str | None = None, error: Mapping[str, object] | None = None
    ) -> None:
        why = f": {error['type']}: {error['message']}" if error else ""
        super().__init__(f"Task {task_id} died ({reason or 'no reason recorded'}){why}")
        self.task_id = task_id
        self.reason = reason
        self.error = error


class TaskCancelled(OutlastError):
    """The awaited task was cancelled."""

    code = "task_cancelled"

    def __init__(self, task_id: str, reason: str | None = None) -> None:
        super().__init__(f"Task {task_id} was cancelled" + (f": {reason}" if reason else ""))
        self.task_id = task_id
        self.reason = reason


class WaitTimeout(OutlastError, TimeoutError):
    """The wait is over, the task is not: it goes on, and can be waited for again."""

    code = "wait_timeout"


class Permanent(OutlastError):
    """Raised by a handler: trying again would not help, the task dies now."""

    code = "permanent"

    def __init__(self, message: str, *, details: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.details = details


class Transient(OutlastError):
    """Raised by a handler: try again, by the policy's schedule but not before `after`."""

    code = "transient"

    def __init__(
        self,
        message: str,
        *,
        after: Duration | None = None,
        status: int | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        # Imported late: durations raises BadInput, which lives in this file.
        from outlast.core.durations import to_ms

        super().__init__(message)
        self.after_ms = None if after is None else to_ms(after)
        self.status = status
        self.details = details
