"""enqueue: a batch as one call of a function, from our pool or on the caller's own connection."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct

from outlast.core.errors import BadInput
from outlast.core.graph import check_acyclic
from outlast.core.model import NewTask, Receipt
from outlast.engines._shared import ANY_TASK
from outlast.engines.postgres.db import encode

ENQUEUE: Final = "select id::text, existing, digest from outlast.enqueue_batch($1, $2, $3, $4, $5)"
PLAIN: Final = "select outlast.enqueue_plain($1, $2, $3, $4, $5, $6)"
FEW_KINDS: Final = 32
"""The server looks through all of them for each task, 0.1 µs each; a task of its own kind takes it
6 µs more than one of a known one."""
MAX_TOPICS: Final = 150
"""Tasks that a hint names, 41 bytes each of 8,000."""


class New(Struct, omit_defaults=True):
    """A task as the function reads it: what is left out is the default there, too."""

    id: str = ""
    type: str = ""
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


_fields: Final = attrgetter(*New.__struct_fields__)
_kind: Final = attrgetter(*New.__struct_fields__[1:])


def new(task: NewTask) -> New:
    return New(*_fields(task))


def arguments(tasks: Sequence[NewTask], skew_ms: int) -> tuple[Any, ...]:
    """What the function for any batch takes."""
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


def plain_arguments(tasks: Sequence[NewTask], skew_ms: int) -> tuple[Any, ...] | None:
    """What the function for plain batches takes; None: this is none."""
    numbers = {kind: n for n, kind in enumerate(dict.fromkeys(map(_kind, tasks)), 1)}
    if len(numbers) > FEW_KINDS:
        return None
    kinds = [New("", *kind) for kind in numbers]
    if any(k.after or k.tags or k.attrs for k in kinds):
        return None
    if any(k.unique_key is not None or k.fair_key is not None for k in kinds):
        return None
    # asyncpg takes 0.3 µs for each element of an array, and the ids are an array as text already.
    return (
        skew_ms,
        text(kinds),
        None if len(kinds) == 1 else [numbers[_kind(task)] for task in tasks],
        "{" + ",".join([task.id for task in tasks]) + "}",
        [task.payload for task in tasks],
        [task.meta for task in tasks] if any(task.meta != b"{}" for task in tasks) else None,
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
    followed = [task.id for task in tasks if task.followed]
    if followed:
        heard.add("log")
        heard.update(map("task:{}".format, followed) if len(followed) <= MAX_TOPICS else [ANY_TASK])
    return heard
