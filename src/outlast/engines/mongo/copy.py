"""dump and load: whole things, for moving from one engine to another.

A cursor of a dump is `<kind>:<place>`. Leases do not travel: a running task arrives as pending, so
the caller drains first. Loading twice is loading once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pymongo import InsertOne, UpdateOne

from outlast.core.errors import BadInput
from outlast.core.limits import Gauge
from outlast.core.model import (
    Dumped,
    Event,
    EventQuery,
    Item,
    NewEvent,
    Page,
    Record,
    SignalIn,
)
from outlast.core.states import FINAL, Ms
from outlast.engines.mongo import read
from outlast.engines.mongo.documents import Doc, decode, doc_of, encode, gauge_of
from outlast.engines.mongo.records import changed, document_of, record_of
from outlast.engines.mongo.schema import Database, Document
from outlast.engines.mongo.stands import ANY
from outlast.engines.mongo.tx import Tx

KINDS: Final = ("record", "gauge", "task", "edge", "event")


async def dump(db: Database, after: str | None, limit: int, now: Ms) -> Page[Item]:
    """Records first: whoever loads half of it has the rules already."""
    kind, _, place = (after or f"{KINDS[0]}:").partition(":")
    if kind not in KINDS:
        raise BadInput(f"Not a cursor of a dump: {after!r}", field="cursor")
    last, found = await _DUMPS[kind](db, place, limit, now)
    items = tuple(Item(kind, encode(value)) for value in found)  # type: ignore[arg-type]
    if last is not None:
        return Page(items, f"{kind}:{last}")
    following = KINDS.index(kind) + 1
    return Page(items, f"{KINDS[following]}:" if following < len(KINDS) else None)


Dump = tuple[str | None, Sequence[object]]
"""Where to go on (None: this kind is done), and the values."""


def _beyond(first: str, second: str, place: str) -> Document:
    """The keyset over two parts of a name, from a place on."""
    one, _, two = place.partition("\0")
    return {"$or": [{first: {"$gt": one}}, {first: one, second: {"$gt": two}}]}


async def _records(db: Database, place: str, limit: int, _now: Ms) -> Dump:
    query = _beyond("_id.kind", "_id.key", place) if place else {}
    found = await db.record.find(
        query, sort=[("_id.kind", 1), ("_id.key", 1)], limit=limit
    ).to_list()
    records = [record_of(r) for r in found]
    return (f"{records[-1].kind}\0{records[-1].key}" if len(found) == limit else None), records


async def _gauges(db: Database, place: str, limit: int, _now: Ms) -> Dump:
    found = await db.gauge.find({"_id": {"$gt": place}}, sort=[("_id", 1)], limit=limit).to_list()
    return (found[-1]["_id"] if len(found) == limit else None), [
        gauge_of(g["_id"], g) for g in found
    ]


async def _tasks(db: Database, place: str, limit: int, now: Ms) -> Dump:
    query = {"labels": ANY, "seq": {"$gt": int(place or 0)}}
    found = await db.task.find(query, sort=[("seq", 1)], limit=limit).to_list()
    docs = [doc_of(d) for d in found]
    tasks = await read.tasks_of(db, docs, now)
    ids = {"$in": [d.id for d in docs]}
    steps: dict[str, list[tuple[str, bytes, Ms]]] = {}
    for s in await db.step.find({"_id.task": ids}, sort=[("_id.task", 1), ("n", 1)]).to_list():
        steps.setdefault(s["_id"]["task"], []).append((s["_id"]["key"], s["value"], s["at"]))
    signals: dict[str, list[SignalIn]] = {}
    for s in await db.signal.find(
        {"_id.task": ids}, sort=[("_id.task", 1), ("_id.n", 1)]
    ).to_list():
        signal = SignalIn(s["name"], s["data"], s["at"])
        signals.setdefault(s["_id"]["task"], []).append(signal)
    keys = {"$in": [d.unique_key for d in docs if d.unique_key is not None]}
    reserved = {r["_id"]: r for r in await db.reservation.find({"_id": keys}).to_list()}
    dumped = []
    for doc, task in zip(docs, tasks, strict=True):
        holder = reserved.get(doc.unique_key or "", {})
        mine = holder if holder.get("task_id") == doc.id else {}
        dumped.append(
            Dumped(
                task=task,
                attrs=doc.attrs,
                steps=tuple(steps.get(doc.id, ())),
                signals=tuple(signals.get(doc.id, ())),
                fair_key=doc.fair_key,
                hold=doc.hold,
                wake_at=doc.wake_at,
                overdue=doc.overdue,
                unique_until=mine.get("until"),
                digest=mine.get("digest"),
            )
        )
    return (str(docs[-1].seq) if len(docs) == limit else None), dumped


async def _edges(db: Database, place: str, limit: int, _now: Ms) -> Dump:
    query = _beyond("_id.down", "_id.up", place) if place else {}
    found = await db.edge.find(query, sort=[("_id.down", 1), ("_id.up", 1)], limit=limit).to_list()
    edges = [(e["_id"]["up"], e["_id"]["down"], int(e["done"])) for e in found]
    return (f"{edges[-1][1]}\0{edges[-1][0]}" if len(edges) == limit else None), edges


async def _events(db: Database, place: str, limit: int, _now: Ms) -> Dump:
    page = await read.events(db, EventQuery(after=place or None, limit=limit))
    return (page.next if len(page.items) == limit else None), page.items


_DUMPS: Final = {
    "record": _records, "gauge": _gauges, "task": _tasks, "edge": _edges, "event": _events,
}  # fmt: skip


async def load(tx: Tx, items: Sequence[Item]) -> int:
    """Write what is not there yet; how many were."""
    await _prefetch(tx, items)
    return sum([await _LOADS[item.kind](tx, item.data) for item in items])


async def _prefetch(tx: Tx, items: Sequence[Item]) -> None:
    """Read at once the tasks that loading will ask for."""
    ids: set[str] = set()
    for item in items:
        if item.kind == "task":
            ids.add(decode(item.data, type=Dumped).task.id)
        elif item.kind == "edge":
            ids.update(decode(item.data, type=tuple[str, str, int])[:2])
        elif item.kind == "event":
            ids.add(decode(item.data, type=Event).task_id or "")
    await tx.docs(ids)


async def _load_record(tx: Tx, data: bytes) -> int:
    record = decode(data, type=Record)
    document = document_of(record)
    if await tx.select("record", {"_id": document["_id"]}, only=("_id",)):
        return 0
    tx.write("record", InsertOne(document))
    await changed(tx, record.kind, record.key, None)
    return 1


async def _load_gauge(tx: Tx, data: bytes) -> int:
    loaded = decode(data, type=Gauge)
    if await tx.select("gauge", {"_id": loaded.key}, only=("_id",)):
        return 0
    gauge = await tx.gauge(loaded.key)
    gauge.tat_us, gauge.paused_until = loaded.tat_us, loaded.paused_until
    gauge.open_until, gauge.buckets = loaded.open_until, loaded.buckets
    tx.keep_gauge(loaded.key)
    return 1


async def _load_task(tx: Tx, data: bytes) -> int:
    dumped = decode(data, type=Dumped)
    task = dumped.task
    if await tx.docs([task.id]):
        return 0
    running = task.state == "running"
    pending = running or task.state == "pending"
    rank = due = task.run_at
    if pending and task.parked is None:
        rank = await tx.rank(task.queue, task.lane, dumped.fair_key, due)
    tx.add(
        Doc(
            id=task.id,
            seq=tx.next(),
            type=task.type,
            queue=task.queue,
            lane=task.lane,
            priority=task.priority,
            rank=rank,
            state="pending" if running else task.state,
            parked=task.parked,
            wake_at=dumped.wake_at,
            awaits=task.awaits,
            needs=task.needs,
            hold=dumped.hold,
            attempt=max(task.attempt - running, 0),
            number=task.number,
            max_attempts=task.max_attempts,
            losses=task.losses,
            max_losses=task.max_losses,
            timeout_ms=task.timeout_ms,
            overdue_after_ms=task.overdue_after_ms,
            overdue_at=task.overdue_at,
            overdue=dumped.overdue,
            max_age_ms=task.max_age_ms,
            expires_at=None if task.max_age_ms is None else due + task.max_age_ms,
            run_at=due,
            created_at=task.created_at,
            started_at=task.started_at,
            updated_at=task.updated_at,
            completed_at=task.completed_at,
            limits=task.limits,
            fair_key=dumped.fair_key,
            session_id=task.session_id,
            user_id=task.user_id,
            parent_id=task.parent_id,
            workflow_id=task.workflow_id,
            unique_key=task.unique_key,
            unique_until=dumped.unique_until,
            tags=task.tags,
            attrs=dumped.attrs,
            followed=task.followed,
            steps=bool(dumped.steps),
            inbox=bool(dumped.signals),
            version=task.version,
            reason=task.reason,
            fingerprint=task.fingerprint,
            progress=task.progress,
            attempts=None if task.attempts == b"[]" else task.attempts,
            error=task.error,
            result=task.result,
            payload=task.payload,
            meta=task.meta,
        )
    )
    await _load_belongings(tx, dumped)
    tx.topics.add(f"queue:{task.queue}")
    return 1


async def _load_belongings(tx: Tx, dumped: Dumped) -> None:
    task = dumped.task
    for key, value, at in dumped.steps:
        name = {"task": task.id, "key": key}
        tx.write("step", InsertOne({"_id": name, "value": value, "at": at, "n": tx.next()}))
    for s in dumped.signals:
        signal: Document = {"_id": {"task": task.id, "n": tx.next()}}
        tx.write("signal", InsertOne(signal | {"name": s.name, "data": s.data, "at": s.at}))
    living = task.completed_at is None
    if task.unique_key is not None and (living or dumped.unique_until is not None):
        tx.reserve(task.unique_key, task.id, dumped.unique_until, dumped.digest)
    if task.parked is not None and task.parked.startswith("limit:"):
        key = task.parked.removeprefix("limit:")
        if not await tx.line_there(key, task.queue, task.lane):
            tx.set_line((key, task.queue, task.lane), tx.now)


async def _load_edge(tx: Tx, data: bytes) -> int:
    up, down, done = decode(data, type=tuple[str, str, int])
    docs = await tx.docs([up, down])
    name = {"_id": {"up": up, "down": down}}
    if len(docs) < 2 or await tx.select("edge", name, only=("_id",)):
        return 0
    tx.write("edge", InsertOne(name | {"done": bool(done)}))
    # Claimed already? Counted, so that who runs it sees that it is no longer as it was then.
    running = docs[up].state == "running"
    tx.change(docs[up], dependents=True, version=docs[up].version + running)
    if not done and docs[up].state in FINAL:  # it is over, and has not told everybody yet
        tx.change(docs[up], unsettled=True)
    return 1


async def _load_event(tx: Tx, data: bytes) -> int:
    event = decode(data, type=Event)
    loaded: str = tx.state["loaded"]
    if (len(event.cursor), event.cursor) <= (len(loaded), loaded):
        return 0
    task = (await tx.docs([event.task_id])).get(event.task_id) if event.task_id else None
    told = NewEvent(
        kind=event.kind,
        data=event.data,
        task_id=event.task_id,
        session_id=event.session_id,
        workflow_id=event.workflow_id,
    )
    tx.log_told(told, task, at=event.at, attempt=event.attempt)
    tx.state["loaded"] = event.cursor
    tx.write("meta", UpdateOne({"_id": "log"}, {"$set": {"loaded": event.cursor}}))
    return 1


_LOADS: Final = {
    "record": _load_record, "gauge": _load_gauge, "task": _load_task, "edge": _load_edge,
    "event": _load_event,
}  # fmt: skip
