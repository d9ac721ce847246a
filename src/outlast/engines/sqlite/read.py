"""Reading: tasks by query, counts, workers, gauges, events, records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import apsw

from outlast.core import limits as gate
from outlast.core.errors import BadInput
from outlast.core.limits import Limit, resolve
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
from outlast.engines._shared import task_of
from outlast.engines.sqlite.db import row, rows, sql, value
from outlast.engines.sqlite.tx import decode, encode, gauge_of, limits_of

READ: Final = sql("read.sql")
SCAN: Final = 50_000
"""Rows that one page of a query without an index looks at; about 30 ms."""

STATUS_SQL: Final[dict[str, str]] = {
    "ready": "t.state = 'pending' and t.parked is null",
    "scheduled": "t.state = 'pending' and t.parked = 'time' and t.lane = 'primary'",
    "retrying": "t.state = 'pending' and t.parked = 'time' and t.lane = 'retry'",
    "throttled": "t.state = 'pending' and t.parked >= 'limit:' and t.parked < 'limit;'",
    "blocked": "t.state = 'pending' and t.parked is not null and "
    "(t.parked = 'deps' or (t.parked >= 'signal:' and t.parked < 'signal;'))",
    "running": "t.state = 'running' and ifnull(w.lease_until, :now) >= :now",
    "stalled": "t.state = 'running' and w.lease_until < :now",
    "completed": "t.state = 'completed' and t.completed_at is not null",
    "cancelled": "t.state = 'cancelled' and t.completed_at is not null",
    "dead": "t.state = 'dead' and t.completed_at is not null",
}
COLUMNS: Final = {
    "id", "type", "queue", "lane", "priority", "session_id", "user_id", "workflow_id", "parent_id",
    "unique_key", "worker", "fingerprint", "reason", "created_at", "completed_at", "state",
    "parked",
}  # fmt: skip
INDEXED: Final = {
    "id",
    "type",
    "session_id",
    "user_id",
    "workflow_id",
    "parent_id",
    "tag",
    "worker",
}
RARE: Final = {"running", "stalled", "dead", "cancelled", "throttled", "blocked", "retrying"}
"""Statuses that an index finds; the others are found soonest from the newest on."""


class Where:
    """The conditions of a query, with their values by name."""

    def __init__(self, conn: apsw.Connection, query: TaskQuery, now: Ms) -> None:
        self.conn = conn
        self.values: dict[str, Any] = {"now": now}
        self.parts: list[str] = []
        self.indexed = False
        for term in query.terms:
            found = self._term(term)
            self.parts.append(f"not ifnull(({found}), 0)" if term.negated else f"({found})")

    def bind(self, value: object) -> str:
        name = f"v{len(self.values)}"
        self.values[name] = value
        return f":{name}"

    def text(self) -> str:
        return " and ".join(self.parts) or "1"

    def _term(self, term: Term) -> str:
        field = term.field
        if field == "status":
            return self._status(term)
        if field == "tag" or field.startswith("attr."):
            self.indexed |= not term.negated
            name = self.bind(field)
            return _any(
                "t.seq in (select seq from label "
                f"where name = {name} and value = {self.bind(str(v))})"
                for v in term.values
            )
        if field == "limit":
            return _any(
                "exists (select 1 from json_each(t.limits) l "
                f"where json_extract(l.value, '$[0]') = {self.bind(v)})"
                for v in term.values
            )
        if field == "text":
            return _any(
                f"instr(lower(cast(b.payload as text)), lower({self.bind(v)})) > 0"
                for v in spellings(term.values)
            )
        if field.startswith("payload."):
            path = self.bind(".".join(path_of(field)))
            wanted = ", ".join(self.bind(str(v)) for v in term.values)
            return f"at_path(b.payload, {path}) in ({wanted})"
        if field == "ahead_of":
            return _any(self._ahead_of(str(v)) for v in term.values)
        if field not in QUERY_FIELDS or field not in COLUMNS:
            known = ", ".join(sorted(QUERY_FIELDS))
            raise BadInput(f"Unknown field {field!r} in a query; known are {known}", field=field)
        if term.op not in ("=", "<", ">"):
            raise BadInput(f"Unknown comparison {term.op!r} in a query", field=field)
        if field in INDEXED and term.op == "=" and not term.negated:
            self.indexed = True
        return _any(f"t.{field} {term.op} {self.bind(v)}" for v in term.values)

    def _status(self, term: Term) -> str:
        for status in term.values:
            if status not in STATUS_SQL:
                known = ", ".join(STATUSES)
                raise BadInput(f"Unknown status {status!r}; known are {known}", field="status")
        if not term.negated and all(status in RARE for status in term.values):
            self.indexed = True
        return _any(STATUS_SQL[str(status)] for status in term.values)

    def _ahead_of(self, task_id: str) -> str:
        place = row(self.conn, READ["position"], (task_id,))
        if place is None:
            return "0"
        _, queue, lane, priority, rank, this = place
        self.indexed = True
        return (
            f"t.queue = {self.bind(queue)} and t.lane = {self.bind(lane)} and t.state = 'pending' "
            f"and t.parked is null and (t.priority, t.rank, t.id) < "
            f"({self.bind(priority)}, {self.bind(rank)}, {self.bind(this)})"
        )


def _any(parts: Any) -> str:
    return " or ".join(f"({part})" for part in parts) or "0"


# tasks -------------------------------------------------------------------------------------------


def memory(conn: apsw.Connection, task_id: TaskId) -> Memory:
    steps = rows(conn, READ["remembered"], (task_id,))
    inbox = rows(conn, READ["inbox"], (task_id,))
    return Memory(
        tuple(Step(key, data) for key, data in steps),
        tuple(SignalIn(name, data, at) for name, data, at in inbox),
    )


def tasks(conn: apsw.Connection, query: TaskQuery, now: Ms) -> Page[Task]:
    """Newest first; the cursor is the place of the last one looked at."""
    where = Where(conn, query, now)
    before = _place_of(query.cursor)
    parts = [where.text()]
    bottom = 0
    if before is not None:
        parts.append(f"t.seq < {where.bind(before)}")
    if query.terms and not where.indexed:
        top = before if before is not None else value(conn, READ["top"])
        bottom = max(top - SCAN, 0)
        parts.append(f"t.seq >= {where.bind(bottom)}")
    limit = where.bind(query.limit + 1)
    statement = f"{READ['tasks']} where {' and '.join(parts)} order by t.seq desc limit {limit}"
    found = rows(conn, statement, where.values)
    items = tuple(_task(columns, now) for columns in found[: query.limit])
    if len(found) > query.limit:
        return Page(items, str(found[query.limit - 1][36]))
    return Page(items, str(bottom) if bottom > 1 else None)


def _place_of(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise BadInput(f"Not a cursor: {cursor[:40]!r}; take it from `next`", field="cursor")
    return int(cursor)


def _task(row: tuple[Any, ...], now: Ms) -> Task:
    _, error, attempts, progress, tags, followed, limits, after = row[36:]
    return task_of(
        row,
        now,
        error=_bytes(error),
        attempts=_bytes(attempts) or b"[]",
        progress=_bytes(progress),
        tags=tuple(decode(tags)) if tags else (),
        followed=bool(followed),
        limits=limits_of(limits),
        after=tuple(decode(after)),
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def count(conn: apsw.Connection, query: TaskQuery, by: Sequence[str], now: Ms) -> list[Count]:
    """One statement per status, so that each can use the index made for it."""
    for column in by:
        if column not in COLUMNS and column != "status":
            raise BadInput(f"Cannot count by {column!r}", field="by")
    columns = [column for column in by if column != "status"]
    found: dict[tuple[Any, ...], tuple[int, Ms | None]] = {}
    for status in STATUSES:
        where = Where(conn, query, now)
        body = " join body b on b.seq = t.seq" if "b.payload" in where.text() else ""
        oldest = "min(t.run_at)" if status == "ready" else "null"
        select = ", ".join(["count(*)", oldest, *(f"t.{c}" for c in columns)])
        statement = (
            f"select {select} from task t{body} left join worker w on w.id = t.worker "
            f"where {STATUS_SQL[status]} and {where.text()}"
        )
        if columns:
            statement += " group by " + ", ".join(f"t.{c}" for c in columns)
        for n, since, *values in rows(conn, statement, where.values):
            if n == 0:
                continue
            rest = iter(values)
            key = tuple(status if column == "status" else next(rest) for column in by)
            had, before = found.get(key, (0, None))
            ages = [at for at in (since, before) if at is not None]
            found[key] = (had + n, min(ages, default=None))
    return [Count(key, n, oldest) for key, (n, oldest) in sorted(found.items(), key=str)]


# workers and gauges ------------------------------------------------------------------------------


def workers(conn: apsw.Connection, mono: Ms, boot: str) -> list[WorkerView]:
    return [
        WorkerView(
            id=w[0],
            info=decode(w[1], type=WorkerInfo),
            seen_at=w[2],
            lease_until=w[3],
            running=w[7],
            alive=not w[6] and w[5] == boot and w[4] > mono,
        )
        for w in rows(conn, READ["workers"])
    ]


def gauges(conn: apsw.Connection, keys: Sequence[str] | None, now: Ms) -> list[GaugeView]:
    stored: dict[str, bytes] = dict(rows(conn, READ["definitions"]))
    definitions = {key: Limit.from_json(decode(data)) for key, data in stored.items()}
    if keys is None:
        keys = [key for (key,) in rows(conn, READ["gauge_keys"])]
    holders: dict[str, list[str]] = {}
    for task_id, text in rows(conn, READ["leases_with_limits"]):
        for key, _units in limits_of(text):
            holders.setdefault(key, []).append(task_id)
    views = []
    for key in keys:
        gauge = gauge_of(key, row(conn, READ["gauge"], (key,)))
        limit = resolve(key, definitions)
        views.append(
            GaugeView(
                key=key,
                limit=None if limit is None else stored[limit.key],
                used=gauge.used,
                waiting=value(conn, READ["waiting"], (f"limit:{key}",)),
                circuit=gate.circuit(limit, gauge, now),
                open_until=gauge.open_until or None,
                paused_until=gauge.paused_until if gauge.paused_until > now else None,
                probe=gauge.probe or None,
                holders=tuple(holders.get(key, ())),
                spent=gate.spent_of(limit, gauge, now),
            )
        )
    return views


# log ---------------------------------------------------------------------------------------------


def events(conn: apsw.Connection, query: EventQuery) -> EventPage:
    """After a cursor, in order. The cursor of an empty page is where the log ends now."""
    last: int = value(conn, READ["last_event"])
    if query.after == "$":
        return EventPage((), str(last))
    after = _place_of(query.after) or 0
    pruned: int = value(conn, READ["pruned"])
    reset = query.after is not None and after < pruned
    values: list[Any] = [max(after, pruned)]
    parts = ["e.seq > ?1"]
    if query.task_id is not None:
        place = row(conn, READ["position"], (query.task_id,))
        values.append(place[0] if place else -1)
        parts.append(f"e.task = ?{len(values)}")
    if query.session_id is not None:
        values.append(query.session_id)
        parts.append(f"e.session_id = ?{len(values)}")
    if query.workflow_id is not None:
        values.append(query.workflow_id)
        parts.append(f"e.workflow_id = ?{len(values)}")
    if query.kinds:
        values.append(encode(query.kinds).decode())
        parts.append(f"e.kind in (select value from json_each(?{len(values)}))")
    values.append(query.limit)
    statement = f"{READ['events']} where {' and '.join(parts)} order by e.seq limit ?{len(values)}"
    items = tuple(
        Event(
            cursor=str(e[0]),
            kind=e[1],
            at=e[2],
            data=e[3],
            task_id=e[4],
            attempt=e[5],
            type=e[6],
            queue=e[7],
            session_id=e[8],
            workflow_id=e[9],
        )
        for e in rows(conn, statement, values)
    )
    end = items[-1].cursor if len(items) == query.limit else str(max(last, after))
    return EventPage(items, end, reset)


# records -----------------------------------------------------------------------------------------


def records(conn: apsw.Connection, kind: str, keys: Sequence[str] | None, now: Ms) -> list[Record]:
    if keys is None:
        found = rows(conn, READ["records"], (kind, now))
    else:
        found = rows(conn, READ["records_by_key"], (kind, encode(list(keys)).decode(), now))
    return [Record(kind=r[0], key=r[1], value=r[2], version=r[3], expires_at=r[4]) for r in found]
