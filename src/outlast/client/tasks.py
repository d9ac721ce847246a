"""The calls about tasks: each function builds one request. The clients send them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, Required, TypedDict, Unpack

import msgspec

from outlast.client.wire import Call, id_of, nothing, path, shaped
from outlast.core.codec import dumps
from outlast.core.errors import BadInput
from outlast.core.ids import new_id
from outlast.http.schemas import (
    BulkEnqueued,
    Enqueued,
    EnqueuedBatch,
    Matched,
    Requeued,
    Steps,
    Task,
    TaskPage,
    Why,
)
from outlast.options import HasId, Options

Action = Literal["retry", "cancel", "delete"]
Values = str | Sequence[str]

_encode = msgspec.json.Encoder().encode


class NewTask(Options, total=False):
    """A task of a batch: `{"type": "summarize", "payload": {"content": "…"}, "delay": "5m"}`."""

    type: Required[str]
    payload: Mapping[str, object]


class Filters(TypedDict, total=False):
    """Which tasks; several values of one field are alternatives."""

    status: Values | None
    type: Values | None
    queue: Values | None
    session_id: Values | None
    user_id: Values | None
    tag: Values | None
    workflow_id: Values | None
    q: str | None
    """The filter language: `age>1h payload.user:ada -queue:bulk "some text"`."""


class PageFilters(Filters, total=False):
    """Which tasks, and which page of them."""

    limit: int
    cursor: str | None


def enqueue(
    type: str, payload: Mapping[str, object] | None = None, **options: Unpack[Options]
) -> Call[Enqueued]:
    """Hand over a task. Safe to be repeated, and repeated by itself when the connection breaks:
    an `Idempotency-Key` goes with it, unless you give an `id` or a `unique_key`."""
    told = plain(options)
    key = not told.keys() & {"id", "unique_key"}
    return Call(
        method="POST", path="/tasks", read=shaped(Enqueued),
        body=_encode({"type": type, "payload": _payload(payload or {}), **told}),
        headers=idempotent() if key else {},
        # A unique key is taken by living tasks only: a repetition may come when it is free again.
        again=key or bool(told.keys() & {"id", "unique_for"}),
    )  # fmt: skip


def enqueue_many(tasks: Sequence[NewTask]) -> Call[list[Enqueued]]:
    """Hand over up to 1,000 tasks, all of them or none; answered in order."""
    entries = [{**plain(task), "payload": _payload(task.get("payload") or {})} for task in tasks]
    return Call(
        method="POST", path="/tasks/batch", read=lambda data: shaped(EnqueuedBatch)(data).items,
        body=_encode({"tasks": entries}),
        headers=idempotent(),
        again=all("unique_key" not in entry or "unique_for" in entry for entry in entries),
    )  # fmt: skip


def get(task: HasId | str, *, wait_s: int = 0) -> Call[Task]:
    """The record of a task; with `wait_s` once it is over, after so many seconds at the latest."""
    return Call(
        method="GET", path=path("/tasks/{id}", id=id_of(task)), read=shaped(Task), again=True,
        headers={"prefer": f"wait={wait_s}"} if wait_s else {}, wait_s=wait_s,
    )  # fmt: skip


def page(**filters: Unpack[PageFilters]) -> Call[TaskPage]:
    """One page of tasks, newest first; `next` is the `cursor` of the page behind it."""
    return listing("/tasks", filters)


def listing(where: str, filters: PageFilters) -> Call[TaskPage]:
    params = given(filters)
    return Call(method="GET", path=where, params=params, read=shaped(TaskPage), again=True)


def given(filters: Mapping[str, object]) -> dict[str, str]:
    """Filters as parameters of a path."""
    return {
        name: value if isinstance(value, str) else ",".join(map(str, value))
        if isinstance(value, Sequence) else str(value)
        for name, value in filters.items()
        if value is not None and value != ""
    }  # fmt: skip


def why(task: HasId | str) -> Call[Why]:
    """The one thing that a task waits for; where the time went, for one that is over."""
    where = path("/tasks/{id}/why", id=id_of(task))
    return Call(method="GET", path=where, read=shaped(Why), again=True)


def content(content_id: str) -> Call[bytes]:
    """What a task has kept under this id, whole."""
    return Call(method="GET", path=path("/content/{id}", id=content_id), read=bytes, again=True)


def retry(task: HasId | str, payload: Mapping[str, object] | None = None) -> Call[Task]:
    """Run a task again that is dead, cancelled or retrying, with another payload if you like."""
    return Call(
        method="POST", path=path("/tasks/{id}/retry", id=id_of(task)), read=shaped(Task),
        body=None if payload is None else _encode({"payload": _payload(payload)}),
    )  # fmt: skip


def steps(task: HasId | str) -> Call[Steps]:
    """What a task remembers, and the signals it was sent."""
    where = path("/tasks/{id}/steps", id=id_of(task))
    return Call(method="GET", path=where, read=shaped(Steps), again=True)


def rerun(
    task: HasId | str,
    *,
    from_step: str | None = None,
    payload: Mapping[str, object] | None = None,
    steps: Mapping[str, object] | None = None,
) -> Call[Task]:
    """Run a task that is over again, as a new one, from a step or from its first line."""
    told = {
        "from_step": from_step,
        "payload": None if payload is None else _payload(payload),
        "steps": None if steps is None else _payload(steps),
    }
    return Call(
        method="POST", path=path("/tasks/{id}/rerun", id=id_of(task)), read=shaped(Task),
        body=_encode({name: value for name, value in told.items() if value is not None}),
    )  # fmt: skip


def cancel(task: HasId | str, reason: str = "cancelled") -> Call[Task]:
    """Stop a task: at once if it waits, within about a second if it runs."""
    return Call(
        method="POST", path=path("/tasks/{id}/cancel", id=id_of(task)), read=shaped(Task),
        body=dumps({"reason": reason}, "reason"),
    )  # fmt: skip


def signal(task: HasId | str, name: str, data: object = None) -> Call[Task]:
    """Send a signal to a task that waits for it, now or later."""
    return Call(
        method="POST", path=path("/tasks/{id}/signal/{name}", id=id_of(task), name=name),
        read=shaped(Task), body=dumps(data, "data", reveal=True),
    )  # fmt: skip


def delete(task: HasId | str) -> Call[None]:
    """Forget a task that does not run, with everything that belongs to it."""
    return Call(method="DELETE", path=path("/tasks/{id}", id=id_of(task)), read=nothing)


def matching(action: Action, filter: str) -> Call[int]:
    """How many tasks a bulk would change."""
    return Call(
        method="POST", path="/tasks/bulk", read=lambda data: shaped(Matched)(data).matched,
        body=dumps({"action": action, "filter": filter, "dry_run": True}, "bulk"), again=True,
    )  # fmt: skip


def bulk(action: Action, filter: str, *, rate: str | None = None) -> Call[BulkEnqueued]:
    """Retry, cancel or delete all tasks that fit a filter. A task does it: wait for that one."""
    return Call(
        method="POST", path="/tasks/bulk", read=shaped(BulkEnqueued),
        body=dumps({"action": action, "filter": filter, "rate": rate}, "bulk"),
    )  # fmt: skip


def requeue_orphaned() -> Call[Requeued]:
    """Recover the tasks of lost workers now, instead of at the next sweep."""
    return Call(method="POST", path="/tasks/requeue-orphaned", read=shaped(Requeued), again=True)


def stream(task: HasId | str) -> Call[None]:
    return Call(method="GET", path=path("/tasks/{id}/stream", id=id_of(task)), read=nothing)


def events(kinds: Sequence[str], session_id: str | None, workflow_id: str | None) -> Call[None]:
    told = {"kinds": ",".join(kinds), "session_id": session_id, "workflow_id": workflow_id}
    params = {name: value for name, value in told.items() if value}
    return Call(method="GET", path="/events", params=params, read=nothing)


def idempotent() -> dict[str, str]:
    return {"idempotency-key": f'"{new_id()}"'}


def _payload(payload: Mapping[str, object]) -> msgspec.Raw:
    """Checked by itself: its bound is not the body's."""
    return msgspec.Raw(dumps(payload, "payload", reveal=True))


def plain(options: Mapping[str, object]) -> dict[str, object]:
    """Options as JSON has them."""
    if "within" in options:
        raise BadInput("within: a transaction cannot be joined over HTTP.", field="within")
    return {name: _value(value) for name, value in options.items() if value is not None}


def _value(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple):  # `after` takes what enqueue answered
        return [getattr(item, "id", item) for item in value]
    return value
