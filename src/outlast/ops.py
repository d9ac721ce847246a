"""What HTTP and the command line share: looking at queues, types and health; setting right."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from outlast import steering, travel
from outlast.app import Outlast
from outlast.core.budgets import is_budget
from outlast.core.codec import dumps, loads
from outlast.core.errors import BadInput, Conflict, NotFound, OutlastError, suggest
from outlast.core.ids import new_id
from outlast.core.limits import Limit, Trip, resolve
from outlast.core.model import (
    Count,
    NewEvent,
    Put,
    Record,
    Redrive,
    Task,
    TaskId,
    TaskQuery,
    Term,
    WorkerId,
)
from outlast.core.redact import restored
from outlast.core.seal import readable
from outlast.core.states import STATUSES, Ms, Status
from outlast.definitions import publish
from outlast.options import name_of
from outlast.stream import fetch
from outlast.views import View, gauge_view, iso, limit_view, worker_view
from outlast.worker.witness import swept

RATE_WINDOW_MS: Final = 60_000
HEALTH_S: Final = 2.0
PAGE: Final = 500
DRAIN_MS: Final = 86_400_000
"""How long a worker that cannot look for it is still asked to drain."""


# Looking -----------------------------------------------------------------------------------------


async def queues_status(app: Outlast) -> View:
    """Depths by lane, counts by status, the retry lane's share, and the same for each queue."""
    engine = app.engine
    counts, records, done, now = await asyncio.gather(
        engine.count(TaskQuery(), by=("queue", "lane", "status")),
        engine.get("queue"),
        _ended_lately(app),
        engine.now(),
    )
    paused = {record.key for record in records if is_paused(record)}
    names = {str(count.by[0]) for count in counts} | paused | app.queues.keys()
    waiting = _depths(counts)["retry"]
    return {
        "queues": _depths(counts),
        "states": _by_status(counts),
        "retry_ratio": app.lanes.share_at(waiting),
        "pressure": app.lanes.pressure(waiting),
        "by_queue": {
            name: {
                **_queue(app, [count for count in counts if count.by[0] == name], now),
                "paused": name in paused,
                "completed_per_minute": done.get(name, 0),
            }
            for name in sorted(names)
        },
    }


def _queue(app: Outlast, counts: Sequence[Count], now: Ms) -> View:
    depths = _depths(counts)
    oldest = min((count.oldest_at for count in counts if count.oldest_at is not None), default=now)
    return {
        **depths,
        "states": _by_status(counts),
        "retry_ratio": app.lanes.share_at(depths["retry"]),
        "pressure": app.lanes.pressure(depths["retry"]),
        "oldest_seconds": max(now - oldest, 0) / 1000,
    }


def _depths(counts: Sequence[Count]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for count in counts:
        _, lane, status = count.by
        if status == "ready":
            found[str(lane)] += count.n
        elif status in ("scheduled", "retrying"):
            found["scheduled"] += count.n
        elif status == "dead":
            found["dlq"] += count.n
    return {name: found[name] for name in ("primary", "retry", "scheduled", "dlq")}


def _by_status(counts: Sequence[Count]) -> dict[str, int]:
    found: Counter[object] = Counter()
    for count in counts:
        found[count.by[2]] += count.n
    return {status: found[status] for status in STATUSES}


async def _ended_lately(app: Outlast) -> dict[str, int]:
    """Tasks completed within the last minute, by queue."""
    since = await app.engine.now() - RATE_WINDOW_MS
    query = TaskQuery(terms=(Term("status", ("completed",)), Term("completed_at", (since,), ">")))
    return {str(count.by[0]): count.n for count in await app.engine.count(query, by=("queue",))}


async def health(app: Outlast) -> View:
    """Unhealthy: no engine. Degraded: no worker, or an open circuit."""
    try:
        async with asyncio.timeout(HEALTH_S):
            now = await app.engine.now()
            alive = sum(worker.alive for worker in await app.engine.workers())
            tripped = [g for g in await app.engine.gauges() if g.circuit != "closed"]
    except (OutlastError, OSError, TimeoutError) as problem:
        down: View = {"status": "down", "message": str(problem) or "no answer in time"}
        # The engine's clock is out of reach; an id carries this machine's.
        here = int(new_id().replace("-", "")[:12], 16)
        return {
            "status": "unhealthy",
            "components": {"engine": down, "workers": None, "circuit_breaker": None},
            "timestamp": iso(here),
        }
    return {
        "status": "degraded" if tripped or not alive else "healthy",
        "components": {
            "engine": {"status": "up", "durability": app.engine.durability},
            "workers": {"status": "up" if alive else "none", "alive": alive},
            "circuit_breaker": {
                "status": "open" if tripped else "closed",
                "open": {gauge.key: iso(gauge.open_until) for gauge in tripped},
            },
        },
        "timestamp": iso(now),
    }


async def types(app: Outlast) -> list[View]:
    """Every type that may be enqueued: who knows it, and the JSON Schema of its payload."""
    workers: Counter[str] = Counter()
    for worker in await app.engine.workers():
        if worker.alive:
            workers.update(set(worker.info.types))
    found: list[View] = []
    for name in sorted({*app.handlers, *app.externals, *workers} - app.builtins.keys()):
        handler = app.find(name)
        found.append(
            {
                "type": name,
                "mode": handler.mode if handler else None,
                "queue": handler.queue if handler else None,
                "description": handler.schema.get("description") if handler else None,
                "schema": handler.schema if handler else None,
                "result_schema": handler.signature.result_schema() if handler else None,
                "workers": workers[name],
            }
        )
    return found


async def dead_groups(app: Outlast, among: TaskQuery | None = None) -> list[View]:
    """Dead tasks by error fingerprint, the most frequent first, each with its newest example."""
    dead = (Term("status", ("dead",)), *(among.terms if among else ()))
    counts = await app.engine.count(TaskQuery(terms=dead), by=("fingerprint", "type"))
    groups: list[View] = []
    for count in sorted(counts, key=lambda count: -count.n):
        mark, type = count.by
        terms = [*dead, Term("type", (str(type),))]
        if mark is not None:
            terms.append(Term("fingerprint", (mark,)))
        found = await app.engine.tasks(TaskQuery(terms=tuple(terms), limit=1 if mark else PAGE))
        example = next((task for task in found.items if task.fingerprint == mark), None)
        groups.append({"fingerprint": mark, "type": type, "count": count.n, **_example(example)})
    return groups


def _example(task: Task | None) -> View:
    error = msgspec.json.decode(task.error) if task is not None and task.error else {}
    return {
        "error_type": error.get("type"),
        "message": error.get("message") or (task.reason if task else None),
        "reason": task.reason if task else None,
        "example": task.id if task else None,
        "last_at": iso(task.completed_at) if task else None,
    }


# Setting right -----------------------------------------------------------------------------------


async def pause(app: Outlast, queue: str) -> None:
    """Workers take nothing more from it; what runs goes on."""
    await _set_paused(app, queue, True)


async def resume(app: Outlast, queue: str) -> None:
    await _set_paused(app, queue, False)


async def _set_paused(app: Outlast, queue: str, paused: bool) -> None:
    name_of(queue, "queue")
    while True:  # another writer may come between reading and writing
        there = await app.engine.get("queue", [queue])
        told = msgspec.json.decode(there[0].value) if there else {}
        value = dumps({**told, "paused": paused}, "queue")
        expect = there[0].version if there else 0
        [written] = await app.engine.put([Put(kind="queue", key=queue, value=value, expect=expect)])
        if written is not None:
            return


async def retry(app: Outlast, task_id: TaskId, payload: Mapping[str, object] | None = None) -> Task:
    """Dead or cancelled: back to pending. Retrying: now. With another payload, if one is given."""
    change = Redrive()
    if payload is not None:
        task = await fetch(app.engine, task_id)
        handler = app.find(task.type)
        there = readable(task.payload, f"The payload of task {task_id}")
        payload = restored(payload, loads(there))
        if handler is None:
            change = Redrive(payload=dumps(payload, "payload", reveal=True))
        else:
            made = handler.accept(payload).task
            change = Redrive(payload=made.payload, attrs=made.attrs)
    await steering.retry(app, task_id, change)
    return await fetch(app.engine, task_id)


async def rerun(
    app: Outlast,
    task_id: TaskId,
    *,
    from_step: str | None = None,
    payload: Mapping[str, object] | None = None,
    steps: Mapping[str, object] | None = None,
) -> Task:
    """Run a task that is over again, as a new one: `travel.rerun`."""
    told = {"from_step": from_step, "payload": payload, "steps": steps}
    handle = await travel.rerun(app, task_id, **told)  # type: ignore[arg-type]  # by name
    return await handle.refresh()


async def cancel(app: Outlast, task_id: TaskId, reason: str = "cancelled") -> Task:
    """Pending: at once. Running: its worker is told. Over: `Conflict`. With what it has called;
    of a workflow, all of it."""
    await steering.cancel(app, task_id, name_of(reason, "reason"))
    return await fetch(app.engine, task_id)


async def forget(app: Outlast, task_id: TaskId) -> None:
    """Delete a task that does not run, with everything that belongs to it."""
    await steering.forget(app, task_id)


Tell = Callable[[int], Awaitable[None]]
ACTIONS: Final[Mapping[str, tuple[Status, ...]]] = {
    "retry": ("dead", "cancelled", "retrying"),
    "cancel": ("ready", "scheduled", "retrying", "throttled", "blocked", "running"),
    "delete": tuple(s for s in STATUSES if s not in ("running", "stalled")),
}
"""What can be done to many tasks, and to which of them."""


async def matching(app: Outlast, action: str, query: TaskQuery) -> int:
    """How many tasks a bulk would change."""
    return sum(count.n for count in await app.engine.count(_fit(action, query)))


async def bulk(
    app: Outlast,
    action: str,
    query: TaskQuery,
    *,
    rate: str | None = None,
    tell: Tell | None = None,
) -> int:
    """Retry, cancel or delete every task that fits the query, newest first; how many. What a
    single one would be refused for, such as having been undone, leaves it as it is.

    With a `rate` such as "10/s" retried tasks become due one after the other at that pace.
    """
    query = _fit(action, query)
    pace = check_pace(action, rate)
    changed = 0
    while True:
        page = await app.engine.tasks(query)
        if action == "cancel":
            changed += await steering.cancel_all(app, page.items)
        elif action == "delete":
            changed += await steering.forget_all(app, page.items)
        else:
            for delay_ms, tasks in _paced(page.items, changed, pace):
                changed += await steering.retry_all(app, tasks, Redrive(delay_ms=delay_ms))
        if tell is not None:
            await tell(changed)
        if page.next is None:
            return changed
        query = msgspec.structs.replace(query, cursor=page.next)


def check_pace(action: str, rate: str | None) -> Limit | None:
    if rate is None:
        return None
    if action != "retry":
        raise BadInput(f"rate: a {action} takes none; what is retried can be paced.", field="rate")
    return Limit("bulk", rate=rate)


def _fit(action: str, query: TaskQuery) -> TaskQuery:
    """The tasks of a query to which the action applies."""
    if action not in ACTIONS:
        hint = suggest(action, ACTIONS) or "."
        raise BadInput(
            f"There is no action {action[:40]!r}{hint} Actions are: {', '.join(ACTIONS)}.",
            field="action",
        )
    term = Term("status", ACTIONS[action])
    return TaskQuery(terms=(*query.terms, term), limit=PAGE, cursor=query.cursor)


def _paced(
    tasks: Sequence[Task], before: int, pace: Limit | None
) -> list[tuple[int, Sequence[Task]]]:
    """The tasks in groups with the delay of each; a group is what is due within one second."""
    if pace is None:
        return [(0, tasks)] if tasks else []
    groups: dict[int, list[Task]] = {}
    for n, task in enumerate(tasks, before):
        due_ms = n * pace.rate_period_ms // pace.rate_units
        groups.setdefault(due_ms // 1000 * 1000 if due_ms >= 1000 else 0, []).append(task)
    return list(groups.items())


async def requeue_orphaned(app: Outlast) -> View:
    """Recover the tasks of lost workers now, instead of at the next sweep."""
    rescued = died = 0
    while True:
        found = await app.engine.sweep()
        swept(app.meter, found)
        rescued, died = rescued + found.rescued, died + found.died
        if not found.more:
            return {"requeued": rescued, "died": died}


# Workers -----------------------------------------------------------------------------------------


async def workers(app: Outlast) -> list[View]:
    """All that have registered, and which of them were asked to drain."""
    found, asked = await asyncio.gather(app.engine.workers(), app.engine.get("drain"))
    draining = {record.key for record in asked}
    return [{**worker_view(worker), "draining": worker.id in draining} for worker in found]


async def drain(app: Outlast, worker_id: WorkerId) -> View:
    """A worker takes nothing more, lets what runs end, and ends. It looks every two seconds."""
    found = {one["id"]: one for one in await workers(app)}
    told = found.get(worker_id)
    if told is None:
        raise NotFound(f"There is no worker {worker_id[:100]!r}.")
    if not told["alive"]:
        raise Conflict(f"{worker_id} is gone already: what it ran is taken over by others.")
    if told["pid"] == 0:
        raise Conflict(f"{worker_id} takes its leases over HTTP: stop it where it runs.")
    await app.engine.put([Put(kind="drain", key=worker_id, value=b"true", ttl_ms=DRAIN_MS)])
    return {**told, "draining": True}


# Limits ------------------------------------------------------------------------------------------


async def limits(app: Outlast) -> View:
    """Every definition, and the gauges of the keys in use."""
    records, gauges = await asyncio.gather(app.engine.get("limit"), app.engine.gauges())
    return {
        "items": [_definition(record) for record in records if not is_budget(record.key)],
        "gauges": [gauge_view(gauge) for gauge in gauges if not is_budget(gauge.key)],
    }


def _definition(record: Record) -> View:
    told = msgspec.json.decode(record.value)
    source = "code" if told.get("source") == "code" else "people"
    return {**limit_view(Limit.from_json(told)), "source": source}


async def set_limit(app: Outlast, key: str, body: Mapping[str, object]) -> View:
    """Define a limit at run time: `{"slots": 4, "rate": "60/min", "trip": {"rate": 0.5}}`.

    It stays when a program with another definition starts, until it is deleted.
    """
    limit = limit_from(key, body)
    value = dumps({**limit.to_json(), "source": "people"}, "limit")
    await app.engine.put([Put(kind="limit", key=key, value=value)])
    return limit_view(limit)


def limit_from(key: str, body: Mapping[str, object]) -> Limit:
    if is_budget(key):
        raise BadInput(f"{key!r} belongs to a budget: PUT /api/v1/budgets/…", field="key")
    try:
        told = msgspec.convert(body, _LimitBody)
    except msgspec.ValidationError as problem:
        raise BadInput(
            f"The limit is not readable: {problem}. It has slots, rate, and trip with rate, volume,"
            " window and open.",
            field="limit",
        ) from problem
    trip = None if told.trip is None else Trip(**msgspec.structs.asdict(told.trip))
    return Limit(key, slots=told.slots, rate=told.rate, trip=trip)


class _TripBody(msgspec.Struct, forbid_unknown_fields=True):
    rate: float = 0.5
    volume: int = 10
    window: str | float = "60s"
    open: str | float = "60s"


class _LimitBody(msgspec.Struct, forbid_unknown_fields=True):
    key: str = ""
    slots: int | None = None
    rate: str | None = None
    trip: _TripBody | None = None


async def reset_limit(app: Outlast, key: str) -> View:
    """Close the circuit of a key, or of a family, and let its rate start afresh. Slots stay with
    who holds them, and a pause that a service asked for (a 429) is kept."""
    records = {record.key: record for record in await app.engine.get("limit")}
    definitions = {
        name: Limit.from_json(msgspec.json.decode(r.value)) for name, r in records.items()
    }
    limit = resolve(key, definitions)
    if is_budget(key) or limit is None:
        raise NotFound(f"There is no limit {key[:100]!r}.")
    was_open = {gauge.key for gauge in await app.engine.gauges() if gauge.circuit != "closed"}
    # Another definition, for a moment: without a circuit, and with another rate, which is what
    # engines begin afresh for. It lets nobody pass that the true one would not.
    rate = f"{limit.rate_units + 1}/{limit.rate_period_ms}ms" if limit.rate_units else None
    slots = limit.slots or (None if rate else 1_000_000)
    exact = records.get(key)
    source = {} if exact is None else {"source": msgspec.json.decode(exact.value).get("source")}
    other = dumps({**Limit(key, slots=slots, rate=rate).to_json(), **source}, "limit")
    expect = exact.version if exact else 0
    [first] = await app.engine.put([Put(kind="limit", key=key, value=other, expect=expect)])
    if first is None:
        raise Conflict(f"The limit {key!r} was changed just now: look at it, and try again.")
    back = None if exact is None else exact.value
    await app.engine.put([Put(kind="limit", key=key, value=back, expect=first.version)])
    if was_open:  # the log tells of every turn of a circuit
        closed = [gauge.key for gauge in await app.engine.gauges() if gauge.circuit == "closed"]
        told = [dumps({"key": k, "circuit": "closed"}, "event") for k in closed if k in was_open]
        await app.engine.append([NewEvent(kind="circuit", data=data) for data in told])
    return limit_view(limit)


async def delete_limit(app: Outlast, key: str) -> None:
    """Delete a definition; one that code gives comes back as code gives it."""
    if is_budget(key) or not await app.engine.get("limit", [key]):
        raise NotFound(f"There is no limit {key!r}.")
    await app.engine.put([Put(kind="limit", key=key, value=None)])
    if key in app.limits:
        await publish(app.engine, "limit", {key: app.limits[key].to_json()})


def is_paused(record: Record) -> bool:
    return msgspec.json.decode(record.value).get("paused") is True
