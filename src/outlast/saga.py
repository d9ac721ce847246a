"""The end of a workflow: its result, or what is undone when something in it died.

`outlast.workflow` is a task like any other, whose id is the workflow's. It runs when the last tasks
are over. If they completed, it completes with their results. If not, it undoes: for each task that
had started and has an `undo`, latest first, one after the other, a task of that type with the same
arguments, each with its own retries; then it dies, with a code that says how it went: `undone`,
`undo_failed`, or `workflow_failed` when there was nothing to undo.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from outlast.context import Context
from outlast.core.codec import loads
from outlast.core.errors import Conflict, NotFound, Permanent
from outlast.core.ids import id_for
from outlast.core.model import Cancel, NewTask, Redrive, Signal, Task, TaskId, TaskQuery
from outlast.core.states import FINAL
from outlast.dataflow import SKIPPED, Flow, ends, flow_of, result_in, with_flow
from outlast.steps import UNDO, Wait
from outlast.stream import fetch, find
from outlast.workflow import TYPE

if TYPE_CHECKING:
    from outlast.app import Outlast

LIVING: Final = ("ready", "scheduled", "retrying", "throttled", "blocked", "running", "stalled")
# How many of those that still live the end waits for at a time.
_SOME: Final = 200
UNDOING: Final = "undo:node"
"""The tag of tasks that undo a node. Those that undo a step are there before it is decided."""

Status = Literal["running", "completed", "dead", "cancelled", "undoing", "undone", "undo_failed"]


_CODES: Final[dict[str | None, Status]] = {"undone": "undone", "undo_failed": "undo_failed"}


class WorkflowFailed(Permanent):
    code = "workflow_failed"


class Undone(Permanent):
    code = "undone"


class UndoFailed(Permanent):
    code = "undo_failed"


class WorkflowView(Struct, frozen=True, kw_only=True):
    """A workflow as a whole."""

    id: TaskId
    name: str
    status: Status
    counts: dict[str, int]
    """Its tasks by status, without the one at the end."""
    end: Task

    @property
    def percent(self) -> float:
        over = sum(n for status, n in self.counts.items() if status in FINAL)
        total = sum(self.counts.values())
        return 100.0 * over / total if total else 100.0


# Running -----------------------------------------------------------------------------------------


async def end(app: Outlast, ctx: Context, last: Sequence[tuple[TaskId, str]]) -> Any:
    """The body of `outlast.workflow`."""
    me = ctx.task_id
    query = TaskQuery.of(workflow_id=me, status=LIVING, limit=_SOME)
    living = [task.id for task in (await app.engine.tasks(query)).items if task.id != me]
    if living:
        ctx.suspend(Wait(after=tuple(living)))
    ended = await ends(app.engine, [id for id, _ in last])
    whole = all(id in ended and ended[id].state == "completed" for id, _ in last)
    failed = None if whole else await _failed(app, me)
    if failed is None:
        results = {name: result_in(ended.get(id)) for id, name in last}
        return next(iter(results.values())) if len(results) == 1 else results
    undos = [_undo(app, ctx, task, flow) async for task, flow in _started(app, me)]
    if not undos:
        raise WorkflowFailed(_words(failed))
    chain = [replace(task, after=(undos[n - 1].id,) if n else ()) for n, task in enumerate(undos)]
    ids = tuple(task.id for task in chain)
    # Two waits: a cancel that meets the second does not stop what was enqueued with the first.
    ctx.suspend_once("undo", Wait(spawn=tuple(chain)))
    ctx.suspend_once("undone", Wait(after=ids))
    undone = await ends(app.engine, ids)
    stuck = [task for task in undone.values() if task.state != "completed" and _is_cause(task)]
    if stuck:
        raise UndoFailed(
            f"{_words(failed)} Undoing it did not go through: {stuck[0].type} {stuck[0].id} is"
            f" {stuck[0].state}. Retry that one, then the workflow.",
            details={"failed": failed.id, "undo": [task.id for task in stuck]},
        )
    raise Undone(f"{_words(failed)} {len(ids)} done before it were undone.")


async def undo_steps(app: Outlast, ctx: Context, task_id: TaskId) -> int:
    """The body of `outlast.undo`, which waits for a task whose steps have undos: held tasks, its
    children. When it completed they are not needed; else they run one after the other, the latest
    step's first. How many there were to undo."""
    parent = await find(app.engine, task_id)
    if parent is not None and parent.state not in FINAL:
        ctx.suspend(Wait(after=(task_id,)))
    query = TaskQuery.of(parent_id=task_id, tag=UNDO, limit=500)
    held = sorted([task async for task in _all(app, query)], key=lambda t: t.id, reverse=True)
    if parent is None or parent.state == "completed":
        await app.engine.alter([task.id for task in held], Cancel("not needed"))
        return 0
    for task in held:
        if task.state == "completed":
            continue
        if task.state in FINAL:
            raise UndoFailed(
                f"{task.type} {task.id}, which undoes a step of {parent.type} {parent.id}, is"
                f" {task.state}. Retry that one, then this."
            )
        if task.status == "blocked":
            await app.engine.alter([task.id], Signal(UNDO))
        ctx.suspend(Wait(after=(task.id,)))
    return len(held)


async def fan_out(
    app: Outlast, ctx: Context, type: str, payloads: Sequence[dict[str, Any]], *, lenient: bool
) -> list[Any]:
    """The body of `outlast.map`: one task for each payload, and the list of their results."""
    handler = app.find(type)
    if handler is None:
        raise Permanent(f"No handler here knows {type!r}, which is to be mapped.")
    ids = [id_for(ctx.created_at, f"{ctx.task_id} {n}") for n in range(len(payloads))]
    children = tuple(
        replace(handler.accept(told).task, id=id, parent_id=ctx.task_id, **ctx.owner)
        for id, told in zip(ids, payloads, strict=True)
    )
    if children:
        ctx.suspend_once("map", Wait(after=tuple(ids), spawn=children))
    ended = await ends(app.engine, ids)
    lost = [id for id in ids if id not in ended or ended[id].state != "completed"]
    if lost and not lenient:
        raise Permanent(f"{len(lost)} of {len(ids)} did not complete, the first is {lost[0]}.")
    return [result_in(ended.get(id)) for id in ids]


async def _failed(app: Outlast, workflow: TaskId) -> Task | None:
    """One that died, or was cancelled by somebody; not those that fell with others."""
    async for task in _tasks(app, workflow, ("dead", "cancelled")):
        if task.type != TYPE and UNDO not in task.tags and _is_cause(task):
            return task
    return None


def _is_cause(task: Task) -> bool:
    return task.state == "dead" or task.reason not in (SKIPPED, "upstream")


async def _started(app: Outlast, workflow: TaskId) -> AsyncIterator[tuple[Task, Flow]]:
    """Those to undo, the latest first."""
    found = []
    async for task in _tasks(app, workflow, tuple(FINAL)):
        flow = flow_of(task.meta)
        if flow is not None and flow.undo and task.number:
            found.append((task, flow))
    found.sort(key=lambda pair: (pair[0].started_at or 0, pair[0].id), reverse=True)
    for pair in found:
        yield pair


def _undo(app: Outlast, ctx: Context, task: Task, flow: Flow) -> NewTask:
    """The task that undoes one; the same whenever it is asked for."""
    handler = app.find(flow.undo or "")
    if handler is None:
        raise Permanent(f"No handler here knows {flow.undo!r}, which is to undo {task.type}.")
    made = handler.prepare(task.payload).task
    return replace(
        made,
        id=id_for(ctx.created_at, f"{ctx.task_id} undo {task.id} {task.number}"),
        parent_id=task.id,
        workflow_id=ctx.task_id,
        session_id=task.session_id,
        user_id=task.user_id,
        priority=task.priority,
        tags=(*made.tags, UNDO, UNDOING),
        meta=with_flow(made.meta, Flow(refs=flow.refs, node=f"undo {flow.node}")),
    )


def _words(failed: Task) -> str:
    name = flow.node if (flow := flow_of(failed.meta)) else failed.type
    error = loads(failed.error) if failed.state == "dead" and failed.error else None
    why = f": {error['type']}: {error['message']}" if error else f" ({failed.reason})"
    return f"{name!r} {'died' if failed.state == 'dead' else 'was cancelled'}{why}."


def _tasks(app: Outlast, workflow: TaskId, status: tuple[str, ...]) -> AsyncIterator[Task]:
    return _all(app, TaskQuery.of(workflow_id=workflow, status=status, limit=500))


async def _all(app: Outlast, query: TaskQuery) -> AsyncIterator[Task]:
    while True:
        page = await app.engine.tasks(query)
        for task in page.items:
            yield task
        if page.next is None:
            return
        query = replace(query, cursor=page.next)


# For people --------------------------------------------------------------------------------------


async def view(app: Outlast, id: TaskId) -> WorkflowView:
    """How a workflow stands, as one."""
    last = await _end_of(app, id)
    found = await app.engine.count(TaskQuery.of(workflow_id=id), by=("status",))
    counts = {str(count.by[0]): count.n for count in found}
    counts[last.status] -= 1
    return WorkflowView(
        id=id,
        name=loads(last.payload)["name"],
        status=await _status(app, last),
        counts={status: n for status, n in counts.items() if n},
        end=last,
    )


async def _status(app: Outlast, last: Task) -> Status:
    undoing = TaskQuery.of(workflow_id=last.id, tag=UNDOING, limit=1)
    began = last.state not in FINAL and bool((await app.engine.tasks(undoing)).items)
    return status_of(last, undoing=began)


def status_of(last: Task, *, undoing: bool) -> Status:
    """The status of a workflow, by the task at its end."""
    if last.state == "completed" or last.state == "cancelled":
        return last.state
    if last.state == "dead":
        code = loads(last.error)["code"] if last.error else None
        return _CODES.get(code, "dead")
    return "undoing" if undoing else "running"


async def cancel(app: Outlast, id: TaskId, reason: str = "cancelled") -> int:
    """Stop all that is not over. What was done is undone, which itself is not stopped."""
    last = await _end_of(app, id)
    living, undoable = [], False
    async for task in _tasks(app, id, (*LIVING, *FINAL)):
        if task.id == id or UNDO in task.tags:
            continue
        flow = flow_of(task.meta)
        undoable = undoable or bool(flow and flow.undo and task.number)
        if task.state not in FINAL:
            living.append(task.id)
    if not undoable and last.state not in FINAL:
        living.append(id)
    if not living:
        raise Conflict(f"Cannot cancel workflow {id}: it is over.")
    changed = await app.engine.alter(living, Cancel(reason))
    return sum(one.applied for one in changed)


async def retry(app: Outlast, id: TaskId) -> int:
    """Go on from where it died: what is dead goes back, and what fell with it; what completed
    stays. A workflow that was undone is not taken up again."""
    last = await _end_of(app, id)
    status = await _status(app, last)
    if status in ("undone", "undoing"):
        raise Conflict(f"Cannot retry workflow {id}: it is {status}. Enqueue a new one.")
    dead = []
    async for task in _tasks(app, id, ("dead", "cancelled")):
        wanted = status != "undo_failed" or UNDO in task.tags
        if task.id != id and wanted and _is_cause(task):
            dead.append(task.id)
    if last.state in FINAL and last.state != "completed":
        dead.append(id)
    if not dead:
        raise Conflict(f"Cannot retry workflow {id}: it is {status}.")
    changed = await app.engine.alter(dead, Redrive())
    return sum(one.applied for one in changed)


async def _end_of(app: Outlast, id: TaskId) -> Task:
    last = await fetch(app.engine, id)
    if last.type != TYPE:
        raise NotFound(f"There is no workflow {id}.")
    return last
