"""The end of a workflow: its result, or what is undone when something in it died.

`outlast.workflow` is a task like any other, whose id is the workflow's. It runs when the last tasks
are over. If they completed, it completes with their results. If not, it undoes: for each task that
had started and has an `undo`, latest first, one after the other, a task of that type with the same
arguments, each with its own retries; then it dies, with a code that says how it went: `undone`,
`undo_failed`, or `workflow_failed` when there was nothing to undo. With nothing to undo, and only
cancelled tasks, it is cancelled as they were. What it has once begun to undo it never takes up
again, whatever becomes of its tasks.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from outlast.context import Context
from outlast.core.codec import loads
from outlast.core.errors import Conflict, NotFound, Permanent
from outlast.core.ids import id_for
from outlast.core.model import Cancel, NewTask, Redrive, Signal, Task, TaskId, TaskQuery, Term
from outlast.core.redact import Hidden, hidden_by, hiding
from outlast.core.states import FINAL
from outlast.dataflow import SKIPPED, Flow, Skipped, ends, flow_of, result_in, with_flow
from outlast.steps import UNDO, UNDO_TYPE, StepsUndone, Wait
from outlast.stream import fetch, find
from outlast.workflow import BEGIN, GATE, MAX_NODES, PIECE, TYPE

if TYPE_CHECKING:
    from outlast.app import Outlast
    from outlast.handler import Handler

logger: Final = logging.getLogger("outlast.worker")

LIVING: Final = ("ready", "scheduled", "retrying", "throttled", "blocked", "running", "stalled")
UPSTREAM: Final = "upstream"
"""The reason of tasks that fell with one before them; redriving that one restores them."""
NOT_NEEDED: Final = "not needed"
"""The reason of undos whose task completed."""
# How many of those that still live the end waits for at a time.
_SOME: Final = 200
# Work for a type that this worker does not know is left to others: for so long, then longer.
_LEFT_MS: Final = 1_000
_LEFT_MAX_MS: Final = 60_000
UNDOING: Final = "undo:node"
"""The tag of tasks that undo a node. Those that undo a step are there before it is decided."""

Status = Literal["running", "completed", "dead", "cancelled", "undoing", "undone", "undo_failed"]


_CODES: Final[dict[str | None, Status]] = {"undone": "undone", "undo_failed": "undo_failed"}


class WorkflowFailed(Permanent):
    code = "workflow_failed"


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


async def end(
    app: Outlast, ctx: Context, last: Sequence[tuple[TaskId, str]], *, is_part: bool = False
) -> Any:
    """The body of `outlast.workflow`."""
    me = ctx.task_id
    if living := await _living(app, me):
        ctx.suspend(Wait(after=tuple(living)))
    undoing: list[TaskId] | None = ctx.remembered("undo")
    if undoing is not None:
        await _undone(app, [id for id, _ in last], undoing)
    ended = await ends(app.engine, [id for id, _ in last])
    if len(ended) < len(last):
        raise WorkflowFailed(
            f"{len(last) - len(ended)} of its last tasks were deleted before their results were"
            " read: keep ended tasks for longer, or do not delete those of a living workflow."
        )
    failed = await _failed(app, ended)
    if failed is None and is_part and not any(t.state == "completed" for t in ended.values()):
        raise Skipped(SKIPPED)  # its condition did not hold, so none of it ran
    if failed is None:
        results = {name: result_in(ended[id]) for id, name in last}
        return next(iter(results.values())) if len(results) == 1 else results
    if stuck := await _stuck(app, me):
        raise UndoFailed(_not_through(_words(failed), stuck), details=_details(failed, stuck))
    undos = [_undo(app, ctx, task, flow) for task, flow in await _started(app, me)]
    if undos:
        ids = tuple(task.id for task in undos)
        chain = [replace(task, after=ids[n - 1 : n]) for n, task in enumerate(undos)]
        # To be waited for next time: a cancel that meets that wait does not stop what is enqueued.
        ctx.suspend_once("undo", Wait(spawn=tuple(chain)), ids)
    if failed.state == "cancelled":
        raise Skipped(failed.reason or "cancelled")
    if failed.type == TYPE and status_of(failed, undoing=False) == "undone":
        raise StepsUndone(_words(failed))  # a part has undone what was done
    raise WorkflowFailed(_words(failed))


async def _living(app: Outlast, workflow: TaskId) -> list[TaskId]:
    """What its end still waits for, so many at a time. Held undos of steps are none of it: behind
    one that died they stay held, until somebody has mended that."""
    found: list[TaskId] = []
    async for task in _tasks(app, workflow, LIVING):
        held = UNDO in task.tags and task.parked == f"signal:{UNDO}"
        if task.id != workflow and not held:
            found.append(task.id)
        if len(found) == _SOME:
            break
    return found


async def _stuck(app: Outlast, workflow: TaskId) -> list[Task]:
    """What could not be undone inside of it: the steps of a task, or a part. Nothing before it is
    undone until that is."""
    query = TaskQuery.of(workflow_id=workflow, type=(UNDO_TYPE, TYPE), status="dead", limit=500)
    return [
        task
        async for task in all_of(app, query)
        if task.id != workflow and status_of(task, undoing=False) == "undo_failed"
    ]


async def _undone(app: Outlast, last: Sequence[TaskId], ids: Sequence[TaskId]) -> NoReturn:
    """It has come to undoing: how that went."""
    failed = await _failed(app, last)
    words = "It was to be undone." if failed is None else _words(failed)
    found = await ends(app.engine, ids)
    stuck = [task for task in found.values() if task.state != "completed"]
    if stuck:
        raise UndoFailed(_not_through(words, stuck), details=_details(failed, stuck))
    raise StepsUndone(f"{words} {len(ids)} done before it were undone.")


def _not_through(words: str, stuck: Sequence[Task]) -> str:
    first = next(filter(_is_cause, stuck), stuck[0])
    return (
        f"{words} Undoing it did not go through: {first.type} {first.id} is {first.state}."
        " Mend what it needs and retry the workflow: it goes on from there."
    )


def _details(failed: Task | None, stuck: Sequence[Task]) -> dict[str, object]:
    return {"failed": failed and failed.id, "undo": [task.id for task in stuck]}


async def undo_steps(app: Outlast, ctx: Context, task_id: TaskId) -> int:
    """The body of `outlast.undo`, which waits for a task whose steps have undos: held tasks, its
    children. When it completed they are not needed; else they run one after the other, the latest
    step's first. How many there were to undo.

    That this was claimed is what a redriven task looks at before it goes on: from then on either it
    refuses, or it is seen here to live.
    """
    query = TaskQuery.of(parent_id=task_id, tag=UNDO, limit=500)
    held = [task async for task in all_of(app, query)]
    # By the engine's clock: steps may have begun on several machines.
    held.sort(key=lambda task: (task.created_at, task.id), reverse=True)
    if any(task.reason == NOT_NEEDED for task in held):
        await _alter(app, [task.id for task in held], Cancel(NOT_NEEDED))
        return 0
    if all(task.parked == f"signal:{UNDO}" for task in held):
        parent = await find(app.engine, task_id)
        if parent is None:
            raise UndoFailed(
                f"Task {task_id} was deleted before it was known how it ended: nobody can tell"
                f" whether its {len(held)} steps are to be undone. Signal {UNDO!r} to their undos,"
                " or cancel them.",
                details={"undo": [task.id for task in held]},
            )
        if parent.state == "completed":
            await _alter(app, [task.id for task in held], Cancel(NOT_NEEDED))
            return 0
        if parent.state not in FINAL:
            ctx.suspend(Wait(after=(task_id,)))
    for task in held:
        if task.state == "completed":
            continue
        if task.state in FINAL:
            raise UndoFailed(
                f"{task.type} {task.id}, which undoes a step of task {task_id}, is {task.state}."
                " Mend what it needs and retry this one: it goes on from there.",
                details={"undo": [task.id]},
            )
        if task.parked == f"signal:{UNDO}":
            await app.engine.alter([task.id], Signal(UNDO))
        ctx.suspend(Wait(after=(task.id,)))
    return len(held)


async def fan_out(
    app: Outlast,
    ctx: Context,
    type: str,
    payloads: Sequence[dict[str, Any]],
    options: Mapping[str, Any],
    *,
    lenient: bool,
) -> list[Any]:
    """The body of `outlast.map`: one task for each payload, and the list of their results."""
    if len(payloads) > MAX_NODES:
        raise Permanent(f"A map has at most {MAX_NODES:,} items, not {len(payloads):,}.")
    handler = _known(app, ctx, type, "mapped").under({"priority": ctx.owner["priority"], **options})
    owner = {name: value for name, value in ctx.owner.items() if name != "priority"}
    ids = [id_for(ctx.created_at, f"{ctx.task_id} {n}") for n in range(len(payloads))]
    for start in range(0, len(ids), PIECE):
        piece = slice(start, start + PIECE)
        made = [handler.accept(told) for told in payloads[piece]]
        children = tuple(
            replace(call.task, id=id, parent_id=ctx.task_id, **owner)
            for id, call in zip(ids[piece], made, strict=True)
        )
        limits = tuple(limit.to_json() for call in made for limit in call.limits)
        wait = Wait(after=tuple(ids[piece]), spawn=children, limits=limits)
        ctx.suspend_once(f"map {start}", wait)
    ended = await ends(app.engine, ids)
    if living := [task.id for task in ended.values() if task.state not in FINAL]:
        ctx.suspend(Wait(after=tuple(living[:PIECE])))  # redriven, like this one
    lost = [id for id in ids if id not in ended or ended[id].state != "completed"]
    if lost and not lenient:
        first = _words(ended[lost[0]]) if lost[0] in ended else "It was deleted."
        raise Permanent(
            f"{len(lost)} of {len(ids)} did not complete; the first, {lost[0]}: {first}"
        )
    return [result_in(ended.get(id)) for id in ids]


def _known(app: Outlast, ctx: Context, type: str, what: str) -> Handler[..., Any]:
    """The handler of a type. Every worker serves this queue, also those of programs that do not
    have the type: they leave the work to others."""
    handler = app.find(type)
    if handler is None:
        logger.warning("%s %s: no handler here knows %r, which is to be %s; another worker may.",
                       ctx.type, ctx.task_id, type, what)  # fmt: skip
        ctx.suspend(Wait(until=ctx.now + min(_LEFT_MS * ctx.number, _LEFT_MAX_MS)))
    return handler


async def _failed(app: Outlast, last: Iterable[TaskId]) -> Task | None:
    """What kept the last tasks from completing: one that died, else one that somebody cancelled.
    None when they completed or were skipped; failures that others bore are none."""
    wanted, seen, found = set(last), set[TaskId](), None
    fallen: list[Task] = []
    while wanted:
        seen |= wanted
        ended = await ends(app.engine, wanted)
        wanted = set()
        for task in ended.values():
            if task.state == "dead":
                return task
            if _is_cause(task):
                found = task
            elif _has_fallen(task):
                fallen.append(task)
                wanted |= set(task.after) - seen
    if found is None and (alone := await _alone(app, fallen)):
        return replace(alone[0], reason="cancelled")
    return found


async def _alone(app: Outlast, fallen: Sequence[Task]) -> list[Task]:
    """Those that were cancelled as fallen, but whose upstreams all completed: they were as quick as
    the cancel that they were to fall with, so nothing but these tells of it."""
    ups = await ends(app.engine, {up for task in fallen for up in task.after})
    return [
        task for task in fallen if all(_lets_go(ups[up], task) for up in task.after if up in ups)
    ]


def _lets_go(up: Task, task: Task) -> bool:
    """Does a task run behind this one?"""
    return up.state == "completed" or (task.needs == "any" and up.reason == SKIPPED)


def _has_fallen(task: Task) -> bool:
    return task.state == "cancelled" and task.reason == UPSTREAM


def _is_cause(task: Task) -> bool:
    return task.state == "dead" or (
        task.state == "cancelled" and task.reason not in (SKIPPED, UPSTREAM)
    )


def _has_begun(task: Task) -> bool:
    """Is there something to undo, should the workflow fail?"""
    return bool(task.number) and not (task.state == "cancelled" and task.reason == SKIPPED)


async def _started(app: Outlast, workflow: TaskId) -> list[tuple[Task, Flow]]:
    """Those to undo, the latest first. A part that failed has undone itself."""
    found = []
    async for task in _tasks(app, workflow, tuple(FINAL)):
        flow = flow_of(task.meta)
        if flow is not None and flow.undo and _has_begun(task):
            found.append((task, flow))
        elif _is_part(task, workflow) and task.state == "completed":
            found += await _started(app, task.id)
    found.sort(key=lambda pair: (pair[0].started_at or 0, pair[0].id), reverse=True)
    return found


def _is_part(task: Task, workflow: TaskId) -> bool:
    """Is it the end of a workflow that is a part of this one?"""
    return task.type == TYPE and task.id != workflow


def _undo(app: Outlast, ctx: Context, task: Task, flow: Flow) -> NewTask:
    """The task that undoes one; the same whenever it is asked for."""
    handler = _known(app, ctx, flow.undo or "", "used to undo")
    made = handler.prepare(task.payload, complete=False).task
    return replace(
        made,
        id=id_for(ctx.created_at, f"{ctx.task_id} undo {task.id} {task.number}"),
        parent_id=task.id,
        workflow_id=ctx.task_id,
        session_id=task.session_id,
        user_id=task.user_id,
        priority=task.priority,
        tags=(*made.tags, UNDO, UNDOING),
        **dict.fromkeys(("unique_key", "unique_for_ms", "max_age_ms", "overdue_after_ms")),
        meta=with_flow(
            hiding(made.meta, Hidden(payload=hidden_by(task.meta).payload)),
            Flow(refs=flow.refs, node=f"undo {flow.node}"),
        ),
    )


def _words(failed: Task) -> str:
    name = flow.node if (flow := flow_of(failed.meta)) else failed.type
    error = loads(failed.error) if failed.state == "dead" and failed.error else None
    why = f": {error['type']}: {error['message']}" if error else f" ({failed.reason})"
    told = f"{name!r} {'died' if failed.state == 'dead' else 'was cancelled'}{why}"
    return told if told.endswith((".", "!", "?")) else f"{told}."


def _tasks(app: Outlast, workflow: TaskId, status: tuple[str, ...]) -> AsyncIterator[Task]:
    return all_of(app, TaskQuery.of(workflow_id=workflow, status=status, limit=500))


async def _with_parts(app: Outlast, id: TaskId, status: tuple[str, ...]) -> AsyncIterator[Task]:
    """The tasks of a workflow and of its parts, but for the one at its own end."""
    async for task in _tasks(app, id, status):
        if task.id != id:
            yield task
    async for end in all_of(app, TaskQuery.of(workflow_id=id, type=TYPE, limit=500)):
        if end.id != id:
            async for task in _with_parts(app, end.id, status):
                yield task


async def all_of(app: Outlast, query: TaskQuery) -> AsyncIterator[Task]:
    """Every task of a query, page by page."""
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
    counts: Counter[str] = Counter()
    for count in await app.engine.count(counted(id), by=("status",)):
        counts[str(count.by[0])] += count.n
    return WorkflowView(
        id=id,
        name=loads(last.payload)["name"],
        status=await standing(app, last),
        counts=dict(counts),
        end=last,
    )


def counted(*ids: TaskId) -> TaskQuery:
    """The tasks of workflows, without those at their own ends: a part is one of them."""
    ends = Term("id", ids, negated=True)
    return TaskQuery(terms=(Term("workflow_id", ids), ends, Term("type", (GATE,), negated=True)))


async def standing(app: Outlast, last: Task) -> Status:
    """The same, after a look whether undoing has begun."""
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
    status = await standing(app, last)
    if status != "running":
        over = "undoing is not cancelled" if status == "undoing" else "it is over"
        raise Conflict(f"Cannot cancel workflow {id}: {over}.")
    undoable, asked = False, set[TaskId]()
    statuses: tuple[str, ...] = (*LIVING, *FINAL)
    while True:
        living: dict[TaskId, Task] = {}
        parts: list[TaskId] = []
        async for task in _with_parts(app, id, statuses):
            if is_undo(task):
                undoable = undoable or task.type == UNDO_TYPE
                continue
            if task.type == TYPE:
                parts += [] if task.state in FINAL else [task.id]
                continue
            flow = flow_of(task.meta)
            undoable = undoable or bool(flow and flow.undo)
            if task.state not in FINAL and task.id not in asked:
                living[task.id] = task
        if not living:
            break
        # First those that wait for others, which so are not let go to run when these fall. As
        # fallen with them they come back with them when the workflow is retried.
        going = {*living, *parts}
        rest = [task.id for task in living.values() if not going.isdisjoint(task.after)]
        roots = [task.id for task in living.values() if going.isdisjoint(task.after)]
        await _alter(app, rest, Cancel(UPSTREAM))
        await _alter(app, roots, Cancel(reason))
        # Once more: what they have made until they were cancelled.
        asked |= living.keys()
        statuses = LIVING
    if undoable and not asked:
        raise Conflict(f"Cannot cancel workflow {id}: it is over, only its end is under way.")
    if undoable:  # then the end decides what was begun, and not we
        return len(asked)
    await _alter(app, parts, Cancel(UPSTREAM))
    return len(asked) + await _alter(app, [id], Cancel(reason))


async def retry(app: Outlast, id: TaskId) -> int:
    """Go on from where it died: what is dead goes back, and what fell with it; what completed
    stays. A workflow that was undone is not taken up again."""
    from outlast.escalation import resume

    last = await _end_of(app, id)
    status = await standing(app, last)
    if status in ("undone", "undoing"):
        raise Conflict(f"Cannot retry workflow {id}: it is {status}. Enqueue a new one.")
    dead, fallen = list[Task](), list[Task]()
    async for task in _with_parts(app, id, ("dead", "cancelled")):
        wanted = status != "undo_failed" or is_undo(task) or task.type == TYPE
        if task.type == TYPE and status_of(task, undoing=False) == "undone":
            if status == "undo_failed":
                continue
            raise Conflict(
                f"Cannot retry workflow {id}: a part of it is undone. Enqueue a new one."
            )
        if wanted and _is_cause(task):
            dead.append(task)
        elif wanted and _has_fallen(task):
            fallen.append(task)
    chosen = await _first(app, [*dead, *await _alone(app, fallen)])
    if last.state in FINAL and last.state != "completed":
        chosen.append(id)
    if not chosen:
        raise Conflict(f"Cannot retry workflow {id}: it is {status}.")
    changed = await _alter(app, chosen, Redrive())
    # All of it is there: whoever enqueued it died before it was let go.
    await _alter(app, [task.id for task in dead if task.type == GATE], Signal(BEGIN))
    await resume(app, id)
    return changed


async def _first(app: Outlast, dead: Sequence[Task]) -> list[TaskId]:
    """Those to redrive: a task that was cancelled before its turn would not wait for one that is
    redriven with it, so it has to come later; one that fell with another comes back with that."""
    ups = await ends(app.engine, {up for task in dead for up in task.after})
    return [
        task.id
        for task in dead
        if task.number or all(ups[up].state == "completed" for up in task.after if up in ups)
    ]


def is_undo(task: Task) -> bool:
    """Does it undo something, or decide whether that is to be done?"""
    return UNDO in task.tags or task.type == UNDO_TYPE


async def _alter(app: Outlast, ids: Sequence[TaskId], change: Cancel | Redrive | Signal) -> int:
    changed = 0
    for start in range(0, len(ids), PIECE):
        altered = await app.engine.alter(ids[start : start + PIECE], change)
        changed += sum(one.applied for one in altered)
    return changed


async def _end_of(app: Outlast, id: TaskId) -> Task:
    last = await fetch(app.engine, id)
    if last.type != TYPE:
        raise NotFound(f"There is no workflow {id}.")
    return last
