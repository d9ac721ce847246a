"""Edges between tasks that enter together: they must not run in a circle."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.core.errors import BadInput
from outlast.core.model import NewTask, TaskId


def check_acyclic(tasks: Sequence[NewTask]) -> None:
    """Refuse a batch in which a task waits for itself, directly or through others."""
    in_order(tasks)


def in_order(tasks: Sequence[NewTask]) -> list[TaskId]:
    """The tasks of a batch, each behind those of the batch that it waits for.

    Only edges inside the batch count: an older task cannot wait for one that is new.
    """
    ids = {task.id for task in tasks}
    waits_for = {task.id: {up for up in task.after if up in ids} for task in tasks}
    followers: dict[TaskId, list[TaskId]] = {}
    for task_id, ups in waits_for.items():
        for up in ups:
            followers.setdefault(up, []).append(task_id)
    free = [task_id for task_id, ups in waits_for.items() if not ups]
    for done in free:  # it grows meanwhile
        for task_id in followers.get(done, ()):
            waits_for[task_id].discard(done)
            if not waits_for[task_id]:
                free.append(task_id)
    circle = [task_id for task_id, ups in waits_for.items() if ups]
    if circle:
        raise BadInput(
            f"after= runs in a circle: {min(circle)} waits for itself, through "
            f"{len(circle)} tasks of the batch.",
            field="after",
        )
    return free
