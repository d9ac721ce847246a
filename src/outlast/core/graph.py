"""Edges between tasks that enter together: they must not run in a circle."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.core.errors import BadInput
from outlast.core.model import NewTask, TaskId


def check_acyclic(tasks: Sequence[NewTask]) -> None:
    """Refuse a batch in which a task waits for itself, directly or through others.

    Only edges inside the batch count: an older task cannot wait for one that is new.
    """
    waits_for: dict[TaskId, set[TaskId]] = {task.id: set(task.after) for task in tasks}
    followers: dict[TaskId, list[TaskId]] = {}
    for task_id, ups in waits_for.items():
        ups.intersection_update(waits_for)
        for up in ups:
            followers.setdefault(up, []).append(task_id)
    free = [task_id for task_id, ups in waits_for.items() if not ups]
    while free:
        done = free.pop()
        del waits_for[done]
        for task_id in followers.get(done, ()):
            waits_for[task_id].discard(done)
            if not waits_for[task_id]:
                free.append(task_id)
    if waits_for:
        raise BadInput(
            f"after= runs in a circle: {min(waits_for)} waits for itself, through "
            f"{len(waits_for)} tasks of the batch.",
            field="after",
        )
