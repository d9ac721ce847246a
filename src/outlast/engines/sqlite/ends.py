"""How an attempt ends: a task is finished, or put back; limits freed, dependents told.

Every path that takes a task out of `running` or into a final state goes through here: outcomes,
cancels, evictions, expiry, resolving by hand.
"""

from __future__ import annotations

from typing import Any

from outlast.core import limits as gate
from outlast.core.model import Outcome
from outlast.core.states import Lane, Ms, State, Verdict, status_of
from outlast.engines._shared import done, history, with_error
from outlast.engines.sqlite.tx import (
    ENQUEUE,
    EXCHANGE,
    SETTLE_BUDGET,
    Held,
    Tx,
    encode,
    limits_of,
)

Over = tuple[int, bool]
"""An ended task, and whether it completed."""


def finish(
    tx: Tx,
    task: Held,
    state: State,
    *,
    reason: str | None = None,
    verdict: Verdict = "succeeded",
    outcome: Outcome | None = None,
    result: bytes | None = None,
    error: bytes | None = None,
    refund: bool = False,
    lost: bool = False,
    over: list[Over] | None = None,
) -> None:
    """Into a final state, with everything that follows from it. With `over`, to which it is added
    if it has dependents, the caller tells these."""
    was_running = task.state == "running"
    progress = fingerprint = None
    if outcome is not None:
        result, error = outcome.result, outcome.error
        progress, fingerprint = outcome.progress, outcome.fingerprint
    attempts = task.attempts
    if was_running:
        attempts = _history(tx, task, verdict, error)
        free(tx, task)
    refund = was_running and (lost or refund or (outcome is not None and outcome.refund))
    if lost:
        tx.execute("update task set losses = losses + 1 where seq = ?", (task.seq,))
    tx.execute(
        EXCHANGE["finish"],
        (
            state,
            reason,
            tx.now,
            result,
            _text(error),
            fingerprint,
            attempts,
            _text(progress),
            None if outcome is None else task.fence,
            refund,
            tx.now,
            task.seq,
        ),
    )
    if task.unique_key is not None:
        tx.execute(EXCHANGE["release_key"], (task.unique_key, task.id))
    if task.streamed and state != "completed":
        tx.log(task, "rollback", {"outcome": verdict})
    tx.log(task, "done", done(state, reason, verdict if was_running else None, error))
    if task.dependents or task.seq in tx.awaited:
        if over is None:
            settle(tx, [(task.seq, state == "completed")])
        else:
            over.append((task.seq, state == "completed"))


def put_back(
    tx: Tx,
    task: Held,
    *,
    verdict: Verdict,
    lane: Lane | None = None,
    delay_ms: int = 0,
    refund: bool = False,
    lost: bool = False,
    outcome: Outcome | None = None,
    error: bytes | None = None,
) -> None:
    """From running to pending again: ready, or parked on what the outcome says."""
    to_lane = lane or task.lane
    # A released task keeps its place in the line; everything else is due from now on.
    run_at = task.run_at if verdict == "released" and not delay_ms else tx.now + delay_ms
    aged_from = None if lane is None else run_at  # without a lane it was not begun: it ages on
    parked, wake_at, awaits, rank = "time" if delay_ms else None, tx.now + delay_ms, 0, run_at
    fingerprint = progress = timeout_ms = None
    if outcome is not None:
        error, fingerprint = outcome.error, outcome.fingerprint
        progress, timeout_ms = outcome.progress, outcome.timeout_ms
        if outcome.after:
            awaits = add_edges(tx, task, outcome.after)
            if awaits:
                parked = "deps"
        elif outcome.park is not None:
            name = outcome.park.removeprefix("signal:")
            come = tx.value(EXCHANGE["signals_named"], (task.seq, name)) if task.inbox else 0
            parked = outcome.park if come < outcome.awaits else None
            awaits = outcome.awaits if parked else 0
    if parked is None:
        rank = tx.rank(task.queue, to_lane, task.fair_key, run_at)
        tx.topics.add(f"queue:{task.queue}")
    due = wake_at if delay_ms and parked not in (None, "deps") else None
    free(tx, task)
    tx.execute(
        EXCHANGE["put_back"],
        (
            parked,
            due,
            awaits,
            to_lane,
            rank,
            run_at,
            refund,
            lost,
            _text(error),
            fingerprint,
            _history(tx, task, verdict, error),
            _text(progress),
            timeout_ms,
            aged_from,
            None if outcome is None else task.fence,
            tx.now,
            task.seq,
        ),
    )
    if task.streamed:
        tx.log(task, "rollback", {"outcome": verdict})
    if task.followed or verdict in ("failed", "timed_out", "stalled"):
        status = status_of("pending", parked, to_lane, None, tx.now)
        data: dict[str, Any] = {"status": status, "outcome": verdict}
        if due is not None:
            data["run_at"] = due
        tx.log(task, "state", with_error(data, error))


def give_back(
    tx: Tx, task: Held, *, verdict: Verdict, over: list[Over] | None = None, **back: Any
) -> None:
    """put_back, unless the task was to be cancelled: then that is what happens."""
    if task.cancel is None:
        put_back(tx, task, verdict=verdict, **back)
    else:
        finish(
            tx, task, "cancelled", reason=task.cancel, verdict=verdict,
            outcome=back.get("outcome"), refund=back.get("refund", False), over=over,
        )  # fmt: skip


def free(tx: Tx, task: Held) -> None:
    """Give back what the lease held."""
    for key, _units in limits_of(task.limits):
        gate.free(tx.gauge(key), task.id)
        tx.open_key(key)


def place(tx: Tx, task: Held, run_at: Ms) -> tuple[str | None, Ms | None, int, int]:
    """Where a pending task with no upstream left goes: (parked, wake_at, awaits, rank)."""
    if task.hold is not None:
        come = tx.value(EXCHANGE["signals_named"], (task.seq, task.hold)) if task.inbox else 0
        if not come:
            return f"signal:{task.hold}", None, 1, run_at
    if run_at > tx.now:
        return "time", run_at, 0, run_at
    for key, _units in limits_of(task.limits):
        if tx.line_there(key, task.queue, task.lane):
            tx.topics.add(f"queue:{task.queue}")
            return f"limit:{key}", None, 0, tx.rank(task.queue, task.lane, task.fair_key, run_at)
    tx.topics.add(f"queue:{task.queue}")
    return None, None, 0, tx.rank(task.queue, task.lane, task.fair_key, run_at)


def unpark(tx: Tx, task: Held) -> None:
    """What it was parked on is over."""
    parked, wake_at, awaits, rank = place(tx, task, task.run_at)
    tx.execute(EXCHANGE["place"], (parked, wake_at, awaits, rank, task.seq))


# dependencies ------------------------------------------------------------------------------------


def add_edges(tx: Tx, task: Held, after: tuple[str, ...]) -> int:
    """More upstream tasks, however they end; how many of them are not over yet."""
    open_edges = 0
    ups = {row[1]: row for row in tx.rows(ENQUEUE["upstream"], (encode(after).decode(),))}
    for up_id in after:
        up = ups.get(up_id)
        if up is None:
            continue  # forgotten: as good as over
        over = up[2] in ("completed", "cancelled", "dead")
        tx.execute(EXCHANGE["wait_for"], (up[0], task.seq, over))
        if not over:
            open_edges += 1
            tx.mark_awaited(up[0])
    tx.execute("update task set needs = 'any' where seq = ?", (task.seq,))
    return open_edges


def settle(tx: Tx, over: list[Over], budget: int = SETTLE_BUDGET) -> int:
    """Tell the dependents of ended tasks: so many upstreams less, or cancelled. How many were told.

    All together: one by one, an edge cost three statements, half of what a node of a graph cost.
    """
    told = 0
    while over:
        ok = dict(over)
        over = []
        room = max(budget - told, 0)
        edges = tx.rows(EXCHANGE["dependents"], (encode(list(ok)).decode(), room + 1))
        if len(edges) > room and len(ok) > 1:  # one that many wait for holds up nobody else's
            for each in ok.items():
                told += settle(tx, [each], max(min(SETTLE_BUDGET, budget - told), 0))
            break
        if len(edges) > room:
            tx.untold = True
            tx.execute(EXCHANGE["later"], (*ok,))
            edges = edges[:room]
        told += len(edges)
        tx.executemany(EXCHANGE["edge_done"], edges)
        ups_of: dict[int, list[int]] = {}
        for up, seq in edges:
            ups_of.setdefault(seq, []).append(up)
        waiting: list[tuple[int, int]] = []
        for down in tx.held_by_seq(ups_of):
            ups = ups_of[down.seq]
            if down.state != "pending" or down.parked != "deps":
                continue
            if down.needs == "success" and not all(ok[up] for up in ups):
                # Here settle() would recurse; the loop goes on with its dependents instead.
                finish(tx, down, "cancelled", reason="upstream", over=over)
            elif down.awaits > len(ups):
                waiting.append((down.awaits - len(ups), down.seq))
            else:
                unpark(tx, down)
        tx.executemany(EXCHANGE["set_awaits"], waiting)
    return told


# events ------------------------------------------------------------------------------------------


def _history(tx: Tx, task: Held, verdict: Verdict, error: bytes | None) -> str:
    return history(task, (task.attempts or "").encode(), verdict, error, tx.now).decode()


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
