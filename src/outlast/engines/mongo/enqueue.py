"""enqueue: a batch of new tasks, whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

from outlast.core.errors import BadInput
from outlast.core.graph import check_acyclic
from outlast.core.model import NewTask, Receipt
from outlast.core.states import status_of
from outlast.engines.mongo.documents import Doc, Pattern
from outlast.engines.mongo.ends import add_edge, finish, place, unpark
from outlast.engines.mongo.tx import Tx

CHUNK: Final = 250
"""New tasks that are sent to the server while the next ones are made."""

_kind: Final = attrgetter(
    *(field for field in NewTask.__struct_fields__ if field not in ("id", "payload", "meta"))
)


async def enqueue(tx: Tx, tasks: Sequence[NewTask]) -> list[Receipt]:
    """Insert what is not there yet; the receipts, in order."""
    # Most ids are new, and an insert would find out. Where none may come to pass, ask.
    if tx.careful:
        asked = [task.id for task in tasks]
    else:
        asked = [task.id for task in tasks if task.unique_key is not None or task.after]
    await tx.docs(asked)
    known = tx.known(task.id for task in tasks)
    await tx.load_reserved(t.unique_key for t in tasks if t.unique_key is not None)
    await tx.load_lines(key for t in tasks for key, _units in t.limits)
    await tx.load_ranks((t.queue, t.lane, t.fair_key) for t in tasks if t.fair_key is not None)
    receipts: list[Receipt] = []
    edges: list[tuple[NewTask, Doc]] = []
    patterns: dict[tuple[Any, ...], Pattern] = {}
    waited_for = {up for task in tasks for up in task.after}
    for task in tasks:
        if task.id in known:
            receipts.append(Receipt(task.id, True))
            continue
        if task.unique_key is not None:
            holder = await _reserve(tx, task, task.unique_key)
            if holder is not None:
                receipts.append(holder)
                continue
        known.add(task.id)
        receipts.append(Receipt(task.id, False, task.digest))
        kind = _kind(task)
        pattern = patterns.get(kind)
        if pattern is not None and task.id not in waited_for:
            tx.add_alike(pattern, task)
        else:
            doc = await _add(tx, task)
            if task.after:
                edges.append((task, doc))
            elif _is_plain(task):
                patterns[kind] = Pattern.of(doc, tx.now)
        if len(receipts) % CHUNK == 0 and not edges:
            await tx.send_new_soon()
    if edges:
        await _connect(tx, edges)
    return receipts


def _is_plain(task: NewTask) -> bool:
    """Ready at once, with nothing that others of its kind do not have."""
    return not (
        task.after or task.unique_key or task.fair_key or task.hold or task.limits
        or task.delay_ms or task.run_at is not None
    )  # fmt: skip


async def _add(tx: Tx, task: NewTask) -> Doc:
    doc = _new(tx, task)
    if task.after:
        doc.parked = "deps"
    else:
        doc.parked, doc.wake_at, doc.awaits, doc.rank = await place(tx, doc, doc.run_at)
        tx.topics.add(f"queue:{doc.queue}")
    tx.add(doc)
    if task.followed:
        tx.log(doc, "state", {"status": status_of("pending", doc.parked, doc.lane, None, tx.now)})
    return doc


async def _reserve(tx: Tx, task: NewTask, key: str) -> Receipt | None:
    """The unique key is the task's now, or the receipt of the task that has it."""
    holder = await tx.reserved(key)
    if holder is not None:
        return Receipt(holder["task_id"], True, holder.get("digest"))
    until = None if task.unique_for_ms is None else tx.now + task.unique_for_ms
    tx.reserve(key, task.id, until, task.digest)
    return None


def _new(tx: Tx, task: NewTask) -> Doc:
    due = task.run_at if task.run_at is not None else tx.now + task.delay_ms
    return Doc(
        id=task.id,
        seq=tx.next(),
        type=task.type,
        queue=task.queue,
        lane=task.lane,
        priority=task.priority,
        rank=due,
        needs=task.needs,
        hold=task.hold,
        max_attempts=task.max_attempts,
        max_losses=task.max_losses,
        timeout_ms=task.timeout_ms,
        overdue_after_ms=task.overdue_after_ms,
        overdue_at=None if task.overdue_after_ms is None else due + task.overdue_after_ms,
        overdue=False,
        max_age_ms=task.max_age_ms,
        expires_at=None if task.max_age_ms is None else due + task.max_age_ms,
        run_at=due,
        created_at=tx.now,
        updated_at=tx.now,
        limits=task.limits,
        fair_key=task.fair_key,
        session_id=task.session_id,
        user_id=task.user_id,
        parent_id=task.parent_id,
        workflow_id=task.workflow_id,
        unique_key=task.unique_key,
        unique_until=None if task.unique_for_ms is None else tx.now + task.unique_for_ms,
        tags=task.tags,
        attrs=task.attrs,
        followed=task.followed,
        payload=task.payload,
        meta=task.meta,
    )


async def _connect(tx: Tx, edges: list[tuple[NewTask, Doc]]) -> None:
    """The edges of new tasks, to tasks of the batch or to older ones."""
    check_acyclic([task for task, _ in edges])
    wanted = {up for task, _ in edges for up in task.after}
    ups = await tx.docs(sorted(wanted))
    missing = wanted - ups.keys()
    if missing:
        raise BadInput(f"after= names a task that does not exist: {min(missing)}", field="after")
    failed: set[str] = set()
    for task, down in edges:
        for up in dict.fromkeys(task.after):
            if add_edge(tx, ups[up], down):
                tx.change(down, awaits=down.awaits + 1)
            elif ups[up].state != "completed" and task.needs == "success":
                failed.add(down.id)
    # One at a time: cancelling one may have cancelled the next.
    for _, down in edges:
        if down.state != "pending":
            continue
        if down.id in failed:
            await finish(tx, down, "cancelled", reason="upstream")
        elif down.awaits == 0:
            await unpark(tx, down)
