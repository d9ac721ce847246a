"""How an attempt ends: a task is finished, or put back; limits freed, dependents told.

Every path that takes a task out of `running` or into a final state goes through here: outcomes,
cancels, evictions, expiry, resolving by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pymongo import UpdateOne

from outlast.core import limits as gate
from outlast.core.model import Outcome
from outlast.core.states import FINAL, Lane, Ms, State, Verdict, status_of
from outlast.engines._shared import done, history, with_error
from outlast.engines.mongo.documents import Doc
from outlast.engines.mongo.tx import SETTLE_BUDGET, Tx

EDGES: Final = 5_000
"""Edges that are read together for the outcomes of one turn, with the tasks that they lead to."""


async def finish(
    tx: Tx,
    task: Doc,
    state: State,
    *,
    reason: str | None = None,
    verdict: Verdict = "succeeded",
    outcome: Outcome | None = None,
    result: bytes | None = None,
    error: bytes | None = None,
    refund: bool = False,
    lost: bool = False,
) -> None:
    """Into a final state, with everything that follows from it."""
    if outcome is not None:
        result, error, refund = outcome.result, outcome.error, refund or outcome.refund
    await _end(tx, task, state, reason, verdict, outcome, result, error, refund, lost)
    if task.dependents:
        await settle(tx, [(task.id, state == "completed")])


async def _end(
    tx: Tx,
    task: Doc,
    state: State,
    reason: str | None,
    verdict: Verdict = "succeeded",
    outcome: Outcome | None = None,
    result: bytes | None = None,
    error: bytes | None = None,
    refund: bool = False,
    lost: bool = False,
) -> None:
    was_running, streamed = task.state == "running", task.streamed
    change: dict[str, Any] = {}
    if was_running:
        change["attempts"] = history(task, task.attempts, verdict, error, tx.now)
        if refund or lost:
            change["attempt"] = task.attempt - 1
        await free(tx, task)
    if lost:
        change["losses"] = task.losses + 1
    if error is not None:
        change["error"] = error
    if outcome is not None:
        change |= _told(outcome)
    if state == "completed":  # what went wrong before is in its history
        change |= {"error": None, "fingerprint": None}
    tx.change(
        task,
        state=state,
        parked=None,
        wake_at=None,
        awaits=0,
        fence=None,
        last_fence=None if outcome is None else task.fence,
        worker=None,
        cancel=None,
        streamed=False,
        reason=reason,
        result=result,
        completed_at=tx.now,
        updated_at=tx.now,
        version=task.version + 1,
        **change,
    )
    await tx.release(task, living=True)
    if streamed and state != "completed":
        tx.log(task, "rollback", {"outcome": verdict})
    tx.log(task, "done", done(state, reason, verdict if was_running else None, error))


async def put_back(
    tx: Tx,
    task: Doc,
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
    parked, awaits, rank = "time" if delay_ms else None, 0, run_at
    change: dict[str, Any] = {}
    if outcome is not None:
        error = outcome.error
        change |= _told(outcome)
        if outcome.timeout_ms is not None:
            change["timeout_ms"] = outcome.timeout_ms
        if outcome.after:
            awaits = await add_edges(tx, task, outcome.after)
            if awaits:
                parked = "deps"
        elif outcome.park is not None:
            come = await signals_named(tx, task, outcome.park.removeprefix("signal:"))
            parked = outcome.park if come < outcome.awaits else None
            awaits = outcome.awaits if parked else 0
    if parked is None:
        rank = await tx.rank(task.queue, to_lane, task.fair_key, run_at)
        tx.topics.add(f"queue:{task.queue}")
    due = tx.now + delay_ms if delay_ms and parked not in (None, "deps") else None
    await free(tx, task)
    if error is not None:
        change["error"] = error
    if task.max_age_ms is not None and lane is not None:  # without a lane it ages on
        change["expires_at"] = run_at + task.max_age_ms
    streamed = task.streamed
    tx.change(
        task,
        attempts=history(task, task.attempts, verdict, error, tx.now),
        state="pending",
        parked=parked,
        wake_at=due,
        awaits=awaits,
        lane=to_lane,
        rank=rank,
        run_at=run_at,
        attempt=task.attempt - refund,
        losses=task.losses + lost,
        fence=None,
        last_fence=None if outcome is None else task.fence,
        worker=None,
        cancel=None,
        streamed=False,
        hold=None,
        updated_at=tx.now,
        version=task.version + 1,
        **change,
    )
    if streamed:
        tx.log(task, "rollback", {"outcome": verdict})
    if task.followed or verdict in ("failed", "timed_out", "stalled"):
        status = status_of("pending", parked, to_lane, None, tx.now)
        data: dict[str, Any] = {"status": status, "outcome": verdict}
        if due is not None:
            data["run_at"] = due
        tx.log(task, "state", with_error(data, error))


async def give_back(tx: Tx, task: Doc, *, verdict: Verdict, **back: Any) -> None:
    """put_back, unless the task was to be cancelled: then that is what happens."""
    if task.cancel is None:
        await put_back(tx, task, verdict=verdict, **back)
    else:
        await finish(
            tx, task, "cancelled", reason=task.cancel, verdict=verdict,
            outcome=back.get("outcome"), refund=back.get("refund", False),
        )  # fmt: skip


async def load_limits(tx: Tx, tasks: Iterable[Doc]) -> None:
    """Read at once what freeing these tasks will ask for."""
    keys = {key for task in tasks for key, _units in task.limits}
    if keys:
        await tx.load_gauges(keys)
        await tx.load_lines(keys)


async def free(tx: Tx, task: Doc) -> None:
    """Give back what the lease held."""
    for key, _units in task.limits:
        gate.free(await tx.gauge(key), task.id)
        await tx.open_key(key)


async def signals_named(tx: Tx, task: Doc, name: str) -> int:
    """How many signals of a name have come for a task."""
    if not task.inbox:
        return 0
    query = {"_id.task": task.id, "name": {"$eq": name}}
    return len(await tx.select("signal", query, only=("_id",)))


async def place(tx: Tx, task: Doc, run_at: Ms) -> tuple[str | None, Ms | None, int, int]:
    """Where a pending task with no upstream left goes: (parked, wake_at, awaits, rank)."""
    if task.hold is not None and not await signals_named(tx, task, task.hold):
        return f"signal:{task.hold}", None, 1, run_at
    if run_at > tx.now:
        return "time", run_at, 0, run_at
    tx.topics.add(f"queue:{task.queue}")
    parked = None
    for key, _units in task.limits:
        if await tx.line_there(key, task.queue, task.lane):
            parked = f"limit:{key}"
            break
    return parked, None, 0, await tx.rank(task.queue, task.lane, task.fair_key, run_at)


async def unpark(tx: Tx, task: Doc) -> None:
    """What it was parked on is over."""
    parked, wake_at, awaits, rank = await place(tx, task, task.run_at)
    tx.change(
        task,
        parked=parked,
        wake_at=wake_at,
        awaits=awaits,
        rank=rank,
        version=task.version + 1,
    )


# dependencies ------------------------------------------------------------------------------------


def add_edge(tx: Tx, up: Doc, down: Doc) -> bool:
    """Down waits for up, or has it behind already; is there something to wait for?"""
    over = up.state in FINAL
    edge = {"_id": {"up": up.id, "down": down.id}}
    tx.write("edge", UpdateOne(edge, {"$set": {"done": over}}, upsert=True))
    if not over and up.id in tx.edges:
        tx.edges[up.id].add(down.id)
    if not up.dependents:
        # Counted, so that who runs it sees that it is no longer as it was claimed.
        tx.change(up, dependents=True, version=up.version + 1)
    return not over


async def add_edges(tx: Tx, task: Doc, after: tuple[str, ...]) -> int:
    """More upstream tasks, however they end; how many of them are not over yet."""
    ups = await tx.docs(after)  # one that is not there was forgotten: as good as over
    tx.change(task, needs="any")
    return sum(add_edge(tx, ups[up], task) for up in after if up in ups)


async def load_edges(tx: Tx, ups: Iterable[str]) -> None:
    """Read at once what `settle` will ask for about these, and the tasks that wait for them."""
    wanted = list(ups)
    if not wanted:
        return
    query = {"_id.up": {"$in": wanted}, "done": False}
    most = min(EDGES, SETTLE_BUDGET * len(wanted))
    edges = await tx.select("edge", query, sort=("_id.up",), limit=most + 1)
    found: dict[str, set[str]] = {up: set() for up in wanted} if len(edges) <= most else {}
    for edge in edges:
        found.setdefault(edge["_id"]["up"], set()).add(edge["_id"]["down"])
    if len(edges) > most:  # the last may have more: it and those not reached are read one by one
        del found[edges[-1]["_id"]["up"]]
    await tx.docs(down for downs in found.values() for down in downs)
    tx.edges = found


async def settle(tx: Tx, over: list[tuple[str, bool]], budget: int = SETTLE_BUDGET) -> int:
    """Tell the dependents of ended tasks: one upstream less, or cancelled. How many were told."""
    told = 0
    while over:
        up, ok = over.pop()
        room = max(budget - told, 0)
        if up in tx.edges:
            downs = sorted(tx.edges.pop(up))
        else:
            query = {"_id.up": up, "done": False}
            edges = await tx.select("edge", query, sort=("_id.down",), limit=room + 1)
            downs = [edge["_id"]["down"] for edge in edges]
        if len(downs) > room:
            tx.untold = True
            for task in (await tx.docs([up])).values():
                tx.change(task, unsettled=True)
            downs = downs[:room]
        if not downs:
            continue
        tx.tell_edges({"up": up, "down": down} for down in downs)
        told += len(downs)
        for task in (await tx.docs(downs)).values():
            if task.state != "pending" or task.parked != "deps":
                continue
            if not ok and task.needs == "success":
                await _end(tx, task, "cancelled", "upstream")
                if task.dependents:
                    over.append((task.id, False))
            elif task.awaits > 1:
                tx.change(task, awaits=task.awaits - 1)
            else:
                await unpark(tx, task)
    return told


# events ------------------------------------------------------------------------------------------


def _told(outcome: Outcome) -> dict[str, Any]:
    """What an outcome adds to the record, if it says something about it."""
    told = {"fingerprint": outcome.fingerprint, "progress": outcome.progress}
    return {field: value for field, value in told.items() if value is not None}
