"""alter: what people and programs do to a task from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

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
from outlast.engines.sqlite.db import sql
from outlast.engines.sqlite.ends import finish, place, settle, unpark
from outlast.engines.sqlite.tx import ENQUEUE, EXCHANGE, Held, Tx

ALTER: Final = sql("alter.sql")
EVERYTHING: Final = 1 << 60


def alter(tx: Tx, ids: Sequence[str], change: Change) -> list[Altered]:
    """One answer per id, in order."""
    answers = []
    for task_id in ids:
        task = tx.held([task_id]).get(task_id)
        if task is None:
            answers.append(Altered(task_id, False, "not_found"))
            continue
        why = _change(tx, task, change)
        state = task.state
        answers.append(Altered(task_id, why is None, why, state))  # type: ignore[arg-type]
    return answers


def _change(tx: Tx, task: Held, change: Change) -> str | None:
    """Apply it, or say why not."""
    match change:
        case Cancel():
            return _cancel(tx, task, change.reason)
        case Redrive():
            return _redrive(tx, task, change)
        case Reschedule():
            return _reschedule(tx, task, change)
        case Reprioritize():
            if task.state != "pending":
                return "state"
            tx.execute(ALTER["reprioritize"], (change.priority, tx.now, task.seq))
        case EditPayload():
            if task.state in ("running", "completed"):
                return "state"
            edit(tx, task, change.payload, change.attrs)
        case Resolve():
            if task.state not in ("pending", "dead"):
                return "state"
            if task.state == "dead":
                _restore_dependents(tx, task)
                task.dependents = 1
            finish(tx, task, "completed", reason=change.reason, result=change.result)
        case Signal():
            return _signal(tx, task, change)
        case Forget():
            if task.state == "running":
                return "state"
            forget(tx, task)
        case _:
            assert_never(change)
    return None


def _cancel(tx: Tx, task: Held, reason: str) -> str | None:
    if task.state in FINAL:
        return "state"
    if task.state == "running":
        tx.execute(ALTER["ask_to_stop"], (reason, reason, tx.now, task.seq))
        tx.topics.add(f"worker:{task.worker}")
    else:
        finish(tx, task, "cancelled", reason=reason)
    return None


def edit(tx: Tx, task: Held, payload: bytes, attrs: tuple[tuple[str, str], ...] | None) -> None:
    tx.execute(ALTER["edit"], (payload, task.seq))
    tx.execute(ALTER["edited"], (tx.now, task.seq))
    if attrs is not None:
        tx.execute(ALTER["drop_attrs"], (task.seq,))
        for name, value in attrs:
            tx.execute(ENQUEUE["add_label"], (f"attr.{name}", value, task.seq))


def _redrive(tx: Tx, task: Held, change: Redrive) -> str | None:
    retrying = task.state == "pending" and task.parked == "time" and task.lane == "retry"
    if task.state not in ("dead", "cancelled") and not retrying:
        return "state"
    if retrying:
        if change.payload is not None:
            edit(tx, task, change.payload, change.attrs)
        return _reschedule(tx, task, Reschedule(delay_ms=change.delay_ms))
    if not _retakes_key(tx, task):
        return "unique"
    if change.payload is not None:
        edit(tx, task, change.payload, change.attrs)
    _revive(tx, task, tx.now + change.delay_ms)
    _restore_dependents(tx, task)
    return None


def _retakes_key(tx: Tx, task: Held) -> bool:
    """Is its unique key the task's again? Not when another has taken it meanwhile."""
    if task.unique_key is None:
        return True
    holder = tx.row(ENQUEUE["reserved"], (task.unique_key,))
    if holder is not None and (holder[1] is None or holder[1] > tx.now):
        return bool(holder[0] == task.id)
    tx.execute(ENQUEUE["reserve"], (task.unique_key, task.id, None, None))
    return True


def _revive(tx: Tx, task: Held, run_at: Ms) -> None:
    """Pending again, in the retry lane, with fresh budgets; the history stays."""
    task.lane = "retry"
    open_edges = tx.value(ALTER["open_edges"], (task.seq,))
    if open_edges:
        parked, wake_at, awaits, rank = "deps", None, open_edges, run_at
    else:
        parked, wake_at, awaits, rank = place(tx, task, run_at)  # type: ignore[assignment]
    tx.execute(
        ALTER["revive"],
        (parked, wake_at, awaits, rank, run_at, run_at, run_at, tx.now, task.seq),
    )
    status = status_of("pending", parked, "retry", None, tx.now)
    tx.log(task, "state", {"status": status, "redriven": True})


def _restore_dependents(tx: Tx, task: Held) -> None:
    """Those that its end had cancelled wait for it again; those that still wait, wait for it too.

    A dependent stays cancelled while another of its upstreams is dead or cancelled, and when its
    unique key has been taken meanwhile. One may have fallen before this upstream has told it.
    """
    restored = [task.seq]
    while restored:
        up = restored.pop()
        tx.execute(ALTER["forget_unsettled"], (up,))
        told = dict(tx.rows(ALTER["dependents"], (up,)))
        for down in tx.held_by_seq(told):
            if down.state == "pending" and down.parked == "deps":
                if not told[down.seq]:
                    continue
                tx.execute(ALTER["undo_edge"], (up, down.seq))
                tx.execute(ALTER["mark_upstreams"], (down.seq,))
                tx.execute(EXCHANGE["set_awaits"], (down.awaits + 1, down.seq))
            elif down.state == "cancelled" and _restored(tx, down, task.seq, up):
                restored.append(down.seq)


def _restored(tx: Tx, down: Held, first: int, up: int) -> bool:
    reason = tx.value("select reason from task where seq = ?", (down.seq,))
    if reason != "upstream" or tx.value(ALTER["failed_upstreams"], (down.seq, first, up)):
        return False
    if not _retakes_key(tx, down):
        return False
    tx.execute(ALTER["redo_edges"], (first, up, down.seq))
    # It may have come when they were over already, and none of them expected to tell it.
    tx.execute(ALTER["mark_upstreams"], (down.seq,))
    awaits = tx.value(ALTER["open_edges"], (down.seq,))
    tx.execute(ALTER["restore"], (awaits, tx.now, down.seq))
    tx.log(down, "state", {"status": "blocked", "redriven": True})
    return True


def _reschedule(tx: Tx, task: Held, change: Reschedule) -> str | None:
    if task.state != "pending" or task.parked not in (None, "time"):
        return "state"
    run_at = change.run_at if change.run_at is not None else tx.now + change.delay_ms
    task.hold = None
    parked, wake_at, _, rank = place(tx, task, run_at)
    tx.execute(
        ALTER["reschedule"], (parked, wake_at, rank, run_at, run_at, run_at, tx.now, task.seq)
    )
    if task.followed:
        status = status_of("pending", parked, task.lane, None, tx.now)
        tx.log(task, "state", {"status": status, "run_at": run_at})
    return None


def _signal(tx: Tx, task: Held, signal: Signal) -> str | None:
    if task.state in FINAL:
        return "state"
    tx.execute(ALTER["add_signal"], (task.seq, task.seq, signal.name, signal.data, tx.now))
    tx.execute(ALTER["got_signal"], (tx.now, task.seq))
    task.inbox = 1
    tx.log(task, "signal", {"name": signal.name})
    if task.state == "pending" and task.parked == f"signal:{signal.name}":
        come = tx.value(EXCHANGE["signals_named"], (task.seq, signal.name))
        if come >= task.awaits:
            if task.hold is None:
                task.run_at = tx.now  # it waited in the middle of its work: go on at once
            task.hold = None
            tx.execute(ALTER["drop_hold"], (task.seq,))
            unpark(tx, task)
    return None


def forget(tx: Tx, task: Held) -> None:
    """A task and all that belongs to it; who waits for it is told first."""
    if task.state not in FINAL:
        finish(tx, task, "cancelled", reason="forgotten")
    if task.dependents:
        settle(tx, [(task.seq, task.state == "completed")], budget=EVERYTHING)
    tx.write_events()
    for name in (
        "forget_task", "forget_body", "forget_labels", "forget_up", "forget_down",
        "forget_unsettled", "forget_signals", "forget_steps", "forget_events",
    ):  # fmt: skip
        tx.execute(ALTER[name], (task.seq,))
    if task.unique_key is not None:
        tx.execute(ALTER["forget_keys"], (task.unique_key, task.id))
    tx.topics.add(f"task:{task.id}")
