"""Schedules: tasks that are made by the clock, one firing for the whole fleet.

A schedule is a record (kind `schedule`: what to enqueue, when, and how) and one living task of type
`outlast.schedule`, which sleeps until the next firing, enqueues what is due and sleeps again. How
far it has come is a record of its own (kind `schedule_state`). What it enqueues has an id made from
name and moment, so a firing that is repeated after a crash is the same firing. Whoever changes a
schedule sends a signal to its task, which so looks again also when it was firing just then.

A firing that is less than `GRACE_MS` late is late, not missed. Of those that were missed, while no
worker ran, `catch_up` says what becomes: the `latest` is fired (the default), `all`, or `none`.
`overlap` says what becomes of a firing while the task of the one before still lives: it runs beside
it (`allow`), is left out (`skip`), or takes its place (`cancel`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from outlast import definitions
from outlast.context import Context
from outlast.core.cron import Once, Timetable, timetable
from outlast.core.durations import Duration, to_ms
from outlast.core.errors import BadInput, Conflict, NotFound, TooLarge, UnknownType
from outlast.core.ids import id_for, new_id
from outlast.core.model import NewTask, Put, Record, Signal, TaskId, TaskQuery
from outlast.core.states import Ms
from outlast.handle import Handle
from outlast.options import moment_of, name_of
from outlast.steps import Suspended, Wait
from outlast.views import View, iso, seconds

if TYPE_CHECKING:
    from outlast.app import Outlast
    from outlast.engine import Engine

logger: Final = logging.getLogger("outlast.schedules")

TYPE: Final = "outlast.schedule"
KIND: Final = "schedule"
STATE: Final = "schedule_state"
LOOK: Final = "look"
LIVING: Final = ("ready", "scheduled", "retrying", "throttled", "blocked", "running", "stalled")
GRACE_MS: Final = 60_000
MAX_AT_ONCE: Final = 500
"""Firings that one run enqueues; when more are due it runs again."""
AHEAD: Final = 10
"""Firings that are told of one schedule."""
LEFT_MS, LEFT_LOOK_MS = 2_000, 200
"""For so long it is left to workers of a program that has the type, whose queue, limits and so on
are not known elsewhere; and how soon it is offered to them again."""
UNKNOWN_MS, UNKNOWN_MOST_MS = 1_000, 60_000
"""How soon it looks again for somebody who knows the type."""
FAR_MS: Final = 365 * 86_400_000
MAX_JITTER_MS: Final = 86_400_000
# How far back the latest missed firing is looked for, each time from scratch.
_BACK_MS: Final = (3_600_000, 86_400_000, 8 * 86_400_000, 32 * 86_400_000, 367 * 86_400_000)

T = TypeVar("T")
CatchUp = Literal["latest", "all", "none"]
Overlap = Literal["allow", "skip", "cancel"]


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a schedule is, as its record keeps it."""

    name: str
    type: str
    payload: dict[str, Any] = {}
    every: str | None = None
    """A cron expression or a span; None when it is `at` one moment."""
    tz: str = "UTC"
    at: Ms | None = None
    options: dict[str, Any] = {}
    """Options of the tasks, as `POST /tasks` takes them."""
    catch_up: CatchUp = "latest"
    overlap: Overlap = "allow"
    jitter_ms: int = 0
    source: str | None = None

    @property
    def timetable(self) -> Timetable:
        if self.every is None:
            return Once(self.at or 0)
        return timetable(self.every, self.tz)


class Stand(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a schedule has come."""

    slot: Ms
    """Everything up to here was fired, or left out."""
    task: TaskId | None = None
    """What was fired last."""
    paused: bool = False
    error: str | None = None
    """Why the last firing made no task."""


class Listed(Struct, frozen=True, kw_only=True):
    """A schedule with how it stands, for people."""

    schedule: Schedule
    stand: Stand | None
    next: tuple[Ms, ...]


# Keeping them ------------------------------------------------------------------------------------


def schedule_of(
    name: str,
    type: str,
    payload: Mapping[str, Any],
    *,
    every: Duration | datetime,
    tz: str = "UTC",
    catch_up: str = "latest",
    overlap: str = "allow",
    jitter: Duration = 0,
    options: Mapping[str, Any] | None = None,
) -> Schedule:
    """A schedule, checked."""
    timetable(every, tz)  # which refuses what is none
    moment = isinstance(every, datetime)
    for field, value, known in (
        ("catch_up", catch_up, ("latest", "all", "none")),
        ("overlap", overlap, ("allow", "skip", "cancel")),
    ):
        if value not in known:
            raise BadInput(f"{field}={value!r}: give {', '.join(known)}.", field=field)
    jitter_ms = to_ms(jitter)
    if jitter_ms > MAX_JITTER_MS:
        raise BadInput("jitter: at most a day.", field="jitter")
    return Schedule(
        name=name_of(name, "name"),
        type=type,
        payload=dict(payload),
        every=None if moment else every if isinstance(every, str) else f"{to_ms(every)}ms",  # type: ignore[arg-type]  # a moment was told apart
        tz=tz,
        at=moment_of(every, "at") if moment else None,
        options=dict(options or {}),
        catch_up=catch_up,  # type: ignore[arg-type]  # looked at above
        overlap=overlap,  # type: ignore[arg-type]  # likewise
        jitter_ms=jitter_ms,
    )


async def publish(app: Outlast) -> None:
    """Write those that code gives. A schedule that code gave before for one of its types, and no
    longer does, is deleted; those of other programs are left alone."""
    for record in await app.engine.get(KIND):
        before, made = _decode(record.value, Schedule), app.schedules.get(record.key)
        from_code = definitions.is_from_code(record.value)
        if from_code and made is not None:
            await _turn_over(app.engine, before, made)
        elif from_code and before.type in app.handlers:
            with suppress(NotFound):  # another worker of this program was faster
                await delete(app, record.key)
    values = {name: msgspec.to_builtins(made) for name, made in app.schedules.items()}
    written = await definitions.publish(app.engine, KIND, values)
    # Of all: a task that somebody has cancelled, or that died, is made anew.
    await begin(app, [record.key for record in await app.engine.get(KIND)])
    for name in written:
        await _look(app, name)


async def save(app: Outlast, schedule: Schedule) -> Schedule:
    """Make or replace one at run time; it stays, whatever code says, until it is deleted."""
    await app.prepare(schedule.type, schedule.payload, **schedule.options)  # refused now, not later
    if schedule.timetable.after(await app.engine.now()) is None:
        raise BadInput(f"{schedule.timetable}: that is over, it would never fire.", field="at")
    value = msgspec.json.encode(schedule)
    if records := await app.engine.get(KIND, [schedule.name]):
        await _turn_over(app.engine, _decode(records[0].value, Schedule), schedule)
    else:  # how far an earlier one came is past
        await app.engine.put([Put(kind=STATE, key=schedule.name, value=None)])
    await app.engine.put([Put(kind=KIND, key=schedule.name, value=value)])
    await begin(app, [schedule.name])
    await _look(app, schedule.name)
    return schedule


async def begin(app: Outlast, names: Sequence[str]) -> None:
    """See that each has its task, and begins now; those that have are left as they are."""
    if not names:
        return
    handler = app.builtins[TYPE]
    fresh = msgspec.json.encode(Stand(slot=await app.engine.now()))
    begun = {record.key for record in await app.engine.get(STATE, names)}
    await app.engine.put(
        [Put(kind=STATE, key=name, value=fresh, expect=0) for name in names if name not in begun]
    )
    calls = [handler.options(unique_key=f"schedule:{name}").call(name=name) for name in names]
    await app.engine.enqueue([call.task for call in calls])


async def delete(app: Outlast, name: str) -> None:
    """What it has enqueued stays."""
    await _record(app.engine, name)
    puts = [Put(kind=kind, key=name, value=None) for kind in (KIND, STATE)]
    await app.engine.put(puts)
    await _look(app, name)


async def pause(app: Outlast, name: str, *, paused: bool = True) -> None:
    """Fire nothing until it is resumed; what falls in between is not fired later."""
    await _record(app.engine, name)

    def change(stand: Stand, now: Ms) -> Stand:
        slot = now if stand.paused and not paused else stand.slot
        return replace(stand, slot=slot, paused=paused)

    await _change_stand(app.engine, name, change)
    await _look(app, name)


async def run_now(app: Outlast, name: str) -> Handle[object]:
    """One firing out of turn."""
    schedule = await _record(app.engine, name)
    task = await _target(app, schedule, new_id(), None)
    await app.engine.enqueue([task])
    return Handle(app, task.id)


async def listed(app: Outlast, names: Sequence[str] | None = None, ahead: int = 1) -> list[Listed]:
    """Schedules by name, with their next firings."""
    now = await app.engine.now()
    stands = {r.key: _decode(r.value, Stand) for r in await app.engine.get(STATE, names)}
    found = []
    for record in sorted(await app.engine.get(KIND, names), key=lambda record: record.key):
        schedule, stand = _decode(record.value, Schedule), stands.get(record.key)
        table = schedule.timetable
        next: list[Ms] = []
        at = None if stand is not None and stand.paused else table.after(now)
        while at is not None and len(next) < ahead:
            next.append(at)
            at = table.after(at)
        found.append(Listed(schedule=schedule, stand=stand, next=tuple(next)))
    return found


async def views(app: Outlast, names: Sequence[str] | None = None, ahead: int = 3) -> list[View]:
    """Schedules as HTTP and the command line show them."""
    return [_view(app, one) for one in await listed(app, names, ahead)]


async def view(app: Outlast, name: str) -> View:
    await _record(app.engine, name)
    [found] = await views(app, [name], AHEAD)
    return found


def _view(app: Outlast, found: Listed) -> View:
    schedule, stand = found.schedule, found.stand
    hidden = app.redactor.hidden_of(schedule.type).payload
    payload = app.redactor.shown(msgspec.json.encode(schedule.payload), hidden)
    return {
        "name": schedule.name,
        "type": schedule.type,
        "payload": msgspec.Raw(payload),
        "every": schedule.every,
        "at": iso(schedule.at),
        "tz": schedule.tz,
        "catch_up": schedule.catch_up,
        "overlap": schedule.overlap,
        "jitter": seconds(schedule.jitter_ms),
        "options": schedule.options,
        "source": "code" if schedule.source == "code" else "people",
        "paused": stand is not None and stand.paused,
        "error": stand and stand.error,
        "last_task": stand and stand.task,
        "last_at": iso(stand.slot) if stand is not None and stand.task else None,
        "next": [iso(at) for at in found.next],
    }


# Firing ------------------------------------------------------------------------------------------


async def fire(app: Outlast, ctx: Context, name: str) -> None:
    """Enqueue what is due and sleep until the next. Ends when the schedule is gone or over."""
    records = await app.engine.get(KIND, [name])
    if not records:
        return
    schedule = _decode(records[0].value, Schedule)
    table, now = schedule.timetable, ctx.now
    record, stand = await _stand(app.engine, name)
    stand = stand or Stand(slot=now)
    if stand.paused:
        _sleep(ctx, now + FAR_MS)
    slots = due(table, stand.slot, now, schedule.catch_up)
    if slots:
        if app.find(schedule.type) is None and now - slots[0] < LEFT_MS:
            _sleep(ctx, now + LEFT_LOOK_MS)  # others know what is chosen for the type
        try:
            tasks, error = await _targets(app, schedule, slots)
        except UnknownType as unknown:
            # Those who know it are away, as in a deploy: it is missed until they are back.
            logger.warning("Schedule %s waits: %s", name, unknown)
            await _put_stand(app.engine, name, replace(stand, error=str(unknown)), record)
            _sleep(ctx, now + min(max((now - slots[0]) // 10, UNKNOWN_MS), UNKNOWN_MOST_MS))
        # First the tasks, whose ids make a repetition harmless, then how far we are.
        await ctx.spawn(tasks)
        task = tasks[-1].id if tasks else stand.task
        fired = Stand(slot=slots[-1], task=task, error=error)
        if not await _put_stand(app.engine, name, fired, record):
            raise Suspended(Wait(until=now))  # paused, resumed or deleted meanwhile: look again
    if len(slots) == MAX_AT_ONCE:
        raise Suspended(Wait(until=now))
    at = table.after(now)
    if at is not None:
        _sleep(ctx, at)


def _sleep(ctx: Context, until: Ms) -> NoReturn:
    """Until then, or until somebody says that it is to look: also if that was since it began."""
    raise Suspended(Wait(until=until, signal=LOOK, awaits=ctx.heard(LOOK) + 1))


def due(table: Timetable, since: Ms, now: Ms, catch_up: CatchUp) -> list[Ms]:
    """The firings behind `since` that are to be made up to now, oldest first."""
    if catch_up == "all":
        return _between(table, since, now)
    late = _between(table, max(since, now - GRACE_MS), now)
    if late or catch_up == "none":
        return late
    for back_ms in _BACK_MS:
        missed = _between(table, max(since, now - back_ms), now, most=1 << 20)
        if missed or now - back_ms <= since:
            return missed[-1:]
    return []


def _between(table: Timetable, since: Ms, now: Ms, most: int = MAX_AT_ONCE) -> list[Ms]:
    found: list[Ms] = []
    at = table.after(since)
    while at is not None and at <= now and len(found) < most:
        found.append(at)
        at = table.after(at)
    return found


async def _targets(
    app: Outlast, schedule: Schedule, slots: Sequence[Ms]
) -> tuple[tuple[NewTask, ...], str | None]:
    """The tasks of these firings, and why there are none when they cannot be made."""
    from outlast import saga, steering

    if schedule.overlap != "allow":
        slots = slots[-1:]
    ids = [id_for(slot, f"{schedule.name} {slot}") for slot in slots]
    try:
        made = [await _target(app, schedule, id, slot) for id, slot in zip(ids, slots, strict=True)]
    except (BadInput, TooLarge) as error:
        logger.error("Schedule %s made no task: %s", schedule.name, error)
        return (), str(error)
    if schedule.overlap != "allow":
        # Those that people have run as well, but not this very firing, before a crash.
        query = TaskQuery.of(tag=f"schedule:{schedule.name}", status=LIVING)
        living = [task async for task in saga.all_of(app, query) if task.id not in ids]
        if living and schedule.overlap == "skip":
            return (), None
        for task in living:
            with suppress(Conflict, NotFound):
                await steering.cancel(app, task.id, f"replaced by schedule {schedule.name}")
    return tuple(made), None


async def _target(app: Outlast, schedule: Schedule, id: TaskId, slot: Ms | None) -> NewTask:
    call = await app.prepare(schedule.type, schedule.payload, **schedule.options)
    if call.limits:
        await app.define(call.limits)
    tags = tuple(dict.fromkeys((*call.task.tags, f"schedule:{schedule.name}")))
    if slot is not None and schedule.jitter_ms:
        slot += int(id[-8:], 16) % schedule.jitter_ms  # the same for whoever fires it
    return replace(call.task, id=id, tags=tags, run_at=slot)


async def _record(engine: Engine, name: str) -> Schedule:
    records = await engine.get(KIND, [name])
    if not records:
        raise NotFound(f"There is no schedule {name!r}.")
    return _decode(records[0].value, Schedule)


async def _stand(engine: Engine, name: str) -> tuple[Record | None, Stand | None]:
    records = await engine.get(STATE, [name])
    return (records[0], _decode(records[0].value, Stand)) if records else (None, None)


async def _put_stand(engine: Engine, name: str, stand: Stand, before: Record | None) -> bool:
    version = 0 if before is None else before.version
    put = Put(kind=STATE, key=name, value=msgspec.json.encode(stand), expect=version)
    [written] = await engine.put([put])
    return written is not None


async def _change_stand(engine: Engine, name: str, change: Callable[[Stand, Ms], Stand]) -> None:
    while True:
        record, stand = await _stand(engine, name)
        now = await engine.now()
        if await _put_stand(engine, name, change(stand or Stand(slot=now), now), record):
            return


async def _turn_over(engine: Engine, before: Schedule, after: Schedule) -> None:
    """Another timetable begins now: what it would have fired until now was not missed."""
    if (before.every, before.tz, before.at) != (after.every, after.tz, after.at):
        await _change_stand(
            engine, after.name, lambda stand, now: replace(stand, slot=max(stand.slot, now))
        )


async def _look(app: Outlast, name: str) -> None:
    """Have its task look again: now, or when it is done with what it does."""
    query = TaskQuery.of(unique_key=f"schedule:{name}", status=LIVING)
    living = [task.id for task in (await app.engine.tasks(query)).items]
    await app.engine.alter(living, Signal(LOOK))


def _decode(value: bytes, wanted: type[T]) -> T:
    return msgspec.json.decode(value, type=wanted)
