"""dump and load: whole things, for moving from one engine to another.

A cursor of a dump is `<kind>:<place>`. Leases do not travel: a running task arrives as pending, so
the caller drains first. Loading twice is loading once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby
from typing import Any, Final

import asyncpg

from outlast.core.errors import BadInput
from outlast.core.limits import Gauge
from outlast.core.model import Dumped, Event, EventQuery, Item, Page, Record, SignalIn, TaskQuery
from outlast.core.states import Ms
from outlast.engines._shared import statements
from outlast.engines.postgres import read
from outlast.engines.postgres.db import PACKAGE, decode, encode, in_schema
from outlast.engines.postgres.records import definition

KINDS: Final = ("record", "gauge", "task", "edge", "event")


def copy_sql(schema: str) -> dict[str, str]:
    return {name: in_schema(text, schema) for name, text in statements(PACKAGE, "copy.sql").items()}


class Dumping:
    """One page of a dump."""

    def __init__(self, conn: asyncpg.Connection, schema: str, limit: int, skew_ms: Ms) -> None:
        self._conn = conn
        self._schema = schema
        self._sql = copy_sql(schema)
        self._limit = limit
        self._skew_ms = skew_ms

    async def page(self, after: str | None) -> Page[Item]:
        """Records first: whoever loads half of it has the rules already."""
        kind, _, place = (after or f"{KINDS[0]}:").partition(":")
        if kind not in KINDS:
            raise BadInput(f"Not a cursor of a dump: {after!r}", field="cursor")
        last, found = await getattr(self, f"_{kind}")(place)
        items = tuple(Item(kind, encode(value)) for value in found)  # type: ignore[arg-type]
        if last is not None:
            return Page(items, f"{kind}:{last}")
        following = KINDS.index(kind) + 1
        return Page(items, f"{KINDS[following]}:" if following < len(KINDS) else None)

    def _more(self, found: Sequence[Any]) -> bool:
        return len(found) == self._limit

    async def _record(self, place: str) -> tuple[str | None, Sequence[object]]:
        kind, _, key = place.partition("\0")
        found = await self._conn.fetch(self._sql["dump_record"], kind, key, self._limit)
        records = [
            Record(kind=r[0], key=r[1], value=r[2], version=r[3], expires_at=r[4]) for r in found
        ]
        last = f"{found[-1][0]}\0{found[-1][1]}" if self._more(found) else None
        return last, records

    async def _gauge(self, place: str) -> tuple[str | None, Sequence[object]]:
        found = await self._conn.fetch(self._sql["dump_gauge"], place, self._limit)
        gauges = [read.gauge_of(r[0], r[1:]) for r in found]
        return (found[-1][0] if self._more(found) else None), gauges

    async def _task(self, place: str) -> tuple[str | None, Sequence[object]]:
        # Both looks see the same tasks: one may be forgotten meanwhile.
        async with self._conn.transaction(isolation="repeatable_read", readonly=True):
            found = await self._conn.fetch(self._sql["dump_task"], int(place or 0), self._limit)
            query = TaskQuery.of(id=tuple(r[1] for r in found), limit=self._limit)
            page = await read.tasks(self._conn, query, self._skew_ms, self._schema)
        by_id = {task.id: task for task in page.items}
        dumped = [
            Dumped(
                task=by_id[r[1]],
                attrs=tuple((name[5:], value) for name, value in zip(r[8], r[9], strict=True)),
                steps=tuple(zip(r[10], r[11], r[12], strict=True)),
                signals=tuple(map(SignalIn, r[13], r[14], r[15])),
                fair_key=r[2],
                hold=r[3],
                wake_at=r[4],
                overdue=r[5],
                unique_until=r[6],
                digest=r[7],
            )
            for r in found
        ]
        return (str(found[-1][0]) if self._more(found) else None), dumped

    async def _edge(self, place: str) -> tuple[str | None, Sequence[object]]:
        found = await self._conn.fetch(self._sql["dump_edge"], int(place or 0), self._limit)
        return (str(found[-1][0]) if found else None), [tuple(edge[1:]) for edge in found]

    async def _event(self, place: str) -> tuple[str | None, Sequence[object]]:
        query = EventQuery(after=place or None, limit=self._limit)
        page = await read.events(self._conn, query, self._schema)
        return (page.next if self._more(page.items) else None), page.items


class Loading:
    """Writes what is not there yet, in one transaction; things of one kind together."""

    def __init__(self, conn: asyncpg.Connection, schema: str, now: Ms) -> None:
        self._conn = conn
        self._sql = copy_sql(schema)
        self._now = now
        self.topics: set[str] = set()

    async def load(self, items: Sequence[Item]) -> int:
        await self._conn.execute(self._sql["begin_log"])
        loaded = 0
        for kind, some in groupby(items, key=lambda item: item.kind):
            loaded += await getattr(self, f"_{kind}s")([item.data for item in some])
        return loaded

    async def _all(self, name: str, rows: Sequence[Sequence[object]]) -> None:
        if rows:
            await self._conn.executemany(self._sql[name], rows)

    async def _added(self, name: str, *values: object) -> int:
        return await self._conn.fetchval(self._sql[name], *values) or 0

    async def _records(self, datas: Sequence[bytes]) -> int:
        return sum([await self._record(decode(data, type=Record)) for data in datas])

    async def _record(self, r: Record) -> int:
        added = await self._added("load_record", r.kind, r.key, r.value, r.version, r.expires_at)
        if added and r.kind == "limit":
            columns = definition(r.value)
            await self._conn.execute(self._sql["load_definition"], r.key, columns, self._now)
        return added

    async def _gauges(self, datas: Sequence[bytes]) -> int:
        added = 0
        for data in datas:
            g = decode(data, type=Gauge)
            buckets = list(chain.from_iterable(g.buckets))
            added += await self._added(
                "load_gauge", g.key, g.tat_us, g.paused_until, g.open_until, buckets
            )
        return added

    async def _tasks(self, datas: Sequence[bytes]) -> int:
        dumped = {d.task.id: d for d in (decode(data, type=Dumped) for data in datas)}
        for row in await self._conn.fetch(self._sql["known_tasks"], list(dumped)):
            del dumped[row[0]]
        new = list(dumped.values())
        await self._all("load_task", [_columns(d) for d in new])
        await self._belongings(new)
        self.topics |= {f"queue:{d.task.queue}" for d in new}
        return len(new)

    async def _belongings(self, new: Sequence[Dumped]) -> None:
        await self._all("add_label", [(*label, d.task.id) for d in new for label in _labels(d)])
        steps = [(d.task.id, *step, n) for d in new for n, step in enumerate(d.steps)]
        await self._all("load_step", steps)
        signals = [
            (d.task.id, n, signal.name, signal.data, signal.at)
            for d in new
            for n, signal in enumerate(d.signals, 1)
        ]
        await self._all("load_signal", signals)
        reservations = [
            (d.task.unique_key, d.task.id, d.unique_until, d.digest)
            for d in new
            if d.task.unique_key is not None
            and (d.task.completed_at is None or d.unique_until is not None)
        ]
        await self._all("load_reservation", reservations)
        lines = [
            (d.task.parked.removeprefix("limit:"), d.task.queue, d.task.lane, self._now)
            for d in new
            if d.task.parked is not None and d.task.parked.startswith("limit:")
        ]
        await self._all("load_line", lines)

    async def _edges(self, datas: Sequence[bytes]) -> int:
        edges = [decode(data, type=tuple[str, str, int]) for data in datas]
        ups, downs = [up for up, _, _ in edges], [down for _, down, _ in edges]
        done = [bool(done) for _, _, done in edges]
        added = await self._conn.fetch(self._sql["load_edges"], ups, downs, done)
        waited_for = {row[0] for row in added if not row[1]}
        await self._all("mark_dependents", [(up,) for up in waited_for])
        await self._conn.execute(self._sql["mark_unsettled"], waited_for)  # over, and nobody told
        return len(added)

    async def _events(self, datas: Sequence[bytes]) -> int:
        loaded: str = await self._conn.fetchval(self._sql["loaded_events"]) or ""
        last = (len(loaded), loaded)
        events = [decode(data, type=Event) for data in datas]
        new = [event for event in events if (len(event.cursor), event.cursor) > last]
        if not new:
            return 0
        rows = [
            (e.at, e.task_id, e.attempt, e.kind, e.session_id, e.workflow_id, e.data) for e in new
        ]
        await self._all("load_event", rows)
        await self._conn.execute(self._sql["set_loaded_events"], new[-1].cursor)
        return len(new)


def _labels(dumped: Dumped) -> list[tuple[str, str]]:
    tags = [("tag", tag) for tag in dumped.task.tags]
    return tags + [(f"attr.{name}", value) for name, value in dumped.attrs]


def _columns(dumped: Dumped) -> tuple[object, ...]:
    """What `load_task` takes."""
    t = dumped.task
    running = t.state == "running"
    ready = t.state == "pending" and t.parked is None
    due = t.run_at
    return (
        t.id, t.type, t.queue, t.lane, t.priority, "pending" if running else t.state, t.parked,
        dumped.wake_at, t.awaits, t.needs, dumped.hold, max(t.attempt - running, 0), t.number,
        t.max_attempts, t.losses, t.max_losses, t.timeout_ms, t.overdue_after_ms, t.overdue_at,
        dumped.overdue, t.max_age_ms, None if t.max_age_ms is None else due + t.max_age_ms,
        due, t.created_at, t.started_at, t.updated_at, t.completed_at,
        [key for key, _ in t.limits] or None, [n for _, n in t.limits] or None,
        dumped.fair_key, t.session_id, t.user_id, t.parent_id, t.workflow_id, t.unique_key,
        list(t.tags) or None, t.followed, bool(dumped.steps), bool(dumped.signals), t.version,
        t.reason, t.fingerprint, t.progress,
        None if t.attempts == b"[]" else t.attempts.decode(), t.error, t.result, t.payload,
        ready or running, t.meta,
    )  # fmt: skip
