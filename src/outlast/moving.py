"""Moving everything from one engine to another: read, written, checked, and only then let loose.

A copy has a plan, kept in the target as a record: what it copies from, how far it is, and which
queues it holds. While it goes on, every queue of the target is paused, so that a worker that is
there too early runs nothing of a half-copied graph; a copy that was killed goes on where its plan
says. At the end both sides are read back and compared: how many there are of each kind and state,
and sums of hashes over what cannot differ. Whatever wrote to either side meanwhile shows there.

What does not travel: leases and fences (nothing may run), workers (they introduce themselves to
the engine they serve), hints, and cursors of the log (it keeps its order, but each engine counts
its events in its own way).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Final

from msgspec import Struct, structs
from msgspec.json import decode, encode

from outlast import usage
from outlast.core.errors import BadInput, Conflict, WaitTimeout
from outlast.core.ids import new_id
from outlast.core.limits import Gauge
from outlast.core.model import Cursor, Dumped, Event, EventQuery, Item, Put, Record, TaskQuery
from outlast.core.states import Ms
from outlast.engine import Engine

PAGE: Final = 500
LOOK_S: Final = 0.2
EXPIRES_SOON_MS: Final = 60_000
"""Records that end so soon are copied, but not compared: one side may have dropped them."""
MODULO: Final = 1 << 128
PLAN: Final = ("copy", "in")
NOT_COPIED: Final = frozenset({"copy", "queue", "metrics", "rollup", usage.KIND})
"""Kinds of records that are not loaded as they are dumped; queues follow when all is checked, and
how far the usage in the log is summed up.

Workers that drain still write what they count, and a history is one of those counts."""
BY_US: Final = {"paused_by": "copy"}
TRAVELS_NOT: Final = (
    "leases and workers: the copy knows none, they begin anew",
    "metrics: counts and their history begin anew",
    "cursors of the log: event streams are to be opened without Last-Event-ID",
    "hints: whoever watches the source hears nothing of the copy",
)

Tell = Callable[[str, int, int | None], None]
"""Told (phase, done, of how many if that is known) as a copy proceeds."""


class Sum(Struct):
    """How many things there are, and a sum of their hashes, which no order can change."""

    n: int = 0
    hash: str = "0"

    def add(self, data: bytes) -> None:
        value = int.from_bytes(blake2b(data, digest_size=16).digest())
        self.n += 1
        self.hash = f"{(int(self.hash, 16) + value) % MODULO:x}"


class Plan(Struct, kw_only=True):
    """How far a copy is."""

    source: str
    log_end: Cursor
    """Where the source's log ended when the copy began."""
    queues: dict[str, Record | None]
    """The queues that are held, with what the source said of them."""
    paused: bool = False
    """The source's queues were paused, and stay so."""
    drained: bool = False
    """… and nothing of it runs any more."""
    cursor: Cursor | None = None
    read: bool = False
    checked: bool = False
    refused: str | None = None
    """Why it can never become a copy of the source."""
    sums: dict[str, Sum] = {}
    """What was read so far, as it came."""


class Moved(Struct, frozen=True, kw_only=True):
    """What a copy did."""

    counts: dict[str, int]
    """How many of each kind; tasks by state, as `task dead`."""
    checksums: dict[str, str]
    resumed: bool
    paused: bool
    """The source's queues stay paused."""
    skew_ms: int
    """How far the target's clock is ahead of the source's."""
    left: tuple[str, ...] = TRAVELS_NOT


def _silent(_phase: str, _done: int, _total: int | None) -> None:
    return None


async def move(
    source: Engine,
    target: Engine,
    name: str,
    *,
    resume: bool = False,
    drain_ms: int | None = None,
    tell: Tell = _silent,
) -> Moved:
    """Copy everything; `name` is what the plan calls the source. A copy that was killed goes on.

    `resume`: refuse to begin one. `drain_ms`: pause the queues of the source and wait that long for
    what runs. They stay paused, so that nothing runs twice, unless the copy was in vain.
    """
    if await _same(source, target):
        raise BadInput("Source and target are the same engine: copy into another one.")
    plan = await _plan_in(target)
    resumed = plan is not None
    if plan is None:
        if resume:
            raise BadInput("The target holds no interrupted copy: leave out --resume to begin one.")
        await _must_be_empty(target)
        await _must_be_idle(source, draining=drain_ms is not None)
        plan = await _new_plan(source, name)
    elif plan.source != name:
        raise Conflict(
            f"The target holds half a copy of {plan.source}: go on with that one, or copy into "
            "another file, schema, namespace or database."
        )
    if plan.refused is not None:
        raise Conflict(plan.refused)
    if plan.checked:
        found = await _summed(target, "target", tell)
    else:
        await _prepare(source, target, plan, drain_ms, tell)
        try:
            if not plan.read:
                await _copy(source, target, plan, tell)
            found = await _check(source, target, plan, tell)
        except Conflict as problem:  # this copy is of no use any more
            plan.refused = str(problem)
            await _keep(target, plan)
            await _resume(source, plan)
            raise
        plan.checked = True
        await _keep(target, plan)
    await usage.adopt(source, target)
    await _let_go(target, plan)
    return Moved(
        counts={kind: found.sums[kind].n for kind in sorted(found.sums)},
        checksums={kind: found.sums[kind].hash for kind in sorted(found.sums)},
        resumed=resumed,
        paused=plan.paused,
        skew_ms=await target.now() - await source.now(),
    )


# Before ------------------------------------------------------------------------------------------


async def _same(source: Engine, target: Engine) -> bool:
    """Does the source see what was written to the target?"""
    token = f'"{new_id()}"'.encode()
    await target.put([Put(kind="copy", key="probe", value=token)])
    seen = await source.get("copy", ["probe"])
    await target.put([Put(kind="copy", key="probe", value=None)])
    return any(record.value == token for record in seen)


async def _plan_in(target: Engine) -> Plan | None:
    found = await target.get(PLAN[0], [PLAN[1]])
    return decode(found[0].value, type=Plan) if found else None


async def _prepare(
    source: Engine, target: Engine, plan: Plan, drain_ms: int | None, tell: Tell
) -> None:
    await _nobody_works(target)
    await _hold(target, plan)
    if drain_ms is not None and not plan.drained:
        await _drain(source, target, plan, drain_ms, tell)
    await _must_be_idle(source, draining=plan.drained)
    await usage.roll_up(source)


async def _must_be_empty(target: Engine) -> None:
    async for items in _pages(target):
        there = sorted({_kind(item) for item in items} - {"copy"})
        if there:
            raise Conflict(
                f"The target is not empty (there is something of kind {', '.join(there)}): copy "
                "into another file, schema, namespace or database."
            )


async def _must_be_idle(source: Engine, *, draining: bool) -> None:
    if draining:
        return
    running = await _running(source)
    if running:
        raise Conflict(
            f"{_many(running, 'task')} of the source {'runs' if running == 1 else 'run'}, and "
            "leases do not travel: stop its workers (they finish what they run), or use --drain."
        )
    alive = await _alive(source)
    if alive:
        raise Conflict(
            f"{_many(alive, 'worker')} of the source would take tasks during the copy: stop "
            f"{'it' if alive == 1 else 'them'}, or use --drain."
        )


async def _nobody_works(target: Engine) -> None:
    alive = await _alive(target)
    if alive:
        raise Conflict(
            f"{_many(alive, 'worker')} of the target would change tasks during the copy: start "
            f"{'it' if alive == 1 else 'them'} when the copy is done."
        )


async def _running(engine: Engine) -> int:
    query = TaskQuery.of(status=("running", "stalled"))
    return sum(count.n for count in await engine.count(query))


async def _alive(engine: Engine) -> int:
    return sum(worker.alive for worker in await engine.workers())


async def _new_plan(source: Engine, name: str) -> Plan:
    end = await source.events(EventQuery(after="$"))
    return Plan(source=name, log_end=end.next, queues=await _queues(source))


async def _queues(source: Engine) -> dict[str, Record | None]:
    """Every queue that has a task or a record, with that record."""
    records = {record.key: record for record in await source.get("queue")}
    counts = await source.count(TaskQuery(), by=("queue",))
    names = {*records, *(str(count.by[0]) for count in counts)}
    return {q: _before_us(records[q]) if q in records else None for q in sorted(names)}


async def _keep(target: Engine, plan: Plan) -> None:
    value = encode(plan)
    await target.put([Put(kind=PLAN[0], key=PLAN[1], value=value)])


async def _hold(target: Engine, plan: Plan) -> None:
    """The plan first: whoever finds a held queue finds the reason, too."""
    await _keep(target, plan)
    await target.put([Put(kind="queue", key=q, value=_paused(None)) for q in plan.queues])


async def _let_go(target: Engine, plan: Plan) -> None:
    """The queues as the source had them; then nothing is left of the copy."""
    await target.put([Put(kind="queue", key=q, value=None) for q in plan.queues])
    told = [record for record in plan.queues.values() if record is not None]
    await target.load([Item("record", encode(record)) for record in told])
    await target.put([Put(kind=PLAN[0], key=PLAN[1], value=None)])


def _paused(record: Record | None) -> bytes:
    told: dict[str, object] = decode(record.value) if record is not None else {}
    return encode({**told, "paused": True, **BY_US})


def _before_us(record: Record) -> Record | None:
    """What a queue was before a copy that was given up paused it."""
    told: dict[str, object] = decode(record.value)
    if not told.items() >= BY_US.items():
        return record
    rest = {name: value for name, value in told.items() if name not in ("paused", *BY_US)}
    return structs.replace(record, value=encode(rest)) if rest else None


async def _drain(source: Engine, target: Engine, plan: Plan, drain_ms: int, tell: Tell) -> None:
    """Pause the source and wait for what runs; leases that are over are swept up."""
    plan.paused = True
    try:
        await _wait_for_running(source, target, plan, drain_ms, tell)
    except BaseException:
        await _resume(source, plan)
        await target.put([Put(kind="queue", key=q, value=None) for q in plan.queues])
        await target.put([Put(kind=PLAN[0], key=PLAN[1], value=None)])
        raise
    plan.drained = True
    plan.log_end = (await source.events(EventQuery(after="$"))).next
    await _keep(target, plan)


async def _pause(source: Engine, target: Engine, plan: Plan) -> None:
    """All queues, also those that what still runs has spawned tasks into."""
    plan.queues = {**await _queues(source), **plan.queues}
    await _hold(target, plan)  # it knows what the queues were
    await source.put([Put(kind="queue", key=q, value=_paused(r)) for q, r in plan.queues.items()])


async def _wait_for_running(
    source: Engine, target: Engine, plan: Plan, drain_ms: int, tell: Tell
) -> None:
    clock = asyncio.get_running_loop().time
    deadline = clock() + drain_ms / 1000
    await _pause(source, target, plan)
    most = running = await _running(source)
    while running:
        tell("drain", most - running, most)
        if clock() > deadline:
            raise WaitTimeout(
                f"{_many(running, 'task')} still {'runs' if running == 1 else 'run'} on the "
                "source, whose queues are as they were again: wait longer (--drain-timeout), or "
                "cancel what runs."
            )
        await asyncio.sleep(LOOK_S)
        await source.sweep()
        await _pause(source, target, plan)
        running = await _running(source)
        most = max(most, running)
    tell("drain", most, most)


async def _resume(source: Engine, plan: Plan) -> None:
    if plan.paused:
        before = plan.queues.items()
        await source.put(
            [Put(kind="queue", key=q, value=r.value if r else None) for q, r in before]
        )


# Copying -----------------------------------------------------------------------------------------


async def _pages(engine: Engine) -> AsyncIterator[tuple[Item, ...]]:
    page = await engine.dump(None, PAGE)
    while True:
        yield page.items
        if page.next is None:
            return
        page = await engine.dump(page.next, PAGE)


async def _copy(source: Engine, target: Engine, plan: Plan, tell: Tell) -> None:
    """Page by page; the next one is read while this one is written."""
    total = sum(count.n for count in await source.count(TaskQuery()))
    page = await source.dump(plan.cursor, PAGE)
    while True:
        more = None if page.next is None else asyncio.ensure_future(source.dump(page.next, PAGE))
        try:
            await target.load([item for item in page.items if _kind(item) not in NOT_COPIED])
            _add(plan.sums, page.items)
            plan.cursor, plan.read = page.next, page.next is None
            await _keep(target, plan)
            if not plan.drained:
                await _unchanged(source, plan)
        except BaseException:
            if more is not None:
                more.cancel()
            raise
        for kind in {item.kind for item in page.items} & plan.sums.keys():
            tell(kind, plan.sums[kind].n, total if kind == "task" else None)
        if more is None:
            return
        page = await more


async def _unchanged(source: Engine, plan: Plan) -> None:
    """A look at the log shows most writers early; the sums at the end show all of them."""
    if (await source.events(EventQuery(after=plan.log_end, limit=1))).items:
        raise Conflict(
            "The source changed during the copy: stop what writes to it (workers, producers, "
            "serve), and copy again into an empty target."
        )


def _add(sums: dict[str, Sum], items: Iterable[Item]) -> None:
    """As it came: the same engine says the same again as long as nothing changes."""
    for item in items:
        if _kind(item) not in NOT_COPIED:
            sums.setdefault(item.kind, Sum()).add(item.data)


def _kind(item: Item) -> str:
    """The kind of a record, or of the item itself."""
    return decode(item.data, type=Record).kind if item.kind == "record" else item.kind


# Checking ----------------------------------------------------------------------------------------


class Found(Struct):
    """One side, read back."""

    sums: dict[str, Sum]
    """Over canonical things, by kind, and tasks by state: what both sides must have alike."""
    raw: dict[str, Sum]
    """Over the things as they came."""


class Terms(Struct, frozen=True, kw_only=True):
    """What the comparison leaves out."""

    now: Ms
    events: int = 0
    """So many events were copied."""
    swept: bool = False
    """Idle workers of a drained source go on sweeping: what comes due meanwhile is unparked and
    logged there. On the target it is still parked on a time that has passed, which is the same."""


async def _check(source: Engine, target: Engine, plan: Plan, tell: Tell) -> Found:
    copied = plan.sums.get("event", Sum()).n
    terms = Terms(now=await source.now(), events=copied, swept=plan.drained)
    ours, theirs = await asyncio.gather(
        _summed(source, "source", tell, terms), _summed(target, "target", tell, terms)
    )
    if ours.sums == theirs.sums:
        if not plan.drained:
            await _unchanged(source, plan)
        return theirs
    if ours.raw != plan.sums:
        raise Conflict(
            f"The source changed during the copy ({_differences(plan.sums, ours.raw)}): stop what "
            "writes to it (workers, producers, serve), and copy again into an empty target."
        )
    raise Conflict(
        f"The copy is not what the source is ({_differences(ours.sums, theirs.sums)}): did "
        "somebody write to the target? Copy again into an empty one."
    )


def _differences(before: Mapping[str, Sum], after: Mapping[str, Sum]) -> str:
    told = []
    for kind in sorted({*before, *after}):
        one, other = before.get(kind, Sum()), after.get(kind, Sum())
        if one.n != other.n:
            told.append(f"{kind}: {one.n:,} and {other.n:,}")
        elif one != other:
            told.append(f"{kind}: some of {one.n:,} differ")
    return "; ".join(told)


async def _summed(engine: Engine, side: str, tell: Tell, terms: Terms | None = None) -> Found:
    terms = terms or Terms(now=await engine.now())
    found = Found({}, {})
    done = events = 0
    async for items in _pages(engine):
        _add(found.raw, items)
        for item in items:
            events += item.kind == "event"
            told = canonical(item, events, terms)
            if told is not None:
                found.sums.setdefault(told[0], Sum()).add(told[1])
        done += len(items)
        tell(f"check {side}", done, None)
    return found


def canonical(item: Item, place: int, terms: Terms) -> tuple[str, bytes] | None:
    """What every engine must say alike of a thing, by kind (of tasks: by state); None where there
    is nothing to compare.

    An event is told with its place in the log, so that their order counts too; its cursor, and
    what is read from its task, belong to the engine.
    """
    match item.kind:
        case "task":
            return _canonical_task(decode(item.data, type=Dumped), terms)
        case "event":
            event = decode(item.data, type=Event)
            if terms.swept and place > terms.events and event.kind == "state":
                return None
            told = structs.replace(event, cursor=str(place), type=None, queue=None)
            return "event", encode(told)
        case "record":
            record = decode(item.data, type=Record)
            soon = terms.now + EXPIRES_SOON_MS
            ends_soon = record.expires_at is not None and record.expires_at < soon
            return None if record.kind in NOT_COPIED or ends_soon else ("record", item.data)
        case "gauge":
            gauge = decode(item.data, type=Gauge)
            gauge.used, gauge.probe = 0, ""
            return None if gauge == Gauge(gauge.key) else ("gauge", encode(gauge))
    return "edge", item.data


def _canonical_task(dumped: Dumped, terms: Terms) -> tuple[str, bytes]:
    """Sets have no order, and the history of attempts is written anew by some engines."""
    task, wake_at = dumped.task, dumped.wake_at
    came_due = task.state == "pending" and (wake_at or task.run_at) <= terms.now
    if terms.swept and came_due and task.parked != "deps":
        wake_at = None
        task = structs.replace(task, parked=None, status="ready", version=0, updated_at=0)
    attempts = decode(task.attempts)
    task = structs.replace(task, after=tuple(sorted(task.after)), attempts=b"")
    attrs = tuple(sorted(dumped.attrs))
    told = structs.replace(dumped, task=task, wake_at=wake_at, attrs=attrs)
    return f"task {task.state}", encode((told, attempts))


def _many(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"
