"""alter: what people and programs do to a task from outside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, assert_never

from pymongo import DeleteMany, InsertOne, UpdateMany, UpdateOne

from outlast.core.model import (
    Altered,
    Cancel,
    Change,
    EditPayload,
    Forget,
    Redrive,
    Reprioritize,
    Reschedule,
    Resolve,
    Signal,
)
from outlast.core.states import FINAL, Ms, status_of
from outlast.engines.mongo.documents import Doc
from outlast.engines.mongo.ends import finish, place, settle, signals_named, unpark
from outlast.engines.mongo.schema import Document
from outlast.engines.mongo.tx import Tx

EVERYTHING: Final = 1 << 30


async def alter(tx: Tx, ids: Sequence[str], change: Change) -> list[Altered]:
    """One answer per id, in order."""
    answers = []
    for task_id in ids:
        task = (await tx.docs([task_id])).get(task_id)
        if task is None:
            answers.append(Altered(task_id, False, "not_found"))
            continue
        state = task.state
        why = await _change(tx, task, change)
        answers.append(Altered(task_id, why is None, why, state))  # type: ignore[arg-type]
    return answers


async def _change(tx: Tx, task: Doc, change: Change) -> str | None:
    """Apply it, or say why not."""
    match change:
        case Cancel():
            return await _cancel(tx, task, change.reason)
        case Redrive():
            return await _redrive(tx, task, change)
        case Reschedule():
            return await _reschedule(tx, task, change)
        case Reprioritize():
            if task.state != "pending":
                return "state"
            changed(tx, task, priority=change.priority)
        case EditPayload():
            if task.state in ("running", "completed"):
                return "state"
            edit(tx, task, change.payload, change.attrs)
        case Resolve():
            if task.state not in ("pending", "dead"):
                return "state"
            if task.state == "dead":
                await _restore_dependents(tx, task)
                tx.change(task, dependents=True)
            await finish(tx, task, "completed", reason=change.reason, result=change.result)
        case Signal():
            return await _signal(tx, task, change)
        case Forget():
            if task.state == "running":
                return "state"
            await forget(tx, task)
        case _:
            assert_never(change)
    return None


def changed(tx: Tx, task: Doc, **fields: Any) -> None:
    """A change that the record shows as one."""
    tx.change(task, updated_at=tx.now, version=task.version + 1, **fields)


async def _cancel(tx: Tx, task: Doc, reason: str) -> str | None:
    if task.state in FINAL:
        return "state"
    if task.state == "running":
        changed(tx, task, cancel=reason, reason=reason)
        tx.write("worker", UpdateOne({"_id": task.worker}, {"$set": {"stop": True}}))
        tx.topics.add(f"worker:{task.worker}")
    else:
        await finish(tx, task, "cancelled", reason=reason)
    return None


def edit(tx: Tx, task: Doc, payload: bytes, attrs: tuple[tuple[str, str], ...] | None) -> None:
    changed(tx, task, payload=payload)
    if attrs is not None:
        tx.change(task, attrs=attrs)


async def _redrive(tx: Tx, task: Doc, change: Redrive) -> str | None:
    retrying = task.state == "pending" and task.parked == "time" and task.lane == "retry"
    if task.state not in ("dead", "cancelled") and not retrying:
        return "state"
    if retrying:
        if change.payload is not None:
            edit(tx, task, change.payload, change.attrs)
        return await _reschedule(tx, task, Reschedule(delay_ms=change.delay_ms))
    if not await _retakes_key(tx, task):
        return "unique"
    if change.payload is not None:
        edit(tx, task, change.payload, change.attrs)
    await _revive(tx, task, tx.now + change.delay_ms)
    await _restore_dependents(tx, task)
    return None


async def _retakes_key(tx: Tx, task: Doc) -> bool:
    """Is its unique key the task's again? Not when another has taken it meanwhile."""
    if task.unique_key is None:
        return True
    holder = await tx.reserved(task.unique_key)
    if holder is None:
        tx.reserve(task.unique_key, task.id, None, None)
    return holder is None or bool(holder["task_id"] == task.id)


async def _revive(tx: Tx, task: Doc, run_at: Ms) -> None:
    """Pending again, in the retry lane, with fresh budgets; the history stays."""
    tx.change(task, lane="retry")
    awaits = len(await tx.select("edge", {"_id.down": task.id, "done": False}))
    parked: str | None
    if awaits:
        parked, wake_at, rank = "deps", None, run_at
    else:
        parked, wake_at, awaits, rank = await place(tx, task, run_at)
    changed(
        tx,
        task,
        state="pending",
        parked=parked,
        wake_at=wake_at,
        awaits=awaits,
        rank=rank,
        attempt=0,
        losses=0,
        completed_at=None,
        reason=None,
        result=None,
        last_fence=None,
        **_due(task, run_at),
        overdue=False,
    )
    status = status_of("pending", parked, "retry", None, tx.now)
    tx.log(task, "state", {"status": status, "redriven": True})


def _due(task: Doc, run_at: Ms) -> dict[str, Any]:
    """When it is due, and what hangs on that."""
    due: dict[str, Any] = {"run_at": run_at}
    if task.overdue_after_ms is not None:
        due["overdue_at"] = run_at + task.overdue_after_ms
    if task.max_age_ms is not None:
        due["expires_at"] = run_at + task.max_age_ms
    return due


async def _restore_dependents(tx: Tx, task: Doc) -> None:
    """Those that its end had cancelled wait for it again; those that still wait, wait for it too.

    A dependent stays cancelled while another of its upstreams is dead or cancelled, and when its
    unique key has been taken meanwhile. One may have fallen before this upstream has told it.
    """
    restored = [task.id]
    while restored:
        up = restored.pop()
        for doc in (await tx.docs([up])).values():
            tx.change(doc, unsettled=None)
        edges = await tx.select("edge", {"_id.up": up}, sort=("_id.down",))
        downs = await tx.docs([edge["_id"]["down"] for edge in edges])
        upstream = await _upstream(tx, downs)
        await tx.load_reserved(d.unique_key for d in downs.values() if d.unique_key is not None)
        done: dict[bool, list[Document]] = {True: [], False: []}
        for down in downs.values():
            ups = upstream[down.id]
            if down.state == "pending" and down.parked == "deps" and ups[up]:
                ups[up] = False
                tx.change(down, awaits=down.awaits + 1)
            elif down.state == "cancelled" and await _restorable(tx, down, ups, {task.id, up}):
                await _restore(tx, down, ups, {task.id, up})
                if down.dependents:
                    restored.append(down.id)
            else:
                continue
            for this, over in ups.items():
                done[over].append({"up": this, "down": down.id})
        for over, names in done.items():
            if names:
                tx.write("edge", UpdateMany({"_id": {"$in": names}}, {"$set": {"done": over}}))


async def _upstream(tx: Tx, downs: Iterable[str]) -> dict[str, dict[str, bool]]:
    """What each of some tasks waits for: upstream -> told already. Those are read as well."""
    found: dict[str, dict[str, bool]] = {down: {} for down in downs}
    for edge in await tx.select("edge", {"_id.down": {"$in": list(found)}}):
        found[edge["_id"]["down"]][edge["_id"]["up"]] = edge["done"]
    await tx.docs({up for ups in found.values() for up in ups})
    return found


async def _restorable(tx: Tx, down: Doc, ups: dict[str, bool], redriven: set[str]) -> bool:
    """May it live again? Then its unique key is its own."""
    if down.reason != "upstream":
        return False
    others = await tx.docs(up for up in ups if up not in redriven)
    if any(other.state in ("dead", "cancelled") for other in others.values()):
        return False
    return await _retakes_key(tx, down)


async def _restore(tx: Tx, down: Doc, ups: dict[str, bool], redriven: set[str]) -> None:
    for up in (await tx.docs(ups)).values():
        ups[up.id] = up.id not in redriven and up.state in FINAL
    awaits = sum(not over for over in ups.values())
    changed(
        tx, down, state="pending", parked="deps", wake_at=None, awaits=awaits, completed_at=None,
        reason=None,
    )  # fmt: skip
    tx.log(down, "state", {"status": "blocked", "redriven": True})


async def _reschedule(tx: Tx, task: Doc, change: Reschedule) -> str | None:
    if task.state != "pending" or task.parked not in (None, "time"):
        return "state"
    run_at = change.run_at if change.run_at is not None else tx.now + change.delay_ms
    tx.change(task, hold=None)
    parked, wake_at, _, rank = await place(tx, task, run_at)
    changed(
        tx, task, parked=parked, wake_at=wake_at, awaits=0, rank=rank,
        **_due(task, run_at),
    )  # fmt: skip
    if task.followed:
        status = status_of("pending", parked, task.lane, None, tx.now)
        tx.log(task, "state", {"status": status, "run_at": run_at})
    return None


async def _signal(tx: Tx, task: Doc, signal: Signal) -> str | None:
    if task.state in FINAL:
        return "state"
    come: Document = {"_id": {"task": task.id, "n": tx.next()}}
    come |= {"name": signal.name, "data": signal.data, "at": tx.now}
    tx.write("signal", InsertOne(come))
    changed(tx, task, inbox=True)
    tx.log(task, "signal", {"name": signal.name})
    if task.state != "pending" or task.parked != f"signal:{signal.name}":
        return None
    if await signals_named(tx, task, signal.name) >= task.awaits:
        if task.hold is None:
            tx.change(task, run_at=tx.now)  # it waited in the middle of its work: go on at once
        tx.change(task, hold=None)
        await unpark(tx, task)
    return None


async def forget(tx: Tx, task: Doc) -> None:
    """A task and all that belongs to it; who waits for it is told first."""
    if task.state not in FINAL:
        await finish(tx, task, "cancelled", reason="forgotten")
    if task.dependents:
        await settle(tx, [(task.id, task.state == "completed")], budget=EVERYTHING)
    await tx.write_events()
    for up in ("_id.up", "_id.down"):
        tx.write("edge", DeleteMany({up: task.id}))
    tx.write("event", DeleteMany({"task": task.id}))
    if task.inbox:
        tx.write("signal", DeleteMany({"_id.task": task.id}))
    if task.steps:
        tx.write("step", DeleteMany({"_id.task": task.id}))
    await tx.release(task, living=False)
    tx.remove(task)
    tx.topics.add(f"task:{task.id}")
