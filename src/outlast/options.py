"""What may be said about a task besides its arguments, and its translation into a `NewTask`.

The same options serve `handler.options(…)`, the defaults of `@app.task(…)`, HTTP and the command
line, so there is one place that checks them, and one wording for what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Protocol, TypedDict

from outlast.core.durations import Duration, to_ms
from outlast.core.errors import BadInput, suggest
from outlast.core.ids import check_id
from outlast.core.model import MAX_PRIORITY, PRIORITIES
from outlast.core.states import FIRST, LAST, Ms

Priority = int | Literal["critical", "high", "normal", "low"]

MAX_NAME: Final = 200
MAX_TAGS: Final = 50
IDEMPOTENT_MS: Final = 24 * 3_600_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SIZE: Final = re.compile(r"\s*([0-9]+)\s*(MB|MiB|GB|GiB|M|G)\s*", re.IGNORECASE)


class HasId(Protocol):
    """A handle, or anything else that names a task."""

    @property
    def id(self) -> str: ...


class TaskOptions(TypedDict, total=False):
    """What a handler may set for all its tasks, and a call for one."""

    queue: str
    priority: Priority
    max_attempts: int
    max_losses: int
    timeout: Duration | None
    """Hard, per attempt."""
    overdue_after: Duration | None
    """Soft: the owner is told, the work goes on."""
    max_age: Duration | None
    """For a task that still waits, counted from its due time."""
    followed: bool
    """Log every change of state (the default); otherwise only failures and the end, which spares
    bulk work two of three events."""


class Options(TaskOptions, total=False):
    """What a call may set for its task."""

    id: str
    delay: Duration
    run_at: datetime | str
    unique_key: str
    """One living task per key: enqueuing again answers the task that is there."""
    unique_for: Duration
    """The key is taken for this long, whatever becomes of the task."""
    session_id: str
    user_id: str
    tags: Sequence[str]
    parent_id: str
    workflow_id: str
    after: Sequence[HasId | str]
    """Tasks that must end before this one may run."""
    needs: Literal["success", "any"]
    """How they must have ended; with "success" (the default) a dead one cancels this task."""
    hold: str
    """The name of a signal that must come before the first attempt."""
    within: object
    """A transaction of the engine to join."""


def fields_of(options: Mapping[str, object]) -> dict[str, object]:
    """The fields of a `NewTask` that these options set; `within` is not one of them."""
    fields: dict[str, object] = {}
    for name, value in options.items():
        translate = _TRANSLATE.get(name)
        if translate is None:
            raise BadInput(
                f"There is no option {name!r}{suggest(name, _TRANSLATE) or '.'} Options are:"
                f" {', '.join(_TRANSLATE)}.",
                field=name,
            )
        field, read = translate
        try:
            fields[field] = read(value, name)
        except BadInput as problem:
            if problem.field is None:
                problem.field = name
            raise
    return fields


def check_together(fields: Mapping[str, object]) -> None:
    """What options may not be when seen together; defaults and options have been merged."""
    if fields.get("run_at") is not None and fields.get("delay_ms"):
        raise BadInput("Give delay= or run_at=, not both.", field="run_at")
    if fields.get("unique_for_ms") is not None and fields.get("unique_key") is None:
        raise BadInput("unique_for= needs a unique_key=.", field="unique_for")


def name_of(value: object, option: str) -> str:
    """A short printable text: a queue, a session, a tag, a type."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME or not value.isprintable():
        raise BadInput(
            f"{option}={_show(value)}: printable text of 1 to {MAX_NAME} characters is needed.",
            field=option,
        )
    return value


def memory_mb(value: str | int) -> int:
    """ "512MB", "2GB", or a number of megabytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[1]) == 0:
        raise BadInput(f"memory={value!r}: write '512MB' or '2GB'.", field="memory")
    return int(match[1]) * (1024 if match[2][0] in "gG" else 1)


def priority_of(value: object, option: str = "priority") -> int:
    if isinstance(value, str) and value in PRIORITIES:
        return PRIORITIES[value]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_PRIORITY:
        return value
    raise BadInput(
        f"{option}={_show(value)}: give {', '.join(PRIORITIES)} or a number from 0 (first) to"
        f" {MAX_PRIORITY}.",
        field=option,
    )


def moment_of(value: object, option: str) -> Ms:
    """Engine milliseconds of a moment with a time zone."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise BadInput(
            f"{option}={_show(value)}: a moment with its time zone is needed, as in"
            " datetime(2027, 1, 1, tzinfo=UTC) or '2027-01-01T00:00:00Z'.",
            field=option,
        )
    at = (value - _EPOCH) // timedelta(milliseconds=1)
    if not FIRST <= at <= LAST:
        raise BadInput(
            f"{option}={_show(value)}: a moment from 1970 to 9999 in UTC is needed.", field=option
        )
    return at


def ids_of(value: object, option: str) -> tuple[str, ...]:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        value = [value]
    return tuple(_id(getattr(item, "id", item), option) for item in value)


def _tags(value: object, option: str) -> tuple[str, ...]:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise BadInput(f"tags={_show(value)}: give a list of texts, as in tags=['nightly'].")
    tags = tuple(dict.fromkeys(name_of(tag, "tags") for tag in value))
    if len(tags) > MAX_TAGS:
        raise BadInput(f"{len(tags)} tags are too many: the most is {MAX_TAGS}.", field=option)
    return tags


def _span(value: object, option: str) -> int | None:
    if value is None:
        return None
    ms = _delay(value, option)
    if ms == 0:
        raise BadInput(f"{option}={_show(value)}: a duration above 0 is needed, or None.")
    return ms


def _delay(value: object, option: str) -> int:
    return to_ms(value)  # type: ignore[arg-type]  # to_ms refuses what is no duration


def _count(least: int) -> Callable[[object, str], int]:
    def read(value: object, option: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 1_000_000:
            raise BadInput(f"{option}={_show(value)}: give a number from {least} to 1000000.")
        return value

    return read


def _truth(value: object, option: str) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"{option}={_show(value)}: give True or False.")
    return value


def _needs(value: object, option: str) -> str:
    if value not in ("success", "any"):
        raise BadInput(f"needs={_show(value)}: give 'success' or 'any'.")
    return str(value)


def _id(value: object, option: str) -> str:
    return check_id(value)  # type: ignore[arg-type]  # check_id refuses what is no text


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


_TRANSLATE: Final[dict[str, tuple[str, Callable[[object, str], object]]]] = {
    "queue": ("queue", name_of),
    "priority": ("priority", priority_of),
    "max_attempts": ("max_attempts", _count(1)),
    "max_losses": ("max_losses", _count(0)),
    "timeout": ("timeout_ms", _span),
    "overdue_after": ("overdue_after_ms", _span),
    "max_age": ("max_age_ms", _span),
    "followed": ("followed", _truth),
    "id": ("id", _id),
    "delay": ("delay_ms", _delay),
    "run_at": ("run_at", moment_of),
    "unique_key": ("unique_key", name_of),
    "unique_for": ("unique_for_ms", _span),
    "session_id": ("session_id", name_of),
    "user_id": ("user_id", name_of),
    "tags": ("tags", _tags),
    "parent_id": ("parent_id", _id),
    "workflow_id": ("workflow_id", name_of),
    "after": ("after", ids_of),
    "needs": ("needs", _needs),
    "hold": ("hold", name_of),
}
"""Option -> the field of `NewTask` it sets, and how its value is read."""
