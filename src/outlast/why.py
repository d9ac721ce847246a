"""Why a task is not running: the one thing it waits for, how long, and what would change it.

For a task that is over, where its time went.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from outlast.app import Outlast
from outlast.budgets import Use, use_of
from outlast.core.budgets import is_budget
from outlast.core.durations import say_ms
from outlast.core.limits import Limit
from outlast.core.model import EventQuery, Task, TaskId, TaskQuery, Term, WorkerView
from outlast.core.states import FINAL, Ms
from outlast.ops import RATE_WINDOW_MS, is_paused
from outlast.stream import fetch, so_far
from outlast.views import View, iso

Sees = Callable[[Task], bool]

_SHOWN: Final = 5  # names in a sentence; the rest is a number


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. `waits_for` is stable and for programs, `text` and `action` are for people."""

    task: Task
    waits_for: str | None
    """`time`, `dependencies`, `signal`, `queue_paused`, `limit_paused`, `circuit`, `probe`,
    `slots`, `rate`, `budget`, `no_worker`, `no_worker_for_queue`, `no_worker_for_type`, `turn`;
    None when it runs or is over."""
    text: str
    action: str | None = None
    until: Ms | None = None
    """When that is over, where it is known."""
    estimate_ms: int | None = None
    """How long until it starts, where that can be told."""
    holders: tuple[TaskId, ...] = ()
    """The tasks in its way: those that hold the limit, or that must end before."""
    ahead: int | None = None
    spent_ms: dict[str, int] | None = None
    """Where the time of a finished task went: `waited`, `throttled`, `retried`, `ran`."""


def why_view(why: Why) -> View:
    return {
        "task_id": why.task.id,
        "status": why.task.status,
        "waits_for": why.waits_for,
        "text": why.text,
        "action": why.action,
        "until": iso(why.until),
        "estimate_seconds": None if why.estimate_ms is None else why.estimate_ms / 1000,
        "holders": why.holders,
        "ahead": why.ahead,
        "spent": why.spent_ms and {name: ms / 1000 for name, ms in why.spent_ms.items()},
    }


async def why(app: Outlast, task_id: TaskId, sees: Sees | None = None) -> Why:
    """The one thing this task waits for. Other tasks are named only if whoever asks `sees` them."""
    task = await fetch(app.engine, task_id)
    now = await app.engine.now()
    if task.state in FINAL:
        return await _where_time_went(app, task)
    if task.state == "running":
        return _running(task, now)
    if task.parked == "time" and task.run_at > now:
        return await _given_back(app, task) or _on_time(task, now)
    if task.parked == "deps":
        return await _on_dependencies(app, task, sees)
    if task.parked is not None and task.parked.startswith("signal:"):
        name = task.parked.partition(":")[2]
        return Why(
            task=task,
            waits_for="signal",
            text=f"It waits for the signal {name!r}.",
            action=f"Send it: POST /tasks/{task.id}/signal/{name}",
        )
    if any(is_paused(record) for record in await app.engine.get("queue", [task.queue])):
        return Why(
            task=task,
            waits_for="queue_paused",
            text=f"Its queue {task.queue!r} is paused.",
            action=f"Resume it: POST /queues/{task.queue}/resume",
        )
    if task.parked is not None and task.parked.startswith("limit:"):
        return await _on_limit(app, task, task.parked.partition(":")[2], now, sees)
    return await _in_line(app, task, now)


def _running(task: Task, now: Ms) -> Why:
    if task.status == "stalled":
        return Why(
            task=task,
            waits_for=None,
            text=f"Its worker {task.worker} has not been heard of since its lease ended; the next"
            " sweep of any worker gives the task to another one.",
            action="Recover it now: POST /tasks/requeue-orphaned",
        )
    text = f"It runs on {task.worker} for {say_ms(now - (task.started_at or now))}."
    if task.reason:
        text += f" It was asked to stop: {task.reason}."
    return Why(task=task, waits_for=None, text=text)


async def _given_back(app: Outlast, task: Task) -> Why | None:
    """Workers that do not know its type hand it back for a while: that is what it waits for."""
    attempts = msgspec.json.decode(task.attempts)
    if not attempts or attempts[-1]["outcome"] != "released":
        return None
    return _missing_worker(task, [w for w in await app.engine.workers() if w.alive])


def _on_time(task: Task, now: Ms) -> Why:
    left_ms = task.run_at - now
    if task.status == "retrying":
        text = f"Attempt {task.attempt} of {task.max_attempts} failed; the next one is due"
        action = f"Try now: POST /tasks/{task.id}/retry"
    else:
        text, action = "It is scheduled: due", None
    return Why(
        task=task,
        waits_for="time",
        text=f"{text} in {say_ms(left_ms)}.",
        action=action,
        until=task.run_at,
        estimate_ms=left_ms,
    )


async def _on_dependencies(app: Outlast, task: Task, sees: Sees | None) -> Why:
    found = await app.engine.tasks(TaskQuery.of(id=task.after, limit=len(task.after) or 1))
    living = [up for up in found.items if up.state not in FINAL]
    seen = [up for up in living if sees is None or sees(up)]
    shown = _listed([f"{up.type} {up.id} ({up.status})" for up in seen], len(living))
    return Why(
        task=task,
        waits_for="dependencies",
        text=f"It waits for {shown}." if living else "Its upstream tasks have just ended.",
        action=f"Ask why of the first: GET /tasks/{seen[0].id}/why" if seen else None,
        holders=tuple(up.id for up in seen),
    )


async def _on_limit(app: Outlast, task: Task, key: str, now: Ms, sees: Sees | None) -> Why:
    gauges = await app.engine.gauges([key])
    gauge = gauges[0] if gauges else None
    if gauge is None:
        return Why(task=task, waits_for="slots", text=f"The limit {key!r} was full until just now.")
    change = f"Change the limit: PUT /limits/{key}"
    if is_budget(key):
        return _on_budget(task, use_of(gauge, now), now)
    if gauge.paused_until is not None and gauge.paused_until > now:
        return _until(
            task, "limit_paused", gauge.paused_until, now, change,
            f"The limit {key!r} is paused for everyone: the service asked for a break.",
        )  # fmt: skip
    if gauge.circuit == "open" and gauge.open_until is not None:
        return _until(
            task, "circuit", gauge.open_until, now, change,
            f"The circuit of {key!r} is open: too many attempts failed. Then one task probes.",
        )  # fmt: skip
    if gauge.circuit == "half_open" and gauge.probe:
        seen = await _seen(app, (gauge.probe,), sees)
        who = f"task {gauge.probe}" if seen else "another task"
        return Why(
            task=task,
            waits_for="probe",
            text=f"The circuit of {key!r} is half open: {who} probes the service.",
            holders=seen,
        )
    limit = None if gauge.limit is None else Limit.from_json(msgspec.json.decode(gauge.limit))
    if limit is not None and limit.slots is not None and gauge.used >= limit.slots:
        seen = await _seen(app, gauge.holders, sees)
        return Why(
            task=task,
            waits_for="slots",
            text=f"All {limit.slots} slots of {key!r} are taken, by {_listed(seen, gauge.used)};"
            f" {gauge.waiting} tasks wait for one.",
            action=change,
            holders=seen,
        )
    if limit is not None and limit.rate is not None:
        # Every waiter before it takes a unit: at most that many periods of one unit.
        each_ms = limit.rate_period_ms / limit.rate_units
        return Why(
            task=task,
            waits_for="rate",
            text=f"The limit {key!r} lets {limit.rate} pass; {gauge.waiting} tasks wait for it.",
            action=change,
            estimate_ms=round(each_ms * max(gauge.waiting, 1)),
        )
    return await _in_line(app, task, now)


async def _seen(app: Outlast, ids: tuple[TaskId, ...], sees: Sees | None) -> tuple[TaskId, ...]:
    """Those of the tasks that whoever asks may know of."""
    if sees is None or not ids:
        return ids
    found = await app.engine.tasks(TaskQuery.of(id=ids, limit=len(ids)))
    seen = {task.id for task in found.items if sees(task)}
    return tuple(id for id in ids if id in seen)


def _listed(names: Sequence[str], total: int) -> str:
    """The first of them, and how many there are besides."""
    shown = names[:_SHOWN]
    more = total - len(shown)
    if not shown:
        return f"{more} other {'task' if more == 1 else 'tasks'}"
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _on_budget(task: Task, used: Use | None, now: Ms) -> Why:
    """It waits for money, or for tokens."""
    if used is None:
        return Why(task=task, waits_for="budget", text="Its budget was used up until just now.")
    until = used.resets_at
    span = "" if used.span == "total" else f" a {used.span}"
    anew = f" It begins anew in {say_ms(until - now)}." if until is not None else ""
    return Why(
        task=task,
        waits_for="budget",
        text=f"The budget {used.key!r} is used up: {used.used:,} of {used.amount:,}"
        f" ({used.measure}){span}.{anew}",
        action=f"Raise it: PUT /budgets/{used.defined}",
        until=until,
        estimate_ms=None if until is None else until - now,
    )


def _until(task: Task, what: str, until: Ms, now: Ms, action: str, text: str) -> Why:
    return Why(
        task=task,
        waits_for=what,
        text=f"{text} It ends in {say_ms(until - now)}.",
        action=action,
        until=until,
        estimate_ms=until - now,
    )


async def _in_line(app: Outlast, task: Task, now: Ms) -> Why:
    """Ready: somebody has to come for it."""
    alive = [worker for worker in await app.engine.workers() if worker.alive]
    ahead = sum(count.n for count in await app.engine.count(TaskQuery.of(ahead_of=task.id)))
    missing = _missing_worker(task, alive)
    if missing is not None:
        return msgspec.structs.replace(missing, ahead=ahead)
    finished = TaskQuery(
        terms=(Term("queue", (task.queue,)), Term("completed_at", (now - RATE_WINDOW_MS,), ">"))
    )
    done = sum(count.n for count in await app.engine.count(finished))
    estimate_ms = round((ahead + 1) * RATE_WINDOW_MS / done) if done else None
    tasks = "task is" if ahead == 1 else "tasks are"
    pace = f" {done} ended in the last minute." if done else ""
    return Why(
        task=task,
        waits_for="turn",
        text=f"It is ready: {ahead} {tasks} ahead of it in queue {task.queue!r}.{pace}",
        action="Start more workers, or give it a lower priority number." if ahead else None,
        estimate_ms=estimate_ms if ahead else 0,
        ahead=ahead,
    )


def _missing_worker(task: Task, alive: Sequence[WorkerView]) -> Why | None:
    serving = [worker for worker in alive if task.queue in worker.info.queues]
    if not alive:
        what, text = "no_worker", "No worker is alive."
    elif not serving:
        what, text = "no_worker_for_queue", f"No live worker serves the queue {task.queue!r}."
    elif not any(task.type in worker.info.types for worker in serving):
        what = "no_worker_for_type"
        text = f"No live worker of queue {task.queue!r} knows the type {task.type!r}."
    else:
        return None
    action = f"Start one: outlast worker -q {task.queue}"
    return Why(task=task, waits_for=what, text=text, action=action)


async def _where_time_went(app: Outlast, task: Task) -> Why:
    spent = spent_ms(task, await _throttled_ms(app, task))
    total = (task.completed_at or task.updated_at) - task.created_at
    parts = ", ".join(f"{name} {say_ms(ms)}" for name, ms in spent.items() if ms)
    because = f" ({task.reason})" if task.reason else ""
    action = None if task.state == "completed" else f"Run it again: POST /tasks/{task.id}/retry"
    return Why(
        task=task,
        waits_for=None,
        text=f"It is {task.state}{because} after {say_ms(total)}: {parts or 'at once'}.",
        action=action,
        spent_ms=spent,
    )


def spent_ms(task: Task, throttled_ms: int) -> dict[str, int]:
    """Where the time went. `retried` is what lay between attempts, `waited` all before the first.

    Time spent throttled is taken off the part it fell into, so the four add up to the total."""
    end = task.completed_at or task.updated_at
    attempts = msgspec.json.decode(task.attempts)
    ran = sum(a["ended_at"] - a["started_at"] for a in attempts)
    first = attempts[0]["started_at"] if attempts else end
    waited = first - task.created_at
    retried = max(end - task.created_at - waited - ran, 0)
    from_waited = min(throttled_ms, waited)
    from_retried = min(throttled_ms - from_waited, retried)
    return {
        "waited": waited - from_waited,
        "throttled": from_waited + from_retried,
        "retried": retried - from_retried,
        "ran": ran,
    }


async def _throttled_ms(app: Outlast, task: Task) -> int:
    """From the log, which has it for tasks that are followed."""
    if not task.limits:
        return 0
    since: Ms | None = None
    total = 0
    query = EventQuery(task_id=task.id, kinds=("state", "done"))
    for event in await so_far(app.engine, query):
        if since is not None:
            total, since = total + event.at - since, None
        if msgspec.json.decode(event.data).get("status") == "throttled":
            since = event.at
    return total
