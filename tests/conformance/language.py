"""A small language over the engine protocol, so that tests read like its sentences.

Tasks have names ("a"), workers have names ("w1"), durations are written as people write them, and
time moves only by `advance`. What a word expects, it asserts: `finish` fails when it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs

from outlast.core.durations import Duration, to_ms
from outlast.core.ids import new_fence, new_id
from outlast.core.limits import Limit, Trip
from outlast.core.model import (
    Altered,
    Cancel,
    Change,
    Deal,
    Event,
    EventQuery,
    Forget,
    GaugeView,
    Lease,
    NewEvent,
    NewTask,
    Outcome,
    Page,
    Put,
    Receipt,
    Record,
    Redrive,
    Signal,
    Swept,
    Task,
    TaskId,
    TaskQuery,
    Term,
    Turn,
    Want,
    WorkerInfo,
    WorkerView,
)
from outlast.core.states import Lane, Ms
from outlast.engine import Engine

LEASE: Duration = "10s"
INFO = WorkerInfo(host="test", pid=1)
"""What every worker says about itself in its first turn."""
LimitsLike = Iterable[str | tuple[str, int]]
Names = str | Iterable[str]

_SPANS = {
    "delay": "delay_ms",
    "timeout": "timeout_ms",
    "overdue_after": "overdue_after_ms",
    "max_age": "max_age_ms",
    "unique_for": "unique_for_ms",
}


def ms(value: Duration) -> Ms:
    return to_ms(value)


def body(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class Scene:
    """One engine in one empty namespace, spoken to by names."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._ids: dict[str, TaskId] = {}
        self._names: dict[TaskId, str] = {}
        self._owner: dict[tuple[TaskId, int], str] = {}
        self._introduced: set[str] = set()

    # names ---------------------------------------------------------------------------------------

    def id(self, name: str) -> TaskId:
        """The id behind a name; a new name gets a new id, larger than all before."""
        if name not in self._ids:
            self._ids[name] = new_id()
            self._names[self._ids[name]] = name
        return self._ids[name]

    def ids(self, names: Names) -> tuple[TaskId, ...]:
        return tuple(self.id(n) for n in ([names] if isinstance(names, str) else names))

    def name(self, task_id: TaskId | None) -> str:
        return self._names.get(task_id or "", task_id or "-")

    def names(self, things: Iterable[Lease | Task | Receipt]) -> list[str]:
        return [self.name(thing.id) for thing in things]

    # time ----------------------------------------------------------------------------------------

    async def now(self) -> Ms:
        return await self.engine.now()

    async def advance(self, by: Duration) -> None:
        """Time passes. Nobody waits for it."""
        self.engine.skew_ms += ms(by)

    # enqueue -------------------------------------------------------------------------------------

    def new(self, name: str, **options: Any) -> NewTask:
        """A task by name; durations as text, `after` and `parent` by name, `payload` as JSON."""
        for short, field in _SPANS.items():
            if short in options:
                options[field] = ms(options.pop(short))
        if "after" in options:
            options["after"] = self.ids(options["after"])
        if "parent" in options:
            options["parent_id"] = self.id(options.pop("parent"))
        if "limits" in options:
            options["limits"] = _pairs(options["limits"])
        for field in ("payload", "meta"):
            if field in options and not isinstance(options[field], bytes):
                options[field] = body(options[field])
        return NewTask(id=self.id(name), type=options.pop("type", "work"), **options)

    async def add(self, *names: str, **options: Any) -> list[Receipt]:
        """Tasks with the same options, in one batch."""
        return await self.engine.enqueue([self.new(name, **options) for name in names])

    async def batch(self, *tasks: NewTask) -> list[Receipt]:
        return await self.engine.enqueue(tasks)

    # exchange ------------------------------------------------------------------------------------

    async def turn(
        self,
        worker: str = "w1",
        *,
        n: int = 0,
        queue: Names = "default",
        wants: Sequence[Want] | None = None,
        outcomes: Sequence[Outcome] = (),
        lease: Duration = LEASE,
        token: int | None = None,
        **more: Any,
    ) -> Deal:
        """One exchange. Without wants it wants `n` of both lanes of the queue."""
        queues = [queue] if isinstance(queue, str) else list(queue)
        lanes: tuple[Lane, Lane] = ("primary", "retry")
        if wants is None:
            wants = [Want(q, lane, n) for q in queues for lane in lanes] if n else []
        if worker not in self._introduced:
            self._introduced.add(worker)
            more.setdefault("info", INFO)
        deal = await self.engine.exchange(
            Turn(
                token=token or new_fence(),
                worker=worker,
                lease_ms=ms(lease),
                wants=tuple(wants),
                room=more.pop("room", n),
                outcomes=tuple(outcomes),
                **more,
            )
        )
        for lease_ in deal.leases:
            self._owner[lease_.id, lease_.fence] = worker
        return deal

    async def claim(self, n: int = 1, worker: str = "w1", **turn: Any) -> list[Lease]:
        """Exactly the leases that a worker with room for `n` gets, asking again as it is told."""
        leases: list[Lease] = []
        for _ in range(1000):
            deal = await self.turn(worker, n=n - len(leases), **turn)
            leases += deal.leases
            if len(leases) == n or not deal.again:
                return leases
        raise AssertionError("the engine said `again` a thousand times")

    async def claims(self, n: int = 1, worker: str = "w1", **turn: Any) -> list[str]:
        return self.names(await self.claim(n, worker, **turn))

    async def beat(self, worker: str = "w1", **turn: Any) -> Deal:
        return await self.turn(worker, **turn)

    def patch(self, lease: Lease, state: str, **patch: Any) -> Outcome:
        """An outcome of this lease; `delay` and `after` as in `new`, documents as JSON."""
        if "delay" in patch:
            patch["delay_ms"] = ms(patch.pop("delay"))
        if "after" in patch:
            patch["after"] = self.ids(patch["after"])
        for field in ("result", "error", "progress"):
            if field in patch and not isinstance(patch[field], bytes):
                patch[field] = body(patch[field])
        for field in ("steps", "events", "spawn", "charges", "pauses"):
            if field in patch:
                patch[field] = tuple(patch[field])
        return Outcome(id=lease.id, fence=patch.pop("fence", lease.fence), state=state, **patch)  # type: ignore[arg-type]

    async def hand(self, *outcomes: Outcome, worker: str | None = None, **turn: Any) -> Deal:
        """A turn that only hands back outcomes, by the worker that owns the first of them."""
        first = outcomes[0]
        owner = worker or self._owner.get((first.id, first.fence), "w1")
        return await self.turn(owner, outcomes=outcomes, **turn)

    async def _accepted(self, outcome: Outcome, **turn: Any) -> Deal:
        deal = await self.hand(outcome, **turn)
        assert not deal.lost, f"refused: {self.name(outcome.id)} as {outcome.state}"
        return deal

    async def finish(self, lease: Lease, result: object = None, **patch: Any) -> Deal:
        """Completed, with a result."""
        return await self._accepted(self.patch(lease, "completed", result=result, **patch))

    async def fail(self, lease: Lease, delay: Duration = 0, **patch: Any) -> Deal:
        """The attempt failed and is tried again in the retry lane."""
        patch = {"verdict": "failed", "lane": "retry", "error": {"type": "Oops"}} | patch
        return await self._accepted(self.patch(lease, "pending", delay=delay, **patch))

    async def die(self, lease: Lease, reason: str = "permanent", **patch: Any) -> Deal:
        patch = {"verdict": "failed", "error": {"type": "Oops"}} | patch
        return await self._accepted(self.patch(lease, "dead", reason=reason, **patch))

    async def snooze(self, lease: Lease, delay: Duration = 0, **patch: Any) -> Deal:
        patch = {"verdict": "waiting", "refund": True} | patch
        return await self._accepted(self.patch(lease, "pending", delay=delay, **patch))

    async def release(self, lease: Lease) -> Deal:
        return await self._accepted(self.patch(lease, "pending", verdict="released", refund=True))

    async def stop(self, lease: Lease, reason: str = "cancelled") -> Deal:
        """The attempt obeys a cancel."""
        return await self._accepted(
            self.patch(lease, "cancelled", verdict="cancelled", reason=reason)
        )

    async def report(self, lease: Lease, **patch: Any) -> Deal:
        """From the middle of an attempt: progress, steps, events, children."""
        return await self._accepted(self.patch(lease, "running", **patch))

    async def refused(self, lease: Lease, state: str = "completed", **patch: Any) -> None:
        """The engine must refuse this outcome, say so, and change nothing."""
        before = await self.everything()
        deal = await self.hand(self.patch(lease, state, **patch))
        assert deal.lost == ((lease.id, patch.get("fence", lease.fence)),)
        assert await self.everything() == before

    # alter, sweep --------------------------------------------------------------------------------

    async def alter(self, name: str, change: Change) -> Altered:
        [altered] = await self.engine.alter([self.id(name)], change)
        assert altered.id == self.id(name)
        return altered

    async def change(self, name: str, change: Change) -> None:
        altered = await self.alter(name, change)
        assert altered.applied, f"{name}: {change} was refused: {altered.why}"

    async def refuses(self, name: str, change: Change) -> str | None:
        """Why the change does not apply; nothing may have changed."""
        before = await self.everything()
        altered = await self.alter(name, change)
        assert not altered.applied, f"{name}: {change} was applied"
        assert await self.everything() == before
        return altered.why

    async def cancel(self, name: str, reason: str = "cancelled") -> None:
        await self.change(name, Cancel(reason))

    async def redrive(self, name: str, delay: Duration = 0, **more: Any) -> None:
        await self.change(name, Redrive(delay_ms=ms(delay), **more))

    async def signal(self, name: str, signal: str, data: object = None) -> None:
        await self.change(name, Signal(signal, body(data)))

    async def forget(self, name: str) -> None:
        await self.change(name, Forget())

    async def sweep(self, **more: Any) -> Swept:
        """Sweep until nothing is left to do; the sums of what was done."""
        total: dict[str, int] = {}
        for _ in range(1000):
            swept = await self.engine.sweep(**more)
            for field in swept.__struct_fields__:
                total[field] = total.get(field, 0) + getattr(swept, field)
            if not swept.more:
                return Swept(**(total | {"more": False}))  # type: ignore[arg-type]
        raise AssertionError("sweep said `more` a thousand times")

    async def vanish(self, worker: str = "w1", lease: Duration = LEASE) -> Swept:
        """The worker is never heard of again, and its lease ends."""
        self.engine.skew_ms += ms(lease) + 1
        return await self.sweep()

    # limits, queues, records ---------------------------------------------------------------------

    async def limit(self, key: str, **definition: Any) -> None:
        if isinstance(definition.get("trip"), dict):
            definition["trip"] = Trip(**definition["trip"])
        await self.put("limit", key, Limit(key, **definition).to_json())

    async def unlimit(self, key: str) -> None:
        await self.engine.put([Put(kind="limit", key=key, value=None)])

    async def pause(self, queue: str = "default") -> None:
        await self.put("queue", queue, {"paused": True})

    async def resume(self, queue: str = "default") -> None:
        await self.put("queue", queue, {"paused": False})

    async def put(self, kind: str, key: str, value: object, **more: Any) -> Record | None:
        [record] = await self.engine.put([Put(kind=kind, key=key, value=body(value), **more)])
        return record

    async def gauge(self, key: str) -> GaugeView:
        [view] = await self.engine.gauges([key])
        return view

    async def used(self, *keys: str) -> dict[str, int]:
        return {view.key: view.used for view in await self.engine.gauges(keys)}

    # reading -------------------------------------------------------------------------------------

    async def task(self, name: str) -> Task:
        found = await self.found(name)
        assert found is not None, f"{name} is not there"
        return found

    async def found(self, name: str) -> Task | None:
        page = await self.engine.tasks(TaskQuery.of(id=self.id(name)))
        return page.items[0] if page.items else None

    async def pages(self, query: TaskQuery) -> list[Page[Task]]:
        pages = [await self.engine.tasks(query)]
        while pages[-1].next is not None:
            pages.append(
                await self.engine.tasks(
                    TaskQuery(terms=query.terms, limit=query.limit, cursor=pages[-1].next)
                )
            )
        return pages

    async def tasks(self, *terms: Term, limit: int = 200, **equal: Any) -> list[Task]:
        """All tasks of a query, over as many pages as it takes."""
        query = TaskQuery.of(limit=limit, **equal)
        query = TaskQuery(terms=query.terms + terms, limit=limit)
        return [task for page in await self.pages(query) for task in page.items]

    async def find(self, *terms: Term, **equal: Any) -> set[str]:
        return set(self.names(await self.tasks(*terms, **equal)))

    async def statuses(self, *names: str) -> dict[str, str]:
        found = {self.name(task.id): str(task.status) for task in await self.tasks()}
        return {n: found[n] for n in names} if names else dict(sorted(found.items()))

    async def status(self, name: str) -> str:
        return (await self.task(name)).status

    async def parked(self, name: str) -> str | None:
        return (await self.task(name)).parked

    async def counts(self, by: str, **equal: Any) -> dict[str | int | None, int]:
        return {c.by[0]: c.n for c in await self.engine.count(TaskQuery.of(**equal), [by])}

    async def worker(self, name: str) -> WorkerView | None:
        return next((w for w in await self.engine.workers() if w.id == name), None)

    # the log -------------------------------------------------------------------------------------

    async def events(self, name: str | None = None, **query: Any) -> list[Event]:
        """Every event (of a task), read by cursor in small pages."""
        task_id = self.id(name) if name else None
        found: list[Event] = []
        after = query.pop("after", None)
        limit = query.pop("limit", 100)
        while True:
            page = await self.engine.events(
                EventQuery(after=after, task_id=task_id, limit=limit, **query)
            )
            found += page.items
            if not page.items:
                return found
            after = page.next

    async def log(self, name: str) -> list[str]:
        """What happened to a task: statuses for `state` and `done`, else the kind."""
        return [said(event) for event in await self.events(name)]

    async def say(self, kind: str, data: object = None, **more: Any) -> str:
        [cursor] = await self.engine.append([NewEvent(kind=kind, data=body(data), **more)])
        return cursor

    async def everything(self) -> tuple[list[Task], list[Event]]:
        """All tasks and the whole log, to show that something changed nothing.

        Without `lease_until`: every turn of a worker renews it.
        """
        tasks = [structs.replace(task, lease_until=None) for task in await self.tasks()]
        return tasks, await self.events()

    async def story(self) -> str:
        """What a failing test prints: its newest tasks, and their logs."""
        lines = []
        page = await self.engine.tasks(TaskQuery(limit=30))
        for task in reversed(page.items):
            where = f" on {task.parked}" if task.parked else ""
            counts = f"attempt {task.attempt}, losses {task.losses}, reason {task.reason}"
            lines.append(f"{self.name(task.id)}: {task.status}{where} ({counts})")
            for event in await self.events(task_name := self.name(task.id)):
                lines.append(f"   {task_name} {event.at} {event.kind} {event.data.decode()}")
        return "\n".join(lines)


def said(event: Event) -> str:
    if event.kind in ("state", "done"):
        return str(json.loads(event.data)["status"])
    return event.kind


def _pairs(limits: LimitsLike) -> tuple[tuple[str, int], ...]:
    listed = [limits] if isinstance(limits, str) else limits
    return tuple((item, 1) if isinstance(item, str) else item for item in listed)
