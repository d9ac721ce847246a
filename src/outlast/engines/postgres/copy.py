"""dump and load: whole things, for moving from one engine to another.

A cursor of a dump is `<kind>:<place>`. Leases do not travel: a running task arrives as pending, so
the caller drains first. Loading twice is loading once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
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
    """Writes what is not there yet, in one transaction."""

    def __init__(self, conn: asyncpg.Connection, schema: str, now: Ms) -> None:
        self._conn = conn
        self._sql = copy_sql(schema)
        self._now = now
        self.topics: set[str] = set()

    async def load(self, items: Sequence[Item]) -> int:
        await self._conn.execute(self._sql["begin_log"])
        return sum([await getattr(self, f"_{item.kind}")(item.data) for item in items])

    async def _added(self, name: str, *values: object) -> int:
        return await self._conn.fetchval(self._sql[name], *values) or 0

    async def _record(self, data: bytes) -> int:
        r = decode(data, type=Record)
        added = await self._added("load_record", r.kind, r.key, r.value, r.version, r.expires_at)
        if added and r.kind == "limit":
            columns = definition(r.value)
            await self._conn.execute(self._sql["load_definition"], r.key, columns, self._now)
        return added

    async def _gauge(self, data: bytes) -> int:
        g = decode(data, type=Gauge)
        buckets = list(chain.from_iterable(g.buckets))
        return await self._added(
            "load_gauge", g.key, g.tat_us, g.paused_until, g.open_until, buckets
        )

    async def _task(self, data: bytes) -> int:
        dumped = decode(data, type=Dumped)
        t = dumped.task
        running = t.state == "running"
        ready = t.state == "pending" and t.parked is None
        due = t.run_at
        added = await self._added(
            "load_task",
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
        if added:
            await self._belongings(dumped)
            self.topics.add(f"queue:{t.queue}")
        return added

    async def _belongings(self, dumped: Dumped) -> None:
        conn, sql, task = self._conn, self._sql, dumped.task
        labels = [("tag", tag) for tag in task.tags]
        labels += [(f"attr.{name}", value) for name, value in dumped.attrs]
        for name, value in labels:
            await conn.execute(sql["add_label"], name, value, task.id)
        for n, (key, data, at) in enumerate(dumped.steps):
            await conn.execute(sql["load_step"], task.id, key, data, at, n)
        for n, signal in enumerate(dumped.signals, 1):
            await conn.execute(sql["load_signal"], task.id, n, signal.name, signal.data, signal.at)
        living = task.completed_at is None
        if task.unique_key is not None and (living or dumped.unique_until is not None):
            await conn.execute(
                sql["load_reservation"],
                task.unique_key, task.id, dumped.unique_until, dumped.digest,
            )  # fmt: skip
        if task.parked is not None and task.parked.startswith("limit:"):
            key = task.parked.removeprefix("limit:")
            await conn.execute(sql["load_line"], key, task.queue, task.lane, self._now)

    async def _edge(self, data: bytes) -> int:
        up, down, done = decode(data, type=tuple[str, str, int])
        added = await self._added("load_edge", up, down, bool(done))
        if added and not done:
            await self._conn.execute(self._sql["mark_dependents"], up)
        return added

    async def _event(self, data: bytes) -> int:
        event = decode(data, type=Event)
        loaded: str = await self._conn.fetchval(self._sql["loaded_events"]) or ""
        if (len(event.cursor), event.cursor) <= (len(loaded), loaded):
            return 0
        await self._conn.execute(
            self._sql["load_event"],
            event.at, event.task_id, event.attempt, event.kind, event.session_id,
            event.workflow_id, event.data,
        )  # fmt: skip
        await self._conn.execute(self._sql["set_loaded_events"], event.cursor)
        return 1
