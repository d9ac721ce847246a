"""Reading: tasks by query, counts, workers, gauges, events, records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pymongo.asynchronous.client_session import AsyncClientSession

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
from outlast.core.states import STATUSES, Ms, status_of
from outlast.engines._payloads import at_path, path_of, spellings
from outlast.engines.mongo.documents import Doc, decode, doc_of, gauge_of
from outlast.engines.mongo.records import record_of
from outlast.engines.mongo.schema import Database, Document
from outlast.engines.mongo.stands import (
    ANY,
    LABELED,
    READY,
    RUNNING,
    SIGNALLED,
    THROTTLED,
    claim_order,
    label,
    ready_in,
    run_by,
    waiting_for,
)
from outlast.engines.mongo.tx import TURN_BITS

SCAN: Final = 20_000
"""Tasks that one page of a query without an index looks at; their index entries take 20 ms."""
LOOK: Final = 2_000
"""Payloads that one page looks into: they have to be fetched for it."""

TEXTS: Final = {
    "id", "type", "queue", "lane", "session_id", "user_id", "workflow_id", "parent_id",
    "unique_key", "worker", "fingerprint", "reason", "parked",
}  # fmt: skip
NUMBERS: Final = {"priority", "created_at", "completed_at"}
COLUMNS: Final = TEXTS | NUMBERS | {"state"}
INDEXED: Final = {"id", "type", "session_id", "user_id", "workflow_id", "parent_id", "worker"}
RARE: Final = {"running", "stalled", "dead", "cancelled", "throttled", "blocked", "retrying"}
"""Statuses that an index finds; the others are found soonest from the newest on."""
OPERATORS: Final = {"=": "$in", "<": "$lt", ">": "$gt"}
NOTHING: Final[Document] = {"_id": {"$in": []}}


async def now_of(db: Database, skew_ms: int) -> Ms:
    """Engine time: the primary's clock, and what tests add to it."""
    hello = await db.client.admin.command("hello")
    at: datetime = hello["localTime"].replace(tzinfo=UTC)
    return round(at.timestamp() * 1000) + skew_ms


async def lapsed_workers(db: Database, now: Ms) -> list[str]:
    """Who holds tasks that nobody runs any more."""
    found = db.worker.find({"lease_until": {"$lt": now}}, {"_id": 1})
    return [w["_id"] for w in await found.to_list()]


class Where:
    """The conditions of a query: what the server checks, and what only we can, in payloads."""

    def __init__(self, db: Database, now: Ms) -> None:
        self._db = db
        self._now = now
        self.parts: list[Document] = []
        self.looks: list[tuple[Term, Sequence[str]]] = []
        self.indexed = False
        self.labelled = False

    @classmethod
    async def of(cls, db: Database, query: TaskQuery, now: Ms) -> Where:
        where = cls(db, now)
        for term in query.terms:
            if term.op not in OPERATORS:
                raise BadInput(f"Unknown comparison {term.op!r} in a query", field=term.field)
            if term.field == "text":
                where.looks.append((term, ()))
            elif term.field.startswith("payload."):
                where.looks.append((term, path_of(term.field)))
            else:
                found = await where._term(term)
                where.parts.append({"$nor": [found]} if term.negated else found)
        return where

    def query(self, *more: Document) -> Document:
        parts = [*self.parts, *more]
        return {"$and": parts} if parts else {}

    def seen(self, payload: bytes) -> bool:
        """Does the payload have what the query wants of it?"""
        return all(_has(payload, term, path) != term.negated for term, path in self.looks)

    async def _term(self, term: Term) -> Document:
        field, texts = term.field, [str(v) for v in term.values]
        if field == "status":
            return await self._status(term)
        if field == "tag" or field.startswith("attr."):
            self.indexed |= not term.negated
            self.labelled |= not term.negated
            return {"labels": {"$in": [label(field, v) for v in texts]}}
        if field == "limit":
            return {"limits": {"$elemMatch": {"0": {"$in": texts}}}}
        if field == "ahead_of":
            return {"$or": [await self._ahead_of(v) for v in texts] or [NOTHING]}
        if field not in QUERY_FIELDS or field not in COLUMNS:
            known = ", ".join(sorted(QUERY_FIELDS))
            raise BadInput(f"Unknown field {field!r} in a query; known are {known}", field=field)
        if field in INDEXED and term.op == "=" and not term.negated:
            self.indexed = True
            if field in LABELED:
                self.labelled = True
                return {"labels": {"$in": [label(field, v) for v in texts]}}
            if field == "worker":
                return {"place": {"$in": [place for v in texts for place in run_by(v)]}}
        name = "_id" if field == "id" else field
        values: list[Any] = texts if field in TEXTS else [_number(v) for v in term.values]
        if term.op == "=":
            return {name: {"$in": values}}
        return {"$or": [{name: {OPERATORS[term.op]: v}} for v in values] or [NOTHING]}

    async def _status(self, term: Term) -> Document:
        for status in term.values:
            if status not in STATUSES:
                known = ", ".join(STATUSES)
                raise BadInput(f"Unknown status {status!r}; known are {known}", field="status")
        if not term.negated and all(status in RARE for status in term.values):
            self.indexed = True
        lapsed: list[str] = []
        if not {"running", "stalled"}.isdisjoint(term.values):
            lapsed = await lapsed_workers(self._db, self._now)
        return {"$or": [status_query(str(s), lapsed) for s in term.values] or [NOTHING]}

    async def _ahead_of(self, task_id: str) -> Document:
        found = await self._db.task.find_one({"_id": task_id})
        if found is None:
            return NOTHING
        self.indexed = True
        doc = doc_of(found)
        return {"place": ready_in(doc.queue, doc.lane), "order": {"$lt": claim_order(doc)}}


def status_query(status: str, lapsed: list[str]) -> Document:
    """The condition of a status; `lapsed` are the workers whose leases are over."""
    match status:
        case "ready":
            return READY
        case "scheduled" | "retrying":
            return {"place": "time", "lane": "retry" if status == "retrying" else "primary"}
        case "throttled":
            return THROTTLED
        case "blocked":
            return {"$or": [{"place": "deps"}, SIGNALLED]}
        case "running":
            return RUNNING | {"worker": {"$nin": lapsed}}
        case "stalled":
            return {"place": {"$in": [place for worker in lapsed for place in run_by(worker)]}}
        case _:
            return {"place": status}


def _number(value: str | int) -> int | str:
    text = str(value)
    return int(text) if text.lstrip("-").isdecimal() and len(text) < 19 else text


def _has(payload: bytes, term: Term, path: Sequence[str]) -> bool:
    if path:
        return at_path(payload, path) in {str(value) for value in term.values}
    folded = payload.lower()
    texts = (text.encode("utf-8", "surrogatepass") for text in spellings(term.values))
    return any(text.lower() in folded for text in texts)


# tasks -------------------------------------------------------------------------------------------


async def memory(db: Database, task_id: TaskId) -> Memory:
    this = {"_id.task": task_id}
    steps = await db.step.find(this, sort=[("n", 1)]).to_list()
    inbox = await db.signal.find(this, sort=[("_id.n", 1)]).to_list()
    return Memory(
        tuple(Step(s["_id"]["key"], s["value"]) for s in steps),
        tuple(SignalIn(s["name"], s["data"], s["at"]) for s in inbox),
    )


async def tasks(db: Database, query: TaskQuery, now: Ms) -> Page[Task]:
    """Newest first; the cursor is the place of the last one looked at."""
    where = await Where.of(db, query, now)
    before = _place_of(query.cursor)
    parts: list[Document] = [] if before is None else [{"seq": {"$lt": before}}]
    if not where.labelled:
        parts.append({"labels": ANY})
    bottom = None
    if query.terms and not where.indexed:
        bottom = await _bottom(db, before)
        if bottom is not None:
            parts.append({"seq": {"$gte": bottom}})
    cursor = db.task.find(
        where.query(*parts),
        sort=[("seq", -1)],
        limit=LOOK if where.looks else query.limit + 1,
        batch_size=query.limit + 2,
    )
    docs: list[Doc] = []
    looked, last = 0, 0
    async for found in cursor:
        looked, last = looked + 1, found["seq"]
        if where.seen(found.get("payload", b"")):
            docs.append(doc_of(found))
            if len(docs) > query.limit:
                break
    await cursor.close()
    items = await tasks_of(db, docs[: query.limit], now)
    if len(docs) > query.limit:
        return Page(items, str(docs[query.limit - 1].seq))
    if where.looks and looked == LOOK:
        return Page(items, str(last))
    return Page(items, None if bottom is None else str(bottom))


async def _bottom(db: Database, before: int | None) -> int | None:
    """Where a page that no index helps stops looking; None: at the first task of all."""
    query: Document = {"labels": ANY}
    if before is not None:
        query["seq"] = {"$lt": before}
    found = db.task.find(query, {"_id": 0, "seq": 1}, sort=[("seq", -1)], skip=SCAN, limit=1)
    rest = await found.to_list()
    return rest[0]["seq"] + 1 if rest else None


def _place_of(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise BadInput(f"Not a cursor: {cursor[:40]!r}; take it from `next`", field="cursor")
    return int(cursor)


async def tasks_of(db: Database, docs: Sequence[Doc], now: Ms) -> tuple[Task, ...]:
    """The records of documents, with their upstream tasks and leases."""
    if not docs:
        return ()
    edges = db.edge.find({"_id.down": {"$in": [d.id for d in docs]}}, sort=[("_id.up", 1)])
    names = sorted({d.worker for d in docs if d.worker is not None})
    after: dict[str, list[str]] = {}
    leases: dict[str, Ms] = {}
    for edge in await edges.to_list():
        after.setdefault(edge["_id"]["down"], []).append(edge["_id"]["up"])
    if names:
        found = db.worker.find({"_id": {"$in": names}}, {"lease_until": 1})
        leases = {w["_id"]: w["lease_until"] for w in await found.to_list()}
    return tuple(_task(d, after.get(d.id, ()), leases.get(d.worker or ""), now) for d in docs)


def _task(d: Doc, after: Sequence[str], lease_until: Ms | None, now: Ms) -> Task:
    return Task(
        id=d.id,
        type=d.type,
        queue=d.queue,
        lane=d.lane,  # type: ignore[arg-type]
        priority=d.priority,
        state=d.state,  # type: ignore[arg-type]
        parked=d.parked,
        status=status_of(d.state, d.parked, d.lane, lease_until, now),
        payload=d.payload,
        result=d.result,
        error=d.error,
        attempts=d.attempts or b"[]",
        progress=d.progress,
        attempt=d.attempt,
        number=d.number,
        max_attempts=d.max_attempts,
        losses=d.losses,
        max_losses=d.max_losses,
        timeout_ms=d.timeout_ms,
        overdue_after_ms=d.overdue_after_ms,
        overdue_at=d.overdue_at,
        max_age_ms=d.max_age_ms,
        run_at=d.run_at,
        created_at=d.created_at,
        started_at=d.started_at,
        updated_at=d.updated_at,
        completed_at=d.completed_at,
        worker=d.worker,
        lease_until=lease_until,
        limits=d.limits,
        reason=d.reason,
        fingerprint=d.fingerprint,
        session_id=d.session_id,
        user_id=d.user_id,
        tags=d.tags,
        parent_id=d.parent_id,
        workflow_id=d.workflow_id,
        unique_key=d.unique_key,
        needs=d.needs,
        awaits=d.awaits,
        version=d.version,
        followed=d.followed,
        meta=d.meta,
        after=tuple(after),
    )


async def count(db: Database, query: TaskQuery, by: Sequence[str], now: Ms) -> list[Count]:
    """One aggregation per status, so that each can use the index made for it."""
    for column in by:
        if column not in COLUMNS and column != "status":
            raise BadInput(f"Cannot count by {column!r}", field="by")
    where = await Where.of(db, query, now)
    lapsed = await lapsed_workers(db, now)
    counts = await asyncio.gather(*(_count(db, where, by, s, lapsed) for s in STATUSES))
    found: dict[tuple[Any, ...], tuple[int, Ms | None]] = {}
    for key, n, since in (one for many in counts for one in many):
        had, before = found.get(key, (0, None))
        ages = [at for at in (since, before) if at is not None]
        found[key] = (had + n, min(ages, default=None))
    return [Count(key, n, oldest) for key, (n, oldest) in sorted(found.items(), key=str)]


async def _count(
    db: Database, where: Where, by: Sequence[str], status: str, lapsed: list[str]
) -> list[tuple[tuple[Any, ...], int, Ms | None]]:
    """(values, how many, the oldest ready since) of one status."""
    query = where.query(status_query(status, lapsed))
    columns = ["_id" if column == "id" else column for column in by if column != "status"]
    groups: dict[tuple[Any, ...], tuple[int, Ms]] = {}
    if where.looks:
        fields = dict.fromkeys([*columns, "payload", "run_at"], 1)
        async for d in db.task.find(query, fields):
            if where.seen(d.get("payload", b"")):
                values = tuple(d.get(column) for column in columns)
                n, since = groups.get(values, (0, d["run_at"]))
                groups[values] = (n + 1, min(since, d["run_at"]))
    else:
        group = {"_id": [f"${c}" for c in columns], "n": {"$sum": 1}, "at": {"$min": "$run_at"}}
        cursor = await db.task.aggregate([{"$match": query}, {"$group": group}])
        async for d in cursor:
            groups[tuple(d["_id"])] = (d["n"], d["at"])
    found = []
    for values, (n, since) in groups.items():
        rest = iter(values)
        key = tuple(status if column == "status" else next(rest) for column in by)
        found.append((key, n, since if status == "ready" else None))
    return found


# workers and gauges ------------------------------------------------------------------------------


async def workers(db: Database, now: Ms) -> list[WorkerView]:
    group = {"_id": "$worker", "n": {"$sum": 1}}
    cursor = await db.task.aggregate([{"$match": RUNNING}, {"$group": group}])
    running = {d["_id"]: d["n"] for d in await cursor.to_list()}
    return [
        WorkerView(
            id=w["_id"],
            info=decode(w["info"], type=WorkerInfo),
            seen_at=w["seen_at"],
            lease_until=w["lease_until"],
            running=running.get(w["_id"], 0),
            alive=not w["evicted"] and w["lease_until"] > now,
        )
        for w in await db.worker.find(sort=[("_id", 1)]).to_list()
    ]


async def gauges(db: Database, keys: Sequence[str] | None, now: Ms) -> list[GaugeView]:
    records = await db.record.find({"_id.kind": "limit"}).to_list()
    stored: dict[str, bytes] = {r["_id"]["key"]: r["value"] for r in records}
    definitions = {key: Limit.from_json(decode(data)) for key, data in stored.items()}
    if keys is None:
        known = {key for key in stored if not key.endswith(":*")}
        known.update(g["_id"] for g in await db.gauge.find({}, {"_id": 1}).to_list())
        known.update(line["_id"]["key"] for line in await db.line.find({}, {"_id": 1}).to_list())
        keys = sorted(known)
    found = {g["_id"]: g for g in await db.gauge.find({"_id": {"$in": list(keys)}}).to_list()}
    holders: dict[str, list[str]] = {}
    leased = db.task.find(
        RUNNING | {"limits": {"$exists": True}},
        {"limits": 1},
        sort=[("started_at", 1), ("seq", 1)],
    )
    for d in await leased.to_list():
        for key, _units in d["limits"]:
            holders.setdefault(key, []).append(d["_id"])
    views = []
    for key in keys:
        gauge = gauge_of(key, found.get(key))
        limit = resolve(key, definitions)
        views.append(
            GaugeView(
                key=key,
                limit=None if limit is None else stored[limit.key],
                used=gauge.used,
                waiting=await db.task.count_documents(waiting_for(key)),
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


async def events(db: Database, query: EventQuery) -> EventPage:
    """After a cursor, in order. The cursor of an empty page is where the log ends now.

    The counter is read first: what it counts is committed, so nothing before it can come later.
    What was pruned is read last: it may have been while the page was read. All of it in a session:
    a primary that was elected in between may not know yet that what the counter counts is on a
    majority, and would leave it out.
    """
    async with db.client.start_session(causal_consistency=True) as session:
        return await _events(db, session, query)


async def _events(db: Database, session: AsyncClientSession, query: EventQuery) -> EventPage:
    state = await db.meta.find_one({"_id": "log"}, session=session) or {}
    last: int = (state["turn"] + 1 << TURN_BITS) - 1
    if query.after == "$":
        return EventPage((), str(last))
    after = _place_of(query.after) or 0
    parts: Document = {"_id": {"$gt": max(after, state["pruned"])}}
    for field, name in (("task_id", "task"), ("session_id",) * 2, ("workflow_id",) * 2):
        wanted = getattr(query, field)
        if wanted is not None:
            parts[name] = {"$eq": wanted}
    if query.kinds:
        parts["kind"] = {"$in": list(query.kinds)}
    cursor = db.event.find(
        parts, sort=[("_id", 1)], limit=query.limit, batch_size=query.limit + 1, session=session
    )
    items = tuple(event_of(found) for found in await cursor.to_list())
    # A page may reach beyond `last`: somebody committed meanwhile.
    end = max(last, after, *(int(item.cursor) for item in items[-1:]))
    if len(items) == query.limit:
        end = int(items[-1].cursor)
    if query.after is None:
        return EventPage(items, str(end))
    state = await db.meta.find_one({"_id": "log"}, {"pruned": 1}, session=session) or {}
    return EventPage(items, str(end), after < state["pruned"])


def event_of(found: Document) -> Event:
    return Event(
        cursor=str(found["_id"]),
        kind=found["kind"],
        at=found["at"],
        data=found["data"],
        task_id=found.get("task"),
        attempt=found.get("attempt", 0),
        type=found.get("type"),
        queue=found.get("queue"),
        session_id=found.get("session_id"),
        workflow_id=found.get("workflow_id"),
    )


# records -----------------------------------------------------------------------------------------


async def records(db: Database, kind: str, keys: Sequence[str] | None, now: Ms) -> list[Record]:
    query: Document = {"_id.kind": kind}
    if keys is not None:
        query["_id.key"] = {"$in": list(keys)}
    found = await db.record.find(query, sort=[("_id.key", 1)]).to_list()
    kept = [record_of(r) for r in found]
    return [r for r in kept if r.expires_at is None or r.expires_at > now]
