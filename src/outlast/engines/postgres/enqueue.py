"""enqueue: a batch as one call of a function, from our pool or on the caller's own connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from outlast.core.errors import BadInput
from outlast.core.graph import check_acyclic
from outlast.core.model import NewTask, Receipt
from outlast.engines.postgres.db import encode

ENQUEUE: Final = "select id::text, existing, digest from outlast.enqueue_batch($1, $2, $3, $4, $5)"


class New(Struct, omit_defaults=True):
    """A task as the function reads it: what is left out is the default there, too."""

    id: str
    type: str
    queue: str = "default"
    lane: str = "primary"
    priority: int = 2
    run_at: int | None = None
    delay_ms: int = 0
    max_attempts: int = 4
    max_losses: int = 3
    timeout_ms: int | None = None
    overdue_after_ms: int | None = None
    max_age_ms: int | None = None
    limits: tuple[tuple[str, int], ...] = ()
    unique_key: str | None = None
    unique_for_ms: int | None = None
    digest: str | None = None
    after: tuple[str, ...] = ()
    needs: str = "success"
    hold: str | None = None
    session_id: str | None = None
    user_id: str | None = None
    parent_id: str | None = None
    workflow_id: str | None = None
    tags: tuple[str, ...] = ()
    attrs: tuple[tuple[str, str], ...] = ()
    fair_key: str | None = None
    followed: bool = True


def new(t: NewTask) -> New:
    return New(
        t.id, t.type, t.queue, t.lane, t.priority, t.run_at, t.delay_ms, t.max_attempts,
        t.max_losses, t.timeout_ms, t.overdue_after_ms, t.max_age_ms, t.limits, t.unique_key,
        t.unique_for_ms, t.digest, t.after, t.needs, t.hold, t.session_id, t.user_id, t.parent_id,
        t.workflow_id, t.tags, t.attrs, t.fair_key, t.followed,
    )  # fmt: skip


def arguments(tasks: Sequence[NewTask], skew_ms: int) -> tuple[Any, ...]:
    """What the function takes."""
    if any(task.after for task in tasks):
        check_acyclic(tasks)
    plain = not any(t.after or t.unique_key is not None or t.fair_key is not None for t in tasks)
    return (
        skew_ms,
        text([new(task) for task in tasks]),
        [task.payload for task in tasks],
        [task.meta for task in tasks],
        plain,
    )


def text(value: object) -> str:
    """JSON for a jsonb parameter."""
    try:
        return encode(value).decode()
    except UnicodeEncodeError as error:
        raise BadInput(f"Text that is no Unicode cannot be stored: {error}") from error


def receipts(rows: Sequence[Any]) -> list[Receipt]:
    return [Receipt(row[0], row[1], row[2]) for row in rows]


def topics(tasks: Sequence[NewTask]) -> set[str]:
    """Who may want to know."""
    heard = {f"queue:{task.queue}" for task in tasks}
    followed = [f"task:{task.id}" for task in tasks if task.followed]
    if followed:
        heard.add("log")
        heard.update(followed)
    return heard
