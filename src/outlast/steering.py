"""Cancelling, retrying and deleting tasks with all that hangs on them.

An engine changes one task. What a person means is more: a workflow is stopped or taken up again as
a whole, what is cancelled takes along what it has called, and what undoes, or keeps a schedule
going, is not cancelled in passing. Handles, HTTP, the command line and bulks all come through here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from outlast import saga, schedules
from outlast.core.codec import loads
from outlast.core.errors import Conflict
from outlast.core.ids import id_for
from outlast.core.model import Cancel, Forget, Redrive, Task, TaskId, TaskQuery
from outlast.core.states import FINAL
from outlast.dataflow import ends
from outlast.handle import alter
from outlast.steps import UNDO, UNDO_TYPE
from outlast.stream import fetch
from outlast.workflow import TYPE as WORKFLOW

if TYPE_CHECKING:
    from outlast.app import Outlast

PARENT: Final = "parent"
"""The reason of tasks that were cancelled with the one that had called them."""
BULK: Final = "outlast.bulk"
_PAGE: Final = 500


async def cancel(app: Outlast, task_id: TaskId, reason: str) -> None:
    """Stop a task and what it has called, or a whole workflow; `Conflict` when it is over."""
    task = await fetch(app.engine, task_id)
    await _check(app, task)
    if task.type == WORKFLOW:
        await saga.cancel(app, task_id, reason)
        return
    if why := _uncancelled(task):
        raise Conflict(f"Cannot cancel task {task_id}: {why}.")
    await alter(app.engine, task_id, Cancel(reason))
    await _cancel_called(app, [task_id])


async def cancel_all(app: Outlast, tasks: Sequence[Task]) -> int:
    """The same for many, at which undoing, schedules and bulks are left alone. How many ended."""
    changed = 0
    for task in tasks:
        if task.type == WORKFLOW:
            changed += await _if_it_applies(saga.cancel, app, task.id)
    plain = [
        task
        for task in tasks
        if task.type not in (WORKFLOW, BULK)
        and not saga.is_undo(task)
        and _uncancelled(task) is None
    ]
    altered = await app.engine.alter([task.id for task in plain], Cancel())
    await _cancel_called(app, [task.id for task in plain])
    return changed + sum(one.applied for one in altered)


def _uncancelled(task: Task) -> str | None:
    """Why it is not to be cancelled, if so."""
    if task.state in FINAL:
        return None  # which the engine says better
    if task.type == UNDO_TYPE:
        return "it sees to it that the steps of another task are undone, which is not cancelled"
    if task.type == schedules.TYPE:
        name = loads(task.payload).get("name")
        return f"it keeps the schedule {name!r} going; pause or delete that"
    return None


async def _cancel_called(app: Outlast, ids: Sequence[TaskId]) -> None:
    """What they wait for, of that what they have made themselves, and so on. They are read again:
    until it was cancelled, each may have gone to wait for others than before."""
    while ids:
        called: list[TaskId] = []
        for task in (await ends(app.engine, ids)).values():
            if awaited := frozenset(task.after):
                async for child in _children(app, task.id, saga.LIVING):
                    if child.id in awaited and not saga.is_undo(child):
                        called.append(child.id)
        await app.engine.alter(called, Cancel(PARENT))
        ids = called


async def retry(app: Outlast, task_id: TaskId, change: Redrive) -> None:
    """Put a task back to pending with what was cancelled along with it, or take up a workflow.
    `Conflict` when it is not dead, cancelled or retrying, was undone, or would run without what it
    comes after."""
    task = await fetch(app.engine, task_id)
    await _check(app, task)
    if task.type == WORKFLOW and task.state in FINAL:
        if change.payload is not None:
            raise Conflict(f"Cannot edit workflow {task_id}: its payload is what it consists of.")
        await saga.retry(app, task_id)
        return
    if why := (await _unretried(app, [task])).get(task_id):
        raise Conflict(f"Cannot retry task {task_id}: {why}.")
    await _redrive_called(app, [task])
    await alter(app.engine, task_id, change)


async def retry_all(app: Outlast, tasks: Sequence[Task], change: Redrive) -> int:
    """The same for many; those that are not to be retried stay as they are: of what fell with
    another, that one is, and takes it along. How many were put back."""
    changed = 0
    unretried = await _unretried(app, tasks)
    for task in tasks:
        if task.type == WORKFLOW:
            changed += await _if_it_applies(saga.retry, app, task.id)
    plain = [task for task in tasks if task.type != WORKFLOW and task.id not in unretried]
    await _redrive_called(app, plain)
    altered = await app.engine.alter([task.id for task in plain], change)
    return changed + sum(one.applied for one in altered)


async def _redrive_called(app: Outlast, tasks: Sequence[Task]) -> None:
    """First what they wait for: else they would find it cancelled, and remember that."""
    while tasks := [task for task in tasks if task.state in FINAL and task.after]:
        called = []
        for task in tasks:
            if task.type == UNDO_TYPE:  # the undos are children of whose steps they undo
                of = loads(task.payload)["task"]
                undos = [child async for child in _children(app, of, ("dead", "cancelled"))]
                called += [child for child in undos if UNDO in child.tags]
            else:
                fallen = [child async for child in _children(app, task.id, ("cancelled",))]
                called += [child for child in fallen if child.reason == PARENT]
        await app.engine.alter([task.id for task in called], Redrive())
        tasks = called


async def _unretried(app: Outlast, tasks: Sequence[Task]) -> dict[TaskId, str]:
    """Which of them are not to be taken up again, and why."""
    found = {
        task.id: "what it would undo was not to be undone"
        for task in tasks
        if task.state == "cancelled" and task.reason == saga.NOT_NEEDED and saga.is_undo(task)
    }
    return found | await _fallen(app, tasks) | await _undone(app, tasks)


async def _fallen(app: Outlast, tasks: Sequence[Task]) -> dict[TaskId, str]:
    """Those that never began and would now, though what they need before them has failed."""
    waited = [task for task in tasks if task.state in FINAL and not task.number and task.after]
    strict = [task for task in waited if task.needs == "success"]
    ups = await ends(app.engine, {up for task in strict for up in task.after})
    found: dict[TaskId, str] = {}
    for task in strict:
        for up in (ups[id] for id in task.after if id in ups):
            if up.state in ("dead", "cancelled"):
                what = f"{up.type} {up.id}, which is {up.state}"
                found[task.id] = f"it comes after {what}; retry that one"
    return found


async def _undone(app: Outlast, tasks: Sequence[Task]) -> dict[TaskId, str]:
    """Which of them were undone, and cannot be taken up again; and how."""
    over = [task for task in tasks if task.state in FINAL and not saga.is_undo(task)]
    found: dict[TaskId, str] = {}
    deciders = await _deciders(app, over)
    for task in over:
        if (decider := deciders.get(task.id)) is not None and decider.number:
            found[task.id] = "its steps were undone; rerun it, or enqueue a new one"
    flows = {task.workflow_id for task in over if task.workflow_id not in (None, task.id)}
    for last in (await ends(app.engine, filter(None, flows))).values():
        status = await saga.standing(app, last) if last.type == WORKFLOW else "running"
        if status in ("undone", "undoing", "undo_failed"):
            why = f"its workflow is {status}; enqueue a new one"
            found |= {task.id: why for task in over if task.workflow_id == last.id}
    return found


async def forget(app: Outlast, task_id: TaskId) -> None:
    """Delete a task that does not run; `Conflict` when something still hangs on it."""
    task = await fetch(app.engine, task_id)
    await _check(app, task)
    if why := (await _needed(app, [task])).get(task_id):
        raise Conflict(f"Cannot delete task {task_id}: {why}.")
    await alter(app.engine, task_id, Forget())


async def forget_all(app: Outlast, tasks: Sequence[Task]) -> int:
    """The same for many; what is needed stays. How many were deleted."""
    needed = await _needed(app, tasks)
    ids = [task.id for task in tasks if task.id not in needed]
    return sum(one.applied for one in await app.engine.alter(ids, Forget()))


async def _needed(app: Outlast, tasks: Sequence[Task]) -> dict[TaskId, str]:
    """Which of them something hangs on, and what."""
    found: dict[TaskId, str] = {}
    deciders = await _deciders(app, [task for task in tasks if task.state != "completed"])
    for task in tasks:
        decider = deciders.get(task.id)
        if decider is not None and decider.state not in FINAL:
            found[task.id] = "its steps are to be undone; cancel it and wait until they are"
        elif task.state not in FINAL and task.type == WORKFLOW:
            found[task.id] = "it is the end of a workflow that lives; cancel that first"
        elif task.state not in FINAL and saga.is_undo(task):
            found[task.id] = "it undoes what another task has done"
        elif why := _uncancelled(task):
            found[task.id] = why
    return found


async def _deciders(app: Outlast, tasks: Iterable[Task]) -> dict[TaskId, Task]:
    """For those with steps that can be undone, the task that decides whether they are."""
    ids = {id_for(task.created_at, f"{task.id} undo"): task.id for task in tasks}
    found = await ends(app.engine, ids)
    return {ids[decider.id]: decider for decider in found.values()}


def _children(app: Outlast, id: TaskId, status: tuple[str, ...]) -> AsyncIterator[Task]:
    return saga.all_of(app, TaskQuery.of(parent_id=id, status=status, limit=_PAGE))


async def _check(app: Outlast, task: Task) -> None:
    """May whoever is at work change it? A workflow is as many as it consists of."""
    app.check(task.type)
    if app.guard is not None and task.type == WORKFLOW:
        for count in await app.engine.count(TaskQuery.of(workflow_id=task.id), by=("type",)):
            app.check(str(count.by[0]))


async def _if_it_applies(
    change: Callable[[Outlast, TaskId], Awaitable[int]], app: Outlast, id: TaskId
) -> int:
    try:
        return await change(app, id)
    except Conflict:
        return 0
