"""Reading: tasks by query, counts, workers, gauges, events, records."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import asyncpg

from outlast.core import limits as gate
from outlast.core.errors import BadInput
from outlast.core.limits import Gauge, Limit, resolve
from outlast.core.model import (
    QUERY_FIELDS,
    Count,
    Event,
    EventPage,
    EventQuery,
    GaugeView,
    Memory,
    Page,
    Record,
    SignalIn,
    Step,
    Task,
    TaskId,
    TaskQuery,
    Term,
    WorkerInfo,
    WorkerView,
)
from outlast.core.states import STATUSES, Ms
from outlast.engines._payloads import path_of, spellings
from outlast.engines._shared import statements, task_of
from outlast.engines.postgres.db import PACKAGE, decode, in_schema

SCAN: Final = 50_000
"""Rows that one page of a query without an index looks at; about 50 ms."""
HELD_BACK_S: Final = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
"""The waits of a reader that sees events beyond a transaction still running: most end at once."""

STATUS_SQL: Final[dict[str, str]] = {
    "ready": "t.state = 'pending' and t.parked is null",
    "scheduled": "t.state = 'pending' and t.parked = 'time' and t.lane = 'primary'",
    "retrying": "t.state = 'pending' and t.parked = 'time' and t.lane = 'retry'",
    "throttled": "t.state = 'pending' and t.parked is not null and t.parked like 'limit:%'",
    "blocked": "t.state = 'pending' and t.parked is not null and "
    "(t.parked = 'deps' or t.parked like 'signal:%')",
    "running": "t.state = 'running' and coalesce(w.lease_until, {now}) >= {now}",
    "stalled": "t.state = 'running' and w.lease_until < {now}",
    "completed": "t.state = 'completed' and t.completed_at is not null",
    "cancelled": "t.state = 'cancelled' and t.completed_at is not null",
    "dead": "t.state = 'dead' and t.completed_at is not null",
}
NUMBERS: Final = {"priority", "created_at", "completed_at"}
COLUMNS: Final = {
    "id", "type", "queue", "lane", "priority", "session_id", "user_id", "workflow_id", "parent_id",
    "unique_key", "worker", "fingerprint", "reason", "created_at", "completed_at", "state",
    "parked",
}  # fmt: skip
INDEXED: Final = {"id", "session_id", "user_id", "workflow_id", "parent_id", "worker"}
RARE: Final = {"running", "stalled", "dead", "cancelled", "throttled", "blocked", "retrying"}
"""Statuses that an index finds; the others are found soonest from the newest on."""

_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def read_sql(schema: str) -> dict[str, str]:
    return {name: in_schema(text, schema) for name, text in statements(PACKAGE, "read.sql").items()}


def is_id(text: str) -> bool:
    """Anything else is the id of no task, and the server would not even look."""
    return _ID.fullmatch(text) is not None


class Where:
    """The conditions of a query, with their values by number."""

    def __init__(self, query: TaskQuery, skew_ms: Ms, places: dict[str, Any], schema: str) -> None:
        self.values: list[Any] = []
        self.parts: list[str] = []
        self.indexed = False
        self.source = f"{schema}.task"
        self._places = places
        self._schema = schema
        self._skew_ms = skew_ms
        for term in query.terms:
            found = self._term(term)
            self.parts.append(f"not coalesce(({found}), false)" if term.negated else f"({found})")

    def bind(self, value: object, kind: str) -> str:
        self.values.append(value)
        return f"${len(self.values)}::{kind}"

    def text(self) -> str:
        return " and ".join(self.parts) or "true"

    def now(self) -> str:
        """Engine time, once per statement."""
        return f"(select {self._schema}.now_ms({self.bind(self._skew_ms, 'bigint')}))"

    def status(self, status: str) -> str:
        condition = STATUS_SQL[status]
        return condition.format(now=self.now()) if "{" in condition else condition

    def _term(self, term: Term) -> str:
        field = term.field
        if field == "status":
            return self._status(term)
        if field == "tag" or field.startswith("attr."):
            self.indexed |= not term.negated
            return (
                f"t.id in (select task from {self._schema}.label where name = "
                f"{self.bind(field, 'text')} and value = any("
                f"{self.bind([str(v) for v in term.values], 'text[]')}))"
            )
        if field == "limit":
            return f"t.limits && {self.bind([str(v) for v in term.values], 'text[]')}"
        if field == "text":
            return _any(
                "position(lower(encode(convert_to("
                f"{self.bind(str(v), 'text')}, 'UTF8'), 'escape')) "
                "in lower(encode(t.payload, 'escape'))) > 0"
                for v in spellings(term.values)
            )
        if field.startswith("payload."):
            path = self.bind(path_of(field), "text[]")
            wanted = self.bind([str(v) for v in term.values], "text[]")
            return f"{self._schema}.at_path(t.payload, {path}) = any({wanted})"
        if field == "ahead_of":
            return _any(self._ahead_of(str(v)) for v in term.values)
        if field not in QUERY_FIELDS or field not in COLUMNS:
            known = ", ".join(sorted(QUERY_FIELDS))
            raise BadInput(f"Unknown field {field!r} in a query; known are {known}", field=field)
        if term.op not in ("=", "<", ">"):
            raise BadInput(f"Unknown comparison {term.op!r} in a query", field=field)
        found = self._column(term)
        if field in INDEXED and term.op == "=" and not term.negated:
            self.indexed = True
            if field == "id":
                self.source = f"{self._schema}.by_id(${len(self.values)}::uuid[])"
        return found

    def _column(self, term: Term) -> str:
        field, values = term.field, list(term.values)
        if field in NUMBERS:
            numbers = [v for v in values if isinstance(v, int)]
            return f"t.{field} {term.op} any({self.bind(numbers, 'bigint[]')})"
        if field == "id":
            ids = [v for v in values if is_id(str(v))]
            return f"t.id {term.op} any({self.bind(ids, 'uuid[]')})"
        # Texts are in the order of their bytes, as on every engine, not in that of a language.
        column = f"t.{field}" if term.op == "=" else f't.{field} collate "C"'
        found = f"{column} {term.op} any({self.bind([str(v) for v in values], 'text[]')})"
        # Said again, the partial index on the column is seen to fit.
        return f"t.state = 'running' and {found}" if field == "worker" else found

    def _status(self, term: Term) -> str:
        for status in term.values:
            if status not in STATUS_SQL:
                known = ", ".join(STATUSES)
                raise BadInput(f"Unknown status {status!r}; known are {known}", field="status")
        if not term.negated and all(status in RARE for status in term.values):
            self.indexed = True
        return _any(self.status(str(status)) for status in term.values)

    def _ahead_of(self, task_id: str) -> str:
        place = self._places.get(task_id)
        if place is None:
            return "false"
        self.indexed = True
        return (
            f"t.queue = {self.bind(place[0], 'text')} and t.lane = {self.bind(place[1], 'text')} "
            "and t.state = 'pending' and t.parked is null and (t.priority, t.rank, t.id) < "
            f"({self.bind(place[2], 'integer')}, {self.bind(place[3], 'bigint')}, "
            f"{self.bind(task_id, 'uuid')})"
        )


def _any(parts: Iterable[str]) -> str:
    return " or ".join(f"({part})" for part in parts) or "false"


async def _where(conn: asyncpg.Connection, query: TaskQuery, skew_ms: Ms, schema: str) -> Where:
    places = {}
    for term in query.terms:
        if term.field == "ahead_of":
            for task_id in filter(is_id, map(str, term.values)):
                places[task_id] = await conn.fetchrow(read_sql(schema)["position"], task_id)
    return Where(query, skew_ms, places, schema)


# tasks -------------------------------------------------------------------------------------------


async def memory(conn: asyncpg.Connection, task_id: TaskId, schema: str) -> Memory:
    sql = read_sql(schema)
    steps = await conn.fetch(sql["steps"], task_id)
    inbox = await conn.fetch(sql["inbox"], task_id)
    return Memory(tuple(Step(*row) for row in steps), tuple(SignalIn(*row) for row in inbox))


async def tasks(conn: asyncpg.Connection, query: TaskQuery, skew_ms: Ms, schema: str) -> Page[Task]:
    """Newest first; the cursor is the place of the last one looked at."""
    sql = read_sql(schema)
    where = await _where(conn, query, skew_ms, schema)
    before = _place_of(query.cursor)
    parts = [where.text()]
    bottom = 0
    if before is not None:
        parts.append(f"t.seq < {where.bind(before, 'bigint')}")
    if query.terms and not where.indexed:
        top = before if before is not None else await conn.fetchval(sql["top"])
        bottom = max(top - SCAN, 0)
        parts.append(f"t.seq >= {where.bind(bottom, 'bigint')}")
    limit = where.bind(query.limit + 1, "bigint")
    select = sql["tasks"].replace("%now", where.now()).replace("%tasks", where.source)
    statement = f"{select} where {' and '.join(parts)} order by t.seq desc limit {limit}"
    found = await conn.fetch(statement, *where.values)
    items = tuple(_task(columns) for columns in found[: query.limit])
    if len(found) > query.limit:
        return Page(items, str(found[query.limit - 1][36]))
    return Page(items, str(bottom) if bottom > 1 else None)


def _place_of(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise BadInput(f"Not a cursor: {cursor[:40]!r}; take it from `next`", field="cursor")
    return int(cursor)


def _task(row: Any) -> Task:
    _, error, attempts, progress, tags, followed, limits, units, after, now = row[36:]
    return task_of(
        row,
        now,
        error=error,
        attempts=(attempts or "[]").encode(),
        progress=progress,
        tags=tuple(tags or ()),
        followed=followed,
        limits=tuple(zip(limits, units, strict=True)) if limits else (),
        after=tuple(after),
    )


async def count(
    conn: asyncpg.Connection, query: TaskQuery, by: Sequence[str], skew_ms: Ms, schema: str
) -> list[Count]:
    """One statement per status, so that each can use the index made for it; all see the same."""
    async with conn.transaction(isolation="repeatable_read", readonly=True):
        return await _count(conn, query, by, skew_ms, schema)


async def _count(
    conn: asyncpg.Connection, query: TaskQuery, by: Sequence[str], skew_ms: Ms, schema: str
) -> list[Count]:
    for column in by:
        if column not in COLUMNS and column != "status":
            raise BadInput(f"Cannot count by {column!r}", field="by")
    columns = ["t.id::text" if c == "id" else f"t.{c}" for c in by if c != "status"]
    found: dict[tuple[Any, ...], tuple[int, Ms | None]] = {}
    for status in STATUSES:
        where = await _where(conn, query, skew_ms, schema)
        oldest = "min(t.run_at)" if status == "ready" else "null::bigint"
        select = ", ".join(["count(*)", oldest, *columns])
        statement = (
            f"select {select} from {schema}.task t left join {schema}.worker w on w.id = t.worker "
            f"where {where.status(status)} and {where.text()}"
        )
        if columns:
            statement += " group by " + ", ".join(columns)
        for n, since, *values in await conn.fetch(statement, *where.values):
            if n == 0:
                continue
            rest = iter(values)
            key = tuple(status if column == "status" else next(rest) for column in by)
            had, before = found.get(key, (0, None))
            ages = [at for at in (since, before) if at is not None]
            found[key] = (had + n, min(ages, default=None))
    return [Count(key, n, oldest) for key, (n, oldest) in sorted(found.items(), key=str)]


# workers and gauges ------------------------------------------------------------------------------


async def workers(conn: asyncpg.Connection, now: Ms, schema: str) -> list[WorkerView]:
    return [
        WorkerView(
            id=w[0],
            info=decode(w[1], type=WorkerInfo),
            seen_at=w[2],
            lease_until=w[3],
            running=w[5],
            alive=not w[4] and w[3] > now,
        )
        for w in await conn.fetch(read_sql(schema)["workers"])
    ]


def gauge_of(key: str, row: Any) -> Gauge:
    """The columns of a gauge without its key; all null is a new gauge."""
    used, tat_us, paused_until, open_until, probe, buckets = row
    if used is None:
        return Gauge(key)
    triples = [list(buckets[n : n + 3]) for n in range(0, len(buckets), 3)]
    return Gauge(key, used, tat_us, paused_until, open_until, probe, triples)


async def gauges(
    conn: asyncpg.Connection, keys: Sequence[str] | None, now: Ms, schema: str
) -> list[GaugeView]:
    sql = read_sql(schema)
    stored: dict[str, bytes] = {r[0]: r[1] for r in await conn.fetch(sql["definitions"])}
    definitions = {key: Limit.from_json(decode(data)) for key, data in stored.items()}
    if keys is None:
        keys = [r[0] for r in await conn.fetch(sql["gauge_keys"])]
    views = []
    for row in await conn.fetch(sql["gauges"], list(keys)):
        key, waiting, holders = row[0], row[7], row[8]
        gauge = gauge_of(key, row[1:7])
        limit = resolve(key, definitions)
        views.append(
            GaugeView(
                key=key,
                limit=None if limit is None else stored[limit.key],
                used=gauge.used,
                waiting=waiting,
                circuit=gate.circuit(limit, gauge, now),
                open_until=gauge.open_until or None,
                paused_until=gauge.paused_until if gauge.paused_until > now else None,
                probe=gauge.probe or None,
                holders=tuple(holders),
                spent=gate.spent_of(limit, gauge, now),
            )
        )
    return views


# log ---------------------------------------------------------------------------------------------


async def events(conn: asyncpg.Connection, query: EventQuery, schema: str) -> EventPage:
    """After a cursor, in order.

    The events of one task are ordered by its row's lock and read at once. Everybody else stays
    below whoever still writes; what lies beyond is waited for, a little.
    """
    for wait_s in (*HELD_BACK_S, None):
        page, held_back = await _events(conn, query, schema)
        if wait_s is None or not held_back:
            break
        await asyncio.sleep(wait_s)
    return page


async def _events(
    conn: asyncpg.Connection, query: EventQuery, schema: str
) -> tuple[EventPage, bool]:
    sql = read_sql(schema)
    end = await conn.fetchval(sql["horizon"])
    one_task = query.task_id is not None
    known = one_task and is_id(str(query.task_id))
    if query.after == "$":
        if not one_task:
            return EventPage((), str(end)), await conn.fetchval(sql["beyond"], end)
        end = await conn.fetchval(sql["last_of_task"], query.task_id) if known else None
        return EventPage((), str(end or 0)), False
    after = _place_of(query.after) or 0
    values: list[Any] = [after]
    parts = ["e.seq > $1::bigint"]

    def bind(value: object, kind: str) -> str:
        values.append(value)
        return f"${len(values)}::{kind}"

    if one_task:
        parts.append(f"e.task = {bind(query.task_id, 'uuid')}" if known else "false")
    else:
        parts.append(f"e.seq <= {bind(end, 'bigint')}")
    if query.session_id is not None:
        parts.append(f"e.session_id = {bind(query.session_id, 'text')}")
    if query.workflow_id is not None:
        parts.append(f"e.workflow_id = {bind(query.workflow_id, 'text')}")
    if query.kinds:
        parts.append(f"e.kind = any({bind(list(query.kinds), 'text[]')})")
    limit = bind(query.limit, "bigint")
    statement = sql["events"].replace("%which", " and ".join(parts)).replace("%limit", limit)
    rows = await conn.fetch(statement, *values)
    items = tuple(event_of(row) for row in rows if row[0] is not None)
    pruned = rows[0][10]  # as these events were read: a sweep may have pruned meanwhile
    reset = query.after is not None and after < pruned
    if len(items) == query.limit:
        return EventPage(items, items[-1].cursor, reset), False
    if one_task:
        last = items[-1].cursor if items else str(max(after, pruned))
        return EventPage(items, last, reset), False
    held_back = not items and await conn.fetchval(sql["beyond"], end)
    return EventPage(items, str(max(end, after, pruned)), reset), held_back


def event_of(row: Any) -> Event:
    return Event(
        cursor=str(row[0]),
        kind=row[1],
        at=row[2],
        data=row[3],
        task_id=row[4],
        attempt=row[5],
        type=row[6],
        queue=row[7],
        session_id=row[8],
        workflow_id=row[9],
    )


# records -----------------------------------------------------------------------------------------


async def records(
    conn: asyncpg.Connection, kind: str, keys: Sequence[str] | None, now: Ms, schema: str
) -> list[Record]:
    wanted = None if keys is None else list(keys)
    found = await conn.fetch(read_sql(schema)["records"], kind, wanted, now)
    return [Record(kind=r[0], key=r[1], value=r[2], version=r[3], expires_at=r[4]) for r in found]
