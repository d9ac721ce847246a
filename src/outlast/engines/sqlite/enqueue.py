"""enqueue: a batch of new tasks, whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlast.core.errors import BadInput
from outlast.core.graph import check_acyclic
from outlast.core.model import NewTask, Receipt
from outlast.core.states import FINAL, Ms, status_of
from outlast.engines.sqlite.ends import finish, unpark
from outlast.engines.sqlite.tx import ENQUEUE, Tx, encode


def enqueue(tx: Tx, tasks: Sequence[NewTask]) -> list[Receipt]:
    """Insert what is not there yet; the receipts, in order."""
    known = {task_id for (task_id,) in tx.rows(ENQUEUE["known"], (_ids(tasks),))}
    seq = tx.value(ENQUEUE["last_seq"])
    receipts: list[Receipt] = []
    rows: list[tuple[Any, ...]] = []
    bodies: list[tuple[int, bytes, bytes]] = []
    edges: list[tuple[NewTask, int]] = []
    batch: dict[str, int] = {}
    for task in tasks:
        if task.id in known:
            receipts.append(Receipt(task.id, True))
            continue
        if task.unique_key is not None:
            holder = _reserve(tx, task)
            if holder is not None:
                receipts.append(holder)
                continue
        known.add(task.id)
        seq += 1
        batch[task.id] = seq
        receipts.append(Receipt(task.id, False, task.digest))
        due = task.run_at if task.run_at is not None else tx.now + task.delay_ms
        parked, wake_at, rank = ("deps", None, due) if task.after else _place(tx, task, due)
        rows.append(_row(tx, task, due, parked, wake_at, rank))
        bodies.append((seq, task.payload, task.meta))
        for tag in task.tags:
            tx.execute(ENQUEUE["add_label"], ("tag", tag, seq))
        for name, value in task.attrs:
            tx.execute(ENQUEUE["add_label"], (f"attr.{name}", value, seq))
        if task.after:
            edges.append((task, seq))
        elif task.followed:
            status = status_of("pending", parked, task.lane, None, tx.now)
            tx.log_new(seq, task.id, task.session_id, task.workflow_id, status)
        if parked != "deps":
            tx.topics.add(f"queue:{task.queue}")
    if rows:
        tx.executemany(ENQUEUE["add"], rows)
        tx.executemany(ENQUEUE["add_body"], bodies)
    if edges:
        _connect(tx, edges, batch)
    return receipts


def _ids(tasks: Sequence[NewTask]) -> str:
    return encode([task.id for task in tasks]).decode()


def _reserve(tx: Tx, task: NewTask) -> Receipt | None:
    """The unique key is the task's now, or the receipt of the task that has it."""
    row = tx.row(ENQUEUE["reserved"], (task.unique_key,))
    if row is not None and (row[1] is None or row[1] > tx.now):
        return Receipt(row[0], True, row[2])
    until = None if task.unique_for_ms is None else tx.now + task.unique_for_ms
    tx.execute(ENQUEUE["reserve"], (task.unique_key, task.id, until, task.digest))
    return None


def _place(tx: Tx, task: NewTask, due: Ms) -> tuple[str | None, Ms | None, int]:
    """Where a task with no upstream goes: (parked, wake_at, rank)."""
    if task.hold is not None:
        return f"signal:{task.hold}", None, due
    if due > tx.now:
        return "time", due, due
    parked = None
    for key, _units in task.limits:
        if tx.line_there(key, task.queue, task.lane):
            parked = f"limit:{key}"
            break
    return parked, None, tx.rank(task.queue, task.lane, task.fair_key, due)


def _row(
    tx: Tx, task: NewTask, due: Ms, parked: str | None, wake_at: Ms | None, rank: int
) -> tuple[Any, ...]:
    now = tx.now
    overdue_at = None if task.overdue_after_ms is None else due + task.overdue_after_ms
    return (
        task.id,
        task.type,
        task.queue,
        task.lane,
        task.priority,
        rank,
        parked,
        wake_at,
        1 if parked is not None and parked.startswith("signal:") else 0,
        task.needs,
        task.hold,
        task.max_attempts,
        task.max_losses,
        task.timeout_ms,
        task.overdue_after_ms,
        overdue_at,
        task.max_age_ms,
        None if task.max_age_ms is None else due + task.max_age_ms,
        due,
        now,
        now,
        encode(task.limits).decode() if task.limits else None,
        task.fair_key,
        task.session_id,
        task.user_id,
        task.parent_id,
        task.workflow_id,
        task.unique_key,
        encode(task.tags).decode() if task.tags else None,
        task.followed,
    )


def _connect(tx: Tx, edges: list[tuple[NewTask, int]], batch: dict[str, int]) -> None:
    """The edges of new tasks, to tasks of the batch or to older ones."""
    check_acyclic([task for task, _ in edges])
    wanted = {up for task, _ in edges for up in task.after}
    found = {
        row[1]: row for row in tx.rows(ENQUEUE["upstream"], (encode(sorted(wanted)).decode(),))
    }
    missing = wanted - found.keys()
    if missing:
        raise BadInput(f"after= names a task that does not exist: {min(missing)}", field="after")
    waiting: dict[int, int] = {}
    failed: set[int] = set()
    for task, down in edges:
        waiting[down] = 0
        for up_id in dict.fromkeys(task.after):
            up, _, state = found[up_id]
            over = state in FINAL
            tx.execute(ENQUEUE["add_edge"], (up, down, over))
            if not over:
                waiting[down] += 1
                tx.mark_awaited(up)
            elif state != "completed" and task.needs == "success":
                failed.add(down)
    tx.executemany(
        "update task set awaits = ? where seq = ?", [(n, seq) for seq, n in waiting.items()]
    )
    for task, down in edges:
        if task.followed:
            tx.log_new(down, task.id, task.session_id, task.workflow_id, "blocked")
    # One at a time: cancelling one may have cancelled the next.
    for down in sorted(waiting):
        [held] = tx.held_by_seq([down])
        if held.state != "pending":
            continue
        if down in failed:
            finish(tx, held, "cancelled", reason="upstream")
        elif waiting[down] == 0:
            unpark(tx, held)
