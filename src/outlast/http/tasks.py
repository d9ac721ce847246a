"""Tasks over HTTP: enqueue, look at, wait for, retry, cancel, signal, forget."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
from fastapi import APIRouter, Request
from msgspec.structs import replace
from starlette.responses import Response

from outlast import ops, travel
from outlast.app import Outlast
from outlast.builtin import BULK
from outlast.core.codec import dumps, loads
from outlast.core.errors import BadInput, Conflict, NotFound, WaitTimeout
from outlast.core.model import Signal, Task, TaskId, TaskQuery
from outlast.core.states import FINAL
from outlast.engine import Engine
from outlast.handle import Handle, alter
from outlast.handler import Call
from outlast.http import schemas
from outlast.http.body import (
    MAX_BATCH,
    MAX_BATCH_BODY,
    Fields,
    nothing_else,
    objects,
    read_as,
    read_object,
    read_value,
    text,
    wait_ms,
)
from outlast.http.doc import doc
from outlast.http.door import BY, Guarded, has_to_go, principal_of, visible, within_scope
from outlast.http.problems import Refused
from outlast.http.quotas import LIVING, within_quota
from outlast.http.reads import reads_of
from outlast.http.state import answer, live_of, outlast_of, redactor_of, shown
from outlast.http.wishes import first_of, for_session, key_of, options_of, refuse_own
from outlast.options import name_of
from outlast.query import parse_query
from outlast.steps import UNDO
from outlast.stream import fetch, wait_final
from outlast.usage import used_by, with_usage
from outlast.views import View, task_view, to_json
from outlast.why import why, why_view
from outlast.workflow import MAP
from outlast.workflow import TYPE as WORKFLOW

router = APIRouter(prefix="/api/v1/tasks", tags=["tasks"], route_class=Guarded)

TASKS: Final = "/api/v1/tasks"
# Tasks are read in steps, so that a page of 500 with 1 MiB each does not fill the memory.
STEP: Final = 50
MAX_STEPS: Final = 20
PAGE_BYTES: Final = 8 * 1_048_576

_TAKEN: Final = "A task that you may not see has this id or unique_key: choose another."

FILTERS: Final[dict[str, str]] = {
    "status": "such as dead; several are separated by commas",
    "type": "task type",
    "queue": "queue",
    "session_id": "session",
    "user_id": "user",
    "tag": "tag",
    "workflow_id": "workflow",
    "q": 'a filter, as in `status:dead age>1h payload.user:ada -queue:bulk "some text"`',
    "limit": "1 to 500, else 50",
    "cursor": "`next` of the page before",
}
IDEMPOTENCY: Final = {
    "Idempotency-Key": "the same request with the same key within 24 h is the same task"
}


@router.post(
    "",
    **doc("Enqueue a task", schemas.Enqueued, right="enqueue", status=202, body=schemas.NewTask,
          errors=(409,), headers=IDEMPOTENCY),
)  # fmt: skip
async def enqueue(request: Request) -> Response:
    """Answers when the task is stored, as durably as `durability` says; it runs when a worker
    is free. With an `Idempotency-Key` the request may be repeated safely."""
    fields = await read_object(request)
    type = text(fields, "type", '{"type": "summarize", "payload": {"content": "…"}}')
    return await _enqueue_one(request, type, _payload(fields), fields)


@router.post(
    "/summarize",
    **doc("Enqueue a summary", schemas.Enqueued, right="enqueue", status=202,
          body=schemas.NewSummary, errors=(409,), headers=IDEMPOTENCY),
)  # fmt: skip
async def summarize(request: Request) -> Response:
    """The type `summarize` with `content` as its payload."""
    fields = await read_object(request)
    payload = dumps({"content": text(fields, "content", '{"content": "The text to shorten."}')})
    return await _enqueue_one(request, "summarize", payload, fields)


@router.post(
    "/batch",
    **doc(
        "Enqueue many tasks in one step",
        schemas.EnqueuedBatch,
        right="enqueue",
        status=202,
        body=schemas.Batch,
        errors=(409,),
        headers=IDEMPOTENCY,
    ),
)
async def enqueue_batch(request: Request) -> Response:
    """All of them or none. With an `Idempotency-Key` the batch may be repeated safely: it stands
    for each task that has no `unique_key`, by its place; another batch under it is refused."""
    fields = await read_object(request, MAX_BATCH_BODY)
    if "tasks" not in fields:
        raise BadInput('tasks: missing, as in {"tasks": [{"type": "…"}]}.', field="tasks")
    entries = objects(fields.pop("tasks"), "tasks")
    nothing_else(fields, "tasks")
    if not 1 <= len(entries) <= MAX_BATCH:
        raise BadInput(f"tasks: 1 to {MAX_BATCH} tasks, not {len(entries)}.", field="tasks")
    app, said = outlast_of(request), [*map(dict, entries)]
    calls = [await _prepare(request, i, entry) for i, entry in enumerate(entries)]
    await _check_after(request, calls)
    await _check_names(request, calls)
    if (key := key_of(request)) is not None:
        asked = [{name: loads(bytes(raw)) for name, raw in one.items()} for one in said]
        await first_of(app.engine, f"batch:{key}", asked)
    handles = await app.enqueue(await within_quota(request, calls))
    found = await _fetch_all(app, [handle.id for handle in handles])
    there = (handle for handle in handles if handle.id in found)
    items = [_enqueued(request, handle, found[handle.id]) for handle in there]
    return answer({"items": items}, 202)


@router.post(
    "/bulk",
    **doc(
        "Retry, cancel or delete all tasks that fit a filter, as a task with progress",
        schemas.BulkEnqueued,
        right="operate",
        scoped=True,
        status=202,
        also={200: schemas.Matched},
        body=schemas.Bulk,
    ),
)
async def bulk(request: Request) -> Response:
    """`filter` is a line of the filter language. With `dry_run` it only counts. Otherwise a task
    is enqueued that does it: follow that one for its progress."""
    told, app = await read_as(request, _Bulk), outlast_of(request)
    if not told.filter.strip():
        raise BadInput("filter: say which tasks; all of them are age>0s.", field="filter")
    query = await within_scope(request, await parse_query(app.engine, {"q": told.filter}))
    ops.check_pace(told.action, told.rate)
    matched = await ops.matching(app, told.action, query)
    if told.dry_run:
        return answer({"matched": matched, "dry_run": True})
    payload: View = {"action": told.action, "terms": query.terms, "rate": told.rate}
    call = await app.prepare(BULK, to_json(payload))
    if key := principal_of(request).id:
        call = replace(call, task=replace(call.task, attrs=((BY, key),)))
    [handle] = await app.enqueue([call])
    view = _enqueued(request, handle, await handle.refresh())
    return answer({**view, "matched": matched}, 202)


class _Bulk(msgspec.Struct, forbid_unknown_fields=True):
    action: str
    filter: str
    dry_run: bool = False
    rate: str | None = None


@router.post(
    "/requeue-orphaned",
    **doc("Recover the tasks of lost workers now", schemas.Requeued, right="operate"),
)
async def requeue_orphaned(request: Request) -> Response:
    """Workers do this by themselves every second; this does not wait for them."""
    return answer(await ops.requeue_orphaned(outlast_of(request)))


@router.get(
    "",
    **doc("List tasks, newest first", schemas.TaskPage, right="look", query=FILTERS),
)
async def list_tasks(request: Request) -> Response:
    """All filters must hold; several values of one stand apart by commas. A page may be short
    and still have a `next`."""
    return answer(await page_of(request, await query_of(request)))


@router.get(
    "/{task_id}",
    **doc("Look at a task", schemas.Task, right="look",
          headers={"Prefer": "wait=20 answers when the task ends, after 20 s at the latest"}),
)  # fmt: skip
async def get_task(request: Request, task_id: str) -> Response:
    """With `Prefer: wait=20` the answer comes when the task ends, or when the time is over:
    look at `state`."""
    engine, id = outlast_of(request).engine, await visible(request, task_id)
    task: Task | None = await reads_of(request).fetch(id)
    patience_ms = wait_ms(request)
    headers = {"preference-applied": f"wait={patience_ms // 1000}"} if patience_ms else None
    if patience_ms and task is not None and task.state not in FINAL:
        waiting, who = _ended(engine, id, patience_ms), principal_of(request)
        task = await live_of(request).wait(
            waiting, request.receive, who, partial(has_to_go, request)
        )
    view = shown(request, task or await fetch(engine, id))
    return answer(with_usage(view, await used_by(engine, id)), headers=headers)


@router.get(
    "/{task_id}/why",
    **doc("Why does it not run? Where did its time go?", schemas.Why, right="look"),
)
async def get_why(request: Request, task_id: str) -> Response:
    """The one thing that a task waits for, an estimate, and the action that would change it;
    for a task that is over, where its time went."""
    app, id, principal = outlast_of(request), await visible(request, task_id), principal_of(request)
    return answer(why_view(await why(app, id, principal.sees if principal.is_scoped else None)))


@router.post(
    "/{task_id}/retry",
    **doc(
        "Run a task again that is dead, cancelled or retrying",
        schemas.Task,
        right="operate",
        errors=(409,),
        scoped=True,
        body=schemas.Edit,
    ),
)
async def retry(request: Request, task_id: str) -> Response:
    """Its history stays, its budgets are fresh. A task that waits for a retry runs now."""
    fields = await read_object(request)
    payload = _object(fields, "payload")
    nothing_else(fields, "payload")
    return answer(
        shown(
            request,
            await ops.retry(outlast_of(request), await visible(request, task_id), payload),
        )
    )


@router.get(
    "/{task_id}/steps",
    **doc("What a task remembers, and the signals it was sent", schemas.Steps, right="look"),
)
async def get_steps(request: Request, task_id: str) -> Response:
    """Its steps, waits, calls and sleeps in the order in which they were stored, each by the name
    from which the task can be run again."""
    id = await visible(request, task_id)
    return answer(await travel.steps(outlast_of(request), id, redactor_of(request)))


@router.post(
    "/{task_id}/rerun",
    **doc(
        "Run a task that is over again, as a new one",
        schemas.Task,
        right="operate",
        errors=(409,),
        scoped=True,
        status=202,
        body=schemas.Rerun,
    ),
)
async def rerun(request: Request, task_id: str) -> Response:
    """From `from_step`, with what the task remembered before that; `steps` gives others of those
    results, `payload` other arguments. What is `***` in them stays what it was."""
    fields = await read_object(request)
    from_step = text(fields, "from_step", '"ask"') if "from_step" in fields else None
    payload, steps = (_object(fields, name) for name in ("payload", "steps"))
    nothing_else(fields, "from_step, payload, steps")
    app, id = outlast_of(request), await visible(request, task_id)
    made = await ops.rerun(app, id, from_step=from_step, payload=payload, steps=steps)
    return answer(shown(request, made), 202)


def _object(fields: Fields, name: str) -> dict[str, object] | None:
    """A field that is an object, if it is given."""
    value = loads(bytes(fields.pop(name)), name) if name in fields else None
    if value is not None and not isinstance(value, dict):
        raise BadInput(f"{name}: an object is needed.", field=name)
    return value


@router.post(
    "/{task_id}/cancel",
    **doc("Cancel a task", schemas.Task, right="act", errors=(409,), body=schemas.Reason),
)
async def cancel(request: Request, task_id: str) -> Response:
    """At once if it waits; a running attempt is told within about a second."""
    fields = await read_object(request)
    reason = text(fields, "reason", '"a reason"') if "reason" in fields else "cancelled"
    nothing_else(fields, "reason")
    return answer(
        shown(
            request,
            await ops.cancel(outlast_of(request), await _acted_on(request, task_id), reason),
        )
    )


@router.post(
    "/{task_id}/signal/{name:path}",
    **doc(
        "Send a signal to a task; the body is its data",
        schemas.Task,
        right="act",
        errors=(409,),
        any_body=True,
    ),
)
async def signal(request: Request, task_id: str, name: str) -> Response:
    """It is kept until the task waits for it: a signal may come first."""
    engine, id = outlast_of(request).engine, await _acted_on(request, task_id)
    await alter(engine, id, Signal(name_of(name, "name"), await read_value(request)))
    return answer(shown(request, await fetch(engine, id)))


@router.delete(
    "/{task_id}",
    **doc(
        "Forget a task that does not run", right="operate", errors=(409,), scoped=True, status=204
    ),
)
async def forget(request: Request, task_id: str) -> Response:
    """With its history, steps and events. One that runs has to be cancelled first."""
    await ops.forget(outlast_of(request), await visible(request, task_id))
    return Response(status_code=204)


async def _acted_on(request: Request, text: str) -> TaskId:
    """The id in a path, of a task that the caller may act on. What undoes the work of end users, or
    looks after it, is theirs, but not for them to run or to stop."""
    id, principal = await visible(request, text), principal_of(request)
    if principal.role == "session":
        task = await reads_of(request).fetch(id)
        own = task.type in outlast_of(request).builtins and task.type not in (WORKFLOW, MAP)
        if own or UNDO in task.tags:
            raise Refused(403, f"Task {id} is not acted on with a session token.")
    return id


# Enqueuing ---------------------------------------------------------------------------------------


async def _enqueue_one(request: Request, type: str, payload: bytes, fields: Fields) -> Response:
    app = outlast_of(request)
    call = await _call(request, type, payload, fields, key_of(request))
    await _check_after(request, [call])
    [handle] = await app.enqueue(await within_quota(request, [call]))
    view = _enqueued(request, handle, await reads_of(request).fetch(handle.id))
    location = f"{request.scope.get('root_path', '')}{TASKS}/{handle.id}"
    return answer(view, 202, {"location": location})


async def _prepare(request: Request, place: int, fields: Fields) -> Call[object]:
    key = None if "unique_key" in fields else key_of(request, place)
    try:
        type = text(fields, "type", '{"type": "summarize"}')
        return await _call(request, type, _payload(fields), fields, key)
    except BadInput as error:
        where = f"tasks[{place}]"
        field = f"{where}.{error.field}" if error.field else where
        raise BadInput(f"{where}: {error}", field=field) from error


async def _call(
    request: Request, type: str, payload: bytes, fields: Fields, key: str | None = None
) -> Call[object]:
    """What is asked for, if the caller may have it."""
    principal, options, app = principal_of(request), options_of(fields), outlast_of(request)
    for_session(principal, options)
    refuse_own(app, type)
    call = await app.prepare(
        type, payload, idempotency_key=key, usual=principal.priority, **options
    )
    if not principal.covers(call.task.type, call.task.queue):
        raise Refused(
            403, f"{principal.name!r} may not enqueue {type[:60]!r} into {call.task.queue!r}."
        )
    return call


async def _check_after(request: Request, calls: Sequence[Call[object]]) -> None:
    """What somebody may not see does not exist for them, as a task to wait for as well."""
    principal = principal_of(request)
    if not principal.is_scoped:
        return
    own = {call.task.id for call in calls}
    for id in dict.fromkeys(id for call in calls for id in call.task.after if id not in own):
        task = await reads_of(request).find(id)
        if task is None or not principal.sees(task):
            raise BadInput(f"after= names a task that does not exist: {id}", field="after")


async def _check_names(request: Request, calls: Sequence[Call[object]]) -> None:
    """A batch is refused before it is stored if one of it would meet a living task that the caller
    may not see. End users have names of their own, and a single task that meets one is none."""
    principal = principal_of(request)
    if principal.role == "session" or not principal.is_scoped:
        return
    keys = tuple(call.task.unique_key for call in calls if call.task.unique_key is not None)
    engine = outlast_of(request).engine
    wanted = [TaskQuery.of(id=tuple(call.task.id for call in calls), limit=len(calls))]
    if keys:
        wanted.append(TaskQuery.of(unique_key=keys, status=LIVING, limit=len(keys)))
    for query in wanted:
        if not all(map(principal.sees, (await engine.tasks(query)).items)):
            raise Conflict(_TAKEN)


def _payload(fields: Fields) -> bytes:
    return bytes(fields.pop("payload", b"{}"))


def _enqueued(request: Request, handle: Handle[object], task: Task) -> View:
    if handle.existing and not principal_of(request).sees(task):
        raise Conflict(_TAKEN)
    durability = outlast_of(request).engine.durability
    return {**shown(request, task), "existing": handle.existing, "durability": durability}


async def _fetch_all(app: Outlast, ids: Sequence[TaskId]) -> dict[TaskId, Task]:
    found: dict[TaskId, Task] = {}
    for start in range(0, len(ids), STEP):
        some = tuple(dict.fromkeys(ids[start : start + STEP]))
        page = await app.engine.tasks(TaskQuery.of(id=some, limit=len(some)))
        found |= {task.id: task for task in page.items}
    return found


# Looking -----------------------------------------------------------------------------------------


async def _ended(engine: Engine, id: TaskId, patience_ms: int) -> Task | None:
    try:
        return await wait_final(engine, id, patience_ms)
    except (WaitTimeout, NotFound):
        return None


async def query_of(request: Request) -> TaskQuery:
    """The filters of a list; a field that is given twice means either value."""
    query = await parse_query(outlast_of(request).engine, params_of(request))
    return await within_scope(request, query)


def params_of(request: Request) -> dict[str, str]:
    params = request.query_params
    return {name: (" " if name == "q" else ",").join(params.getlist(name)) for name in params}


async def page_of(request: Request, query: TaskQuery) -> View:
    """A page of records, bounded in number and in bytes."""
    engine, redactor = outlast_of(request).engine, redactor_of(request)
    items: list[View] = []
    size = 0
    cursor = query.cursor
    for _ in range(MAX_STEPS):
        step = replace(query, limit=min(STEP, query.limit - len(items)), cursor=cursor)
        page = await engine.tasks(step)
        items += [task_view(task, redactor) for task in page.items]
        size += sum(len(task.payload) + len(task.result or b"") for task in page.items)
        cursor = page.next
        if cursor is None or len(items) >= query.limit or size >= PAGE_BYTES:
            break
    return {"items": items, "next": cursor}
