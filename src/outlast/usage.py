"""What was used, from the log: by task, and rolled up by day, type, queue, model, user and session.

A report is a `usage` event, written in the same step as everything else its attempt says. The sums
are records, brought up to date by whoever wants to read them. So that they are exact whoever dies
when, a batch of events is first *announced*, with what it adds to which sum, in the one record that
also holds the cursor; then added; then the cursor moves on. Anybody can finish what another one has
announced: a sum remembers the last batch it has taken in, and takes none twice.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Final, Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from outlast.core.errors import BadInput, suggest
from outlast.core.limits import DAY_MS
from outlast.core.model import Cursor, Event, EventQuery, Put, Record, TaskId
from outlast.core.states import Ms
from outlast.core.usage import Sum, read_usage
from outlast.engine import Engine
from outlast.stream import so_far

By = Literal["day", "type", "queue", "model", "user", "session"]
BYS: Final[tuple[By, ...]] = get_args(By)

KIND: Final = "usage"
CURSOR: Final = "cursor"
PAGE: Final = 200
MOST_PAGES: Final = 5_000
"""That one reader takes in before it answers: a million reports."""
SHOWN_DAYS: Final = 30
COARSE: Final = ("type", "queue", "model")
FINE: Final = (*COARSE, "user", "session")
KEPT_DAYS: Final[Mapping[tuple[str, ...], int]] = {COARSE: 400, FINE: 92}
"""Sums that know of no user are few and kept for a year; the others for a quarter."""


class Bucket(Struct, kw_only=True):
    """The sum of one day for what has these properties."""

    of: tuple[str | None, ...]
    batch: int = 0
    """The last batch that was added."""
    sum: Sum


class Added(Struct, frozen=True):
    """What a batch adds to one sum."""

    kind: str
    key: str
    of: tuple[str | None, ...]
    sum: Sum


class State(Struct, frozen=True, kw_only=True):
    """How far the log is rolled up, and the batch that is on its way."""

    cursor: Cursor | None = None
    batch: int = 0
    to: Cursor | None = None
    added: tuple[Added, ...] = ()


# Of one task -------------------------------------------------------------------------------------


class Used(Struct, frozen=True):
    """What a task has used, in all and in each attempt."""

    total: Sum
    by_attempt: dict[int, Sum]


async def used_by(engine: Engine, task_id: TaskId) -> Used:
    """As far as the log reaches back."""
    used = Used(Sum(), {})
    for event in await so_far(engine, EventQuery(task_id=task_id, kinds=(KIND,))):
        usage = read_usage(event.data)
        used.total.add(usage)
        used.by_attempt.setdefault(event.attempt, Sum()).add(usage)
    return used


def with_usage(view: dict[str, object], used: Used) -> dict[str, object]:
    """The view of a task, with what it used in all and in each attempt, if it told of anything.

    An attempt that runs is not in the history yet: what it has used is in the sum only."""
    attempts = view["attempts"]
    if not used.by_attempt or not isinstance(attempts, list):
        return view
    sums = {number: sum.view() for number, sum in used.by_attempt.items()}
    return {
        **view,
        "attempts": [{**attempt, "usage": sums.get(attempt["number"])} for attempt in attempts],
        "usage": used.total.view(),
    }


# Rolling up --------------------------------------------------------------------------------------


async def roll_up(engine: Engine, pages: int = MOST_PAGES) -> None:
    """Bring the sums up to date. Any number may do so at once, and may die doing so."""
    while pages > 0:
        state, version = await _state(engine)
        if state.to is not None:
            await _add(engine, state)
            ahead = State(cursor=state.to, batch=state.batch)
        else:
            pages -= 1
            page = await engine.events(EventQuery(after=state.cursor, kinds=(KIND,), limit=PAGE))
            if page.items:
                ahead = replace(
                    state, batch=state.batch + 1, to=page.next, added=_added(page.items)
                )
            else:
                pages = 0
                ahead = replace(state, cursor=page.next)
        if ahead != state:
            value = msgspec.json.encode(ahead)
            await engine.put([Put(kind=KIND, key=CURSOR, value=value, expect=version)])


async def adopt(source: Engine, target: Engine) -> None:
    """The target has the log and the sums of the source, which are up to date: go on from here."""
    state, _ = await _state(source)
    end = await target.events(EventQuery(after="$"))
    value = msgspec.json.encode(State(cursor=end.next, batch=state.batch))
    await target.put([Put(kind=KIND, key=CURSOR, value=value, expect=0)])


async def _state(engine: Engine) -> tuple[State, int]:
    found = await engine.get(KIND, [CURSOR])
    if not found:
        return State(), 0
    return msgspec.json.decode(found[0].value, type=State), found[0].version


def _added(events: Sequence[Event]) -> tuple[Added, ...]:
    found: dict[tuple[str, str], Added] = {}
    for event in events:
        usage = read_usage(event.data)
        told = (event.type, event.queue, usage.model, usage.user_id, event.session_id)
        for names in (COARSE, FINE):
            of, kind = told[: len(names)], _kind(names, event.at)
            key = hashlib.sha256(msgspec.json.encode(of)).hexdigest()[:32]
            added = found.setdefault((kind, key), Added(kind, key, of, Sum()))
            added.sum.add(usage)
    return tuple(found.values())


async def _add(engine: Engine, state: State) -> None:
    """What was announced, to the sums that do not have it yet."""
    left = list(state.added)
    while left:
        kinds = sorted({added.kind for added in left})
        there: dict[tuple[str, str], Record] = {}
        for kind in kinds:
            keys = [added.key for added in left if added.kind == kind]
            there |= {(kind, record.key): record for record in await engine.get(kind, keys)}
        puts = []
        for added in left:
            record = there.get((added.kind, added.key))
            bucket = Bucket(of=added.of, sum=Sum()) if record is None else _bucket(record)
            if bucket.batch >= state.batch:
                continue
            bucket.batch = state.batch
            bucket.sum.add(added.sum)
            ttl_ms = (KEPT_DAYS[COARSE if len(added.of) == len(COARSE) else FINE] + 1) * DAY_MS
            expect = 0 if record is None else record.version
            value = msgspec.json.encode(bucket)
            puts.append(
                Put(kind=added.kind, key=added.key, value=value, expect=expect, ttl_ms=ttl_ms)
            )
        if not puts:
            return
        written = await engine.put(puts)
        lost = {(p.kind, p.key) for p, w in zip(puts, written, strict=True) if w is None}
        left = [added for added in left if (added.kind, added.key) in lost]


def _bucket(record: Record) -> Bucket:
    return msgspec.json.decode(record.value, type=Bucket)


def _kind(names: tuple[str, ...], at: Ms) -> str:
    return f"{KIND}.{len(names)}:{day_of(at)}"


# Asking ------------------------------------------------------------------------------------------


def day_of(at: Ms) -> str:
    """The day of the calendar, in UTC: `2026-11-16`."""
    return datetime.fromtimestamp(at / 1_000, UTC).date().isoformat()


WHERE: Final[Mapping[str, By]] = {
    "type": "type",
    "queue": "queue",
    "model": "model",
    "user_id": "user",
    "session_id": "session",
}
"""As it is asked for -> the property it picks by."""


def picked(told: Mapping[str, str]) -> dict[str, str]:
    """What was asked for, by property; other things that were told are left out."""
    return {WHERE[name]: value for name, value in told.items() if name in WHERE}


async def usage(
    engine: Engine,
    by: str = "day",
    *,
    since: str | None = None,
    until: str | None = None,
    where: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Sums of the days from `since` to `until`, both included, by one property.

    `where` picks what has other properties: `{"user": "ada"}`.
    """
    for name in (by, *(where or {})):
        if name not in BYS:
            hint = suggest(name, BYS) or "."
            raise BadInput(
                f"There is no usage by {name[:40]!r}{hint} {', '.join(BYS)}.", field="by"
            )
    await roll_up(engine)
    names = FINE if {by, *(where or {})} & set(FINE[len(COARSE) :]) else COARSE
    days = _days(await engine.now(), since, until, KEPT_DAYS[names])
    sums: dict[str | None, Sum] = {}
    total = Sum()
    for day, records in zip(days, await _read(engine, names, days), strict=True):
        for record in records:
            bucket = _bucket(record)
            told = {"day": day, **dict(zip(names, bucket.of, strict=True))}
            if all(told[name] == value for name, value in (where or {}).items()):
                sums.setdefault(told[by], Sum()).add(bucket.sum)
                total.add(bucket.sum)
    order = sorted(sums.items(), key=lambda item: _order(by, item[0], item[1]))
    return {
        "by": by,
        "from": days[0],
        "to": days[-1],
        "items": [{by: value, **sum.view()} for value, sum in order],
        "total": total.view(),
        "next": None,
    }


async def _read(engine: Engine, names: tuple[str, ...], days: Sequence[str]) -> list[list[Record]]:
    found: list[list[Record]] = []
    for start in range(0, len(days), SHOWN_DAYS):
        kinds = [f"{KIND}.{len(names)}:{day}" for day in days[start : start + SHOWN_DAYS]]
        found += await asyncio.gather(*(engine.get(kind) for kind in kinds))
    return found


def _order(by: str, value: str | None, sum: Sum) -> tuple[object, ...]:
    """Days as they come; else the dearest first."""
    return (value,) if by == "day" else (-sum.billionths, -sum.tokens, value or "")


def _days(now: Ms, since: str | None, until: str | None, kept: int) -> list[str]:
    last = _day(until, "to") if until else date.fromisoformat(day_of(now))
    first = _day(since, "from") if since else last - timedelta(days=SHOWN_DAYS - 1)
    if last < first:
        raise BadInput(f"from={first} lies after to={last}.", field="from")
    oldest = date.fromisoformat(day_of(now)) - timedelta(days=kept)
    first, last = max(first, min(oldest, last)), min(last, first + timedelta(days=kept))
    return [(first + timedelta(days=n)).isoformat() for n in range((last - first).days + 1)]


def _day(text: str, field: str) -> date:
    with suppress(ValueError):
        day = date.fromisoformat(text.partition("T")[0])  # of a moment, its day
        if 1970 < day.year < 9000:
            return day
    raise BadInput(f"{field}={text[:40]!r}: a day is needed, as in 2026-11-16.", field=field)
