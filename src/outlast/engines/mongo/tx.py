"""One transaction: what the verbs share while they change tasks.

Documents are read once, changed here in memory, and written by `flush()` in few commands. Whoever
asks for documents by a condition goes through `find` or `select`, which write first what has been
changed so far: the server answers with it.

Tasks that this process has claimed are not even read once when they end: it knows them (`Held`),
and the update that writes the end is guarded by their fence and version. Where somebody else has
changed one meanwhile the transaction begins again, and reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from copy import deepcopy
from functools import partial
from typing import Any, Final, cast

from bson import decode_all
from bson.codec_options import CodecOptions
from msgspec import Struct
from pymongo import (
    DeleteMany,
    DeleteOne,
    InsertOne,
    ReplaceOne,
    ReturnDocument,
    UpdateMany,
    UpdateOne,
)
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import BulkWriteError

from outlast.core.errors import BadInput, EngineDown
from outlast.core.limits import Gauge, Limit, resolve
from outlast.core.model import NewEvent, NewTask
from outlast.core.states import Ms
from outlast.engines.mongo.columns import Guard, updates
from outlast.engines.mongo.documents import (
    LARGE,
    SMALL,
    Doc,
    LineId,
    Pattern,
    RankId,
    decode,
    doc_of,
    encode,
    event_of,
    gauge_document,
    gauge_of,
    line_id,
    rank_id,
    stored,
)
from outlast.engines.mongo.schema import Collection, Database, Document
from outlast.engines.mongo.stands import stands_now

SETTLE_BUDGET: Final = 500
"""Dependents told in one step; the rest is left to sweep."""
TURN_BITS: Final = 20
"""A cursor is the number of a transaction and, in the lower bits, a place in it."""
TOLD: Final = 1_000
"""Edges, and up to a budget more, that one statement marks as done: a command may have 16 MB."""
HELD: Final = 10_000
"""Claimed tasks that a process remembers."""
NEXT_TURN: Final = [
    {"$set": {"turn": {"$add": ["$turn", 1]}, "at": {"$toLong": "$$NOW"}, "promised": 0}},
]

Held = dict[str, "Doc"]
"""Tasks as this process claimed them, without their payloads; it may be wrong about them."""
WriteOp = (
    DeleteMany | DeleteOne | InsertOne[Document] | ReplaceOne[Document] | UpdateMany | UpdateOne
)


class Again(Exception):
    """What was taken for granted is not so: the transaction begins again, and reads."""


class Rules(Struct, frozen=True):
    """Limits and paused queues as this process last read them; `meta` counts their changes."""

    generation: int
    limits: dict[str, Limit]
    paused: frozenset[str]

    @classmethod
    async def read(
        cls, db: Database, generation: int, session: AsyncClientSession | None = None
    ) -> Rules:
        wanted = {"_id.kind": {"$in": ["limit", "queue"]}}
        found = await db.record.find(wanted, session=session).to_list()
        limits = [Limit.from_json(decode(r["value"])) for r in found if r["_id"]["kind"] == "limit"]
        queues = [r for r in found if r["_id"]["kind"] == "queue"]
        return cls(
            generation,
            {limit.key: limit for limit in limits},
            frozenset(r["_id"]["key"] for r in queues if decode(r["value"]).get("paused")),
        )


NO_RULES: Final = Rules(-1, {}, frozenset())


class Tx:
    """A transaction in progress, at one moment of engine time."""

    def __init__(
        self,
        db: Database,
        session: AsyncClientSession,
        state: Document,
        skew_ms: int,
        rules: Rules,
        held: Held,
    ) -> None:
        self.db = db
        # doc_of makes plain integers of its own: without the decoder it takes half the time.
        self._task: Collection = db.get_collection("task", codec_options=CodecOptions())
        self.session = session
        self.now: Ms = state["at"] + skew_ms
        self.state = state
        self.rules = rules
        self.topics: set[str] = set()
        self.wake: Ms | None = state["wake"]
        """Nothing is parked on a time before this (None: nothing at all)."""
        self.lined: bool = state["lined"]
        """There may be tasks in line for a limit."""
        self._first: int = state["turn"] << TURN_BITS
        self._steps = 0
        self.untold = False
        """Were dependents left to a sweep?"""
        self.careful = False
        """Nothing is taken for granted."""
        self._sending: asyncio.Task[None] | None = None
        self._heads: dict[str, list[bytes]] = {}
        self._heads_true = False
        self._held = held
        self._holds: Held = {}
        self._guards: dict[str, Guard] = {}
        self._docs: dict[str, Doc | None] = {}
        self._new: dict[str, Doc] = {}
        self._alike: dict[str, Document] = {}
        self._changed: dict[str, Document] = {}
        self._ops: dict[str, list[WriteOp]] = {}
        self._events: list[Document] = []
        self.edges: dict[str, set[str]] = {}
        """Who waits for these, where it was read ahead (ends.py)."""
        self._told: list[Document] = []
        self._telling: UpdateMany | None = None
        self._gauges: dict[str, Gauge] = {}
        self._gauges_before: dict[str, Gauge] = {}
        self._lines: dict[LineId, Ms | None] = {}
        self._lines_changed: set[LineId] = set()
        self._opened: set[str] = set()
        """Keys of which no line was closed since all were opened."""
        self._lines_known: set[str] = set()
        self._ranks: dict[RankId, int] = {}
        self._ranks_changed: set[RankId] = set()
        self._reserved: dict[str, Document | None] = {}

    @classmethod
    async def begin(
        cls,
        db: Database,
        session: AsyncClientSession,
        skew_ms: int,
        rules: Rules,
        held: Held | None = None,
    ) -> Tx:
        """The counter first: of two transactions that overlap, one has to begin again, and has
        lost nothing yet. So there is one writer at a time, and cursors are in order of commits."""
        state = await db.meta.find_one_and_update(
            {"_id": "log"}, NEXT_TURN, return_document=ReturnDocument.AFTER, session=session
        )
        if state is None:
            raise EngineDown(f"The database {db.name!r} is gone: run `outlast migrate` again.")
        if rules.generation != state["rules"]:
            rules = await Rules.read(db, state["rules"], session)
        return cls(db, session, state, skew_ms, rules, {} if held is None else held)

    def next(self) -> int:
        """The next number of the log: larger than all before, in this and in every transaction."""
        self._steps += 1
        if self._steps >> TURN_BITS:
            raise BadInput("Too much at once: at most a million tasks and events in one batch.")
        return self._first + self._steps

    # what this process holds ---------------------------------------------------------------------

    def trust(self, leases: Iterable[tuple[str, int]]) -> None:
        """Tasks (id, fence) that will be changed for sure need not be read if they are held."""
        for this, fence in leases:
            doc = self._held.pop(this, None)
            if doc is not None and doc.fence == fence and this not in self._docs:
                self._docs[this] = doc
                self._guards[this] = (("fence", fence), ("version", doc.version))

    def waited_for(self, ids: Iterable[str]) -> bool:
        """Do others wait for one of these, as far as this process knows?"""
        held = (self._held.get(this) for this in ids)
        return any(doc is not None and doc.dependents for doc in held)

    def hold(self, doc: Doc) -> None:
        """From the commit on this process runs it."""
        self._holds[doc.id] = doc

    def committed(self) -> None:
        for this, doc in self._holds.items():
            if doc.state == "running":
                doc.payload = doc.meta = b""
                self._held[this] = doc
        while len(self._held) > HELD:
            del self._held[next(iter(self._held))]

    # any collection ------------------------------------------------------------------------------

    def write(self, collection: str, op: WriteOp) -> None:
        self._ops.setdefault(collection, []).append(op)

    def tell_edges(self, names: Iterable[Document]) -> None:
        """These edges are done: one command for all that follow upon each other."""
        ops = self._ops.setdefault("edge", [])
        if not (ops and len(self._told) < TOLD and ops[-1] is self._telling):
            self._told = []
            self._telling = UpdateMany({"_id": {"$in": self._told}}, {"$set": {"done": True}})
            ops.append(self._telling)
        self._told += names

    async def select(
        self,
        collection: str,
        query: Document,
        *,
        sort: Iterable[str] = (),
        limit: int = 0,
        only: Iterable[str] = (),
    ) -> list[Document]:
        """Documents by a condition; those of `task` by `find`."""
        await self._send(collection)
        cursor = self.db[collection].find(
            query,
            dict.fromkeys(only, 1) or None,
            sort=[(field, 1) for field in sort] or None,
            limit=limit,
            batch_size=limit + 1 if limit else 0,  # else the first batch has 101, at one more trip
            session=self.session,
        )
        return await cursor.to_list()

    # tasks ---------------------------------------------------------------------------------------

    async def docs(self, ids: Iterable[str]) -> dict[str, Doc]:
        """Tasks by id, without their large fields unless those were read before."""
        wanted = list(ids)
        missing = [this for this in dict.fromkeys(wanted) if this not in self._docs]
        if missing:
            unread = self._alike.keys().isdisjoint(missing)
            await (self.sent() if unread else self._send_tasks())
            self._docs.update(dict.fromkeys(missing))
            cursor = self._task.find(
                {"_id": {"$in": missing}},
                SMALL,
                batch_size=len(missing) + 1,
                session=self.session,
            )
            for found in await cursor.to_list():
                self._docs[found["_id"]] = doc_of(found)
        docs = ((this, self._docs[this]) for this in wanted)
        return {this: doc for this, doc in docs if doc is not None}

    def known(self, ids: Iterable[str]) -> set[str]:
        """Which of these are there, as far as was read? The others will be inserted for sure: where
        one is there after all, all begins again."""
        return {this for this in ids if self._docs.setdefault(this) is not None}

    async def find(
        self,
        query: Document,
        *,
        sort: Iterable[str] = (),
        limit: int = 0,
        large: bool = False,
        hint: str | None = None,
    ) -> list[Doc]:
        """Tasks by a condition."""
        await self._send_tasks()
        cursor = self._task.find(
            query,
            None if large else SMALL,
            sort=[(field, 1) for field in sort] or None,
            limit=limit,
            batch_size=limit + 1 if limit else 0,
            hint=hint,
            session=self.session,
        )
        return [self._found(found, large) for found in await cursor.to_list()]

    def _found(self, found: Document, large: bool) -> Doc:
        doc = self._docs.get(found["_id"])
        if doc is None:
            doc = self._docs[found["_id"]] = doc_of(found)
        elif large:
            whole = doc_of(found)
            for field in LARGE:
                setattr(doc, field, getattr(whole, field))
        return doc

    async def look_ahead(self, places: Iterable[str], limit: int) -> None:
        """Read the heads of these lines while the caller goes on (see `head`)."""
        self._heads, self._heads_true = {}, True
        await self._meanwhile(partial(self._read_heads, tuple(places), limit))

    async def _read_heads(self, places: tuple[str, ...], limit: int) -> None:
        # First the lease: a beat that came between (beat.py) would make all of this begin again.
        await self._write_ops("worker")
        await self._write_tasks()
        for place in places:
            cursor = self._task.find_raw_batches(
                {"place": place},
                sort=[("order", 1)],
                limit=limit,
                batch_size=limit + 1,
                session=self.session,
            )
            self._heads[place] = cast("list[bytes]", await cursor.to_list())

    async def head(self, place: str, limit: int) -> list[Doc]:
        """The first ones in a line, with their large fields."""
        batches = self._heads.pop(place, None)
        if batches is None or not self._heads_true:
            return await self.find({"place": place}, sort=("order",), limit=limit, large=True)
        return [self._found(found, True) for batch in batches for found in decode_all(batch)]

    def add(self, doc: Doc) -> None:
        self._heads_true = False
        self._waken(doc.wake_at)
        self._docs[doc.id] = self._new[doc.id] = doc

    def add_alike(self, pattern: Pattern, task: NewTask) -> None:
        """A new task that is stored without being one of `docs`: who asks for it reads it."""
        self._heads_true = False
        self._docs.pop(task.id, None)
        own = {
            "_id": task.id,
            "seq": self.next(),
            "order": pattern.order + task.id,
            "payload": task.payload,
            "meta": task.meta,
        }
        self._alike[task.id] = pattern.document | own
        if pattern.event is not None:
            self._tell(pattern.event | {"task": task.id}, task.id)

    def change(self, doc: Doc, **fields: Any) -> None:
        """Every change of a task goes through here: in memory now, on the server with flush."""
        if doc.id in self._new:
            changed: Document = {}
        else:
            changed = self._changed.setdefault(doc.id, {})
            self._held.pop(doc.id, None)
        self._waken(fields.get("wake_at"))
        if "pending" in (doc.state, fields.get("state")):  # it may stand in a line that was read
            self._heads_true = False
        for field, value in fields.items():
            if field in LARGE or getattr(doc, field) != value:
                setattr(doc, field, value)
                changed[field] = value

    def _waken(self, at: Ms | None) -> None:
        if at is not None and (self.wake is None or at < self.wake):
            self.wake = at

    def remove(self, doc: Doc) -> None:
        self._heads_true = False
        self._docs[doc.id] = None
        self._changed.pop(doc.id, None)
        if self._new.pop(doc.id, None) is None:
            self.write("task", DeleteOne({"_id": doc.id}))

    async def send_soon(self) -> None:
        """Write what was changed in tasks while the caller goes on: the server and we work at the
        same time."""
        if self._new or self._alike or self._changed or "task" in self._ops:
            await self._meanwhile(self._write_tasks)
        else:
            await self.sent()

    async def send_new_soon(self) -> None:
        """The same with what the log tells of them."""
        await self._meanwhile(self._write_new)

    async def _write_new(self) -> None:
        await self._write_tasks()
        await self._write_events()

    async def _meanwhile(self, commands: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await self.sent()
        self._sending = asyncio.create_task(commands())
        for _ in range(3):  # turns of the loop until the driver has written to the socket
            await asyncio.sleep(0)

    async def sent(self) -> None:
        """A session does one thing at a time."""
        if self._sending is not None:
            sending, self._sending = self._sending, None
            await sending

    async def _send_tasks(self) -> None:
        await self.sent()
        await self._write_tasks()

    async def _write_tasks(self) -> None:
        new, self._new = self._new, {}
        alike, self._alike = self._alike, {}
        changed, self._changed = self._changed, {}
        removed = self._ops.pop("task", None)
        if removed:
            await self.db.task.bulk_write(removed, session=self.session)
        if new or alike:
            documents = [*map(stored, new.values()), *alike.values()]
            try:
                await self.db.task.insert_many(documents, session=self.session)
            except BulkWriteError as error:
                if error.details["writeErrors"] and not self.careful:
                    raise Again from error
                raise
        changed = {this: change for this, change in changed.items() if change}
        for this, change in changed.items():
            change |= stands_now(self._docs[this], change)
        ops = updates(changed, self._guards)
        for this in changed:
            self._guards.pop(this, None)  # written by us now, whatever its version is
        if ops:
            done = await self.db.task.bulk_write(ops, session=self.session)
            if done.matched_count < len(changed):
                raise Again

    # the log -------------------------------------------------------------------------------------

    def log(self, task: Doc, kind: str, data: dict[str, Any] | bytes) -> None:
        told = data if isinstance(data, bytes) else encode(data)
        self._tell(event_of(task, kind, self.now, told), task.id)

    def _tell(self, event: Document, task_id: str) -> None:
        event["_id"] = self.next()
        self._events.append(event)
        self.topics.add(f"task:{task_id}")
        self.topics.add("log")

    def log_told(
        self,
        told: NewEvent,
        task: Doc | None,
        *,
        at: Ms | None = None,
        attempt: int | None = None,
    ) -> int:
        """What somebody else says, about a task or not; its number."""
        event: Document = {
            "_id": self.next(),
            "kind": told.kind,
            "at": self.now if at is None else at,
            "data": told.data,
            "session_id": told.session_id,
            "workflow_id": told.workflow_id,
        }
        if task is not None:
            event |= {"task": task.id, "type": task.type, "queue": task.queue}
            event["attempt"] = task.number
        if attempt is not None:
            event["attempt"] = attempt
        self._events.append({field: v for field, v in event.items() if v is not None})
        self.topics.add("log")
        if told.task_id:
            self.topics.add(f"task:{told.task_id}")
        number: int = event["_id"]
        return number

    async def write_events(self) -> None:
        await self.sent()
        await self._write_events()

    async def _write_events(self) -> None:
        if self._events:
            events, self._events = self._events, []
            await self.db.event.insert_many(events, session=self.session)

    # limits --------------------------------------------------------------------------------------

    def limit(self, key: str) -> Limit | None:
        """The definition that applies to a key."""
        return resolve(key, self.rules.limits)

    async def rules_changed(self) -> None:
        """A record of kind `limit` or `queue` was written: for us now, for others by the count."""
        await self._send("record")
        self.state["rules"] += 1
        self.write("meta", UpdateOne({"_id": "log"}, {"$inc": {"rules": 1}}))
        self.rules = await Rules.read(self.db, self.state["rules"], self.session)

    async def load_gauges(self, keys: Iterable[str]) -> None:
        """Read at once what `gauge` will be asked for."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._gauges]
        if missing:
            query = {"_id": {"$in": missing}}
            found = {g["_id"]: g for g in await self.select("gauge", query)}
            for key in missing:
                gauge = self._gauges[key] = gauge_of(key, found.get(key))
                self._gauges_before[key] = deepcopy(gauge)

    async def gauge(self, key: str) -> Gauge:
        """The state of a key, written back by flush."""
        await self.load_gauges((key,))
        return self._gauges[key]

    def keep_gauge(self, key: str) -> None:
        """Write it even if it says what an absent one says."""
        self.write("gauge", ReplaceOne({"_id": key}, gauge_document(self._gauges[key]), True))

    def drop_gauge(self, key: str) -> None:
        """It says what an absent one says."""
        self._gauges.pop(key, None)
        self.write("gauge", DeleteOne({"_id": key}))

    # lines ---------------------------------------------------------------------------------------

    async def load_lines(self, keys: Iterable[str]) -> None:
        """Read at once every line of these keys."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._lines_known]
        if missing:
            self._learn(await self.select("line", {"_id.key": {"$in": missing}}))
            self._lines_known.update(missing)

    async def lines(self, query: Document, limit: int) -> list[LineId]:
        """Lines by a condition, those that open first before the others."""
        return self._learn(await self.select("line", query, sort=("open_at",), limit=limit))

    def _learn(self, found: list[Document]) -> list[LineId]:
        lines = []
        for line in found:
            name = line["_id"]
            lines.append((name["key"], name["queue"], name["lane"]))
            self._lines.setdefault(lines[-1], line.get("open_at"))
        return lines

    async def line_there(self, key: str, queue: str, lane: str) -> bool:
        await self.load_lines((key,))
        return (key, queue, lane) in self._lines

    def has_lines(self, key: str) -> bool:
        """Of a key whose lines were loaded."""
        return any(line[0] == key for line in self._lines)

    def line_open(self, line: LineId) -> bool:
        at = self._lines.get(line)
        return at is not None and at <= self.now

    def next_line(self, lanes: set[tuple[str, str]]) -> Ms | None:
        """When the next of the lines that were read opens, in one of these lanes."""
        times = [at for line, at in self._lines.items() if at is not None and line[1:] in lanes]
        return min((at for at in times if at > self.now), default=None)

    def set_line(self, line: LineId, open_at: Ms | None) -> None:
        self.lined = True
        if open_at is None or open_at > self.now:
            self._opened.discard(line[0])
        self._lines[line] = open_at
        self._lines_changed.add(line)

    def drop_line(self, line: LineId) -> None:
        self._lines.pop(line, None)
        self._lines_changed.add(line)

    async def open_key(self, key: str) -> None:
        """Somebody may pass here again: let the next claims look at the waiters."""
        if key in self._opened:
            return
        self._opened.add(key)
        await self.load_lines((key,))
        for line, open_at in tuple(self._lines.items()):
            if line[0] == key and (open_at is None or open_at > self.now):
                self.set_line(line, self.now)
                self.topics.add(f"queue:{line[1]}")

    def _write_lines(self) -> None:
        for line in self._lines_changed:
            name = {"_id": line_id(line)}
            if line not in self._lines:
                self.write("line", DeleteOne(name))
                continue
            at = self._lines[line]
            change = {"$unset": {"open_at": ""}} if at is None else {"$set": {"open_at": at}}
            self.write("line", UpdateOne(name, change, upsert=True))
        self._lines_changed = set()

    # places --------------------------------------------------------------------------------------

    async def load_ranks(self, ranks: Iterable[RankId]) -> None:
        """Read at once the virtual times of these keys and of their lanes."""
        wanted = {at for r in ranks for at in (r, (r[0], r[1], None))} - self._ranks.keys()
        if wanted:
            self._ranks.update(dict.fromkeys(wanted, 0))
            query = {"_id": {"$in": [rank_id(r) for r in wanted]}}
            for found in await self.select("fair", query):
                name = found["_id"]
                self._ranks[name["queue"], name["lane"], name["key"]] = found["rank"]

    async def rank(self, queue: str, lane: str, fair_key: str | None, due: Ms) -> int:
        """Where a task that becomes ready stands: its due time, or a virtual time per key."""
        if fair_key is None:
            return due
        await self.load_ranks([(queue, lane, fair_key)])
        rank = max(self._ranks[queue, lane, fair_key], self._ranks[queue, lane, None])
        self._set_rank((queue, lane, fair_key), rank + 1)
        return rank

    async def claimed(self, queue: str, lane: str, rank: int) -> None:
        """The virtual clock of a fair queue: newcomers start where claiming is."""
        await self.load_ranks([(queue, lane, None)])
        if rank > self._ranks[queue, lane, None]:
            self._set_rank((queue, lane, None), rank)

    def _set_rank(self, at: RankId, rank: int) -> None:
        self._ranks[at] = rank
        self._ranks_changed.add(at)

    # unique keys ---------------------------------------------------------------------------------

    async def load_reserved(self, keys: Iterable[str]) -> None:
        missing = [key for key in dict.fromkeys(keys) if key not in self._reserved]
        if missing:
            self._reserved.update(dict.fromkeys(missing))
            for found in await self.select("reservation", {"_id": {"$in": missing}}):
                self._reserved[found["_id"]] = found

    async def reserved(self, key: str) -> Document | None:
        """Who has a unique key, if its time is not over."""
        await self.load_reserved((key,))
        found = self._reserved[key]
        until = None if found is None else found.get("until")
        return None if until is not None and until <= self.now else found

    def reserve(self, key: str, task_id: str, until: Ms | None, digest: str | None) -> None:
        given = {"_id": key, "task_id": task_id, "until": until, "digest": digest}
        made = {field: value for field, value in given.items() if value is not None}
        self._reserved[key] = made
        self.write("reservation", ReplaceOne({"_id": key}, made, upsert=True))

    async def release(self, task: Doc, *, living: bool) -> None:
        """The task's unique key is free again; with `living`, unless it was taken for a span."""
        if task.unique_key is None:
            return
        await self.load_reserved((task.unique_key,))
        found = self._reserved[task.unique_key]
        if found is None or found["task_id"] != task.id or (living and "until" in found):
            return
        self._reserved[task.unique_key] = None
        self.write("reservation", DeleteOne({"_id": task.unique_key}))

    # the end -------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Write what was collected, just before the commit."""
        await self._send_tasks()
        await self.write_events()
        for key, gauge in self._gauges.items():
            if gauge != self._gauges_before[key]:
                self.write("gauge", ReplaceOne({"_id": key}, gauge_document(gauge), upsert=True))
                self._gauges_before[key] = deepcopy(gauge)
        self._write_lines()
        for at in self._ranks_changed:
            set_rank = {"$set": {"rank": self._ranks[at]}}
            self.write("fair", UpdateOne({"_id": rank_id(at)}, set_rank, upsert=True))
        self._ranks_changed = set()
        known = {"wake": self.wake, "lined": self.lined}
        if known.items() - self.state.items():
            self.state |= known
            self.write("meta", UpdateOne({"_id": "log"}, {"$set": known}))
        for collection in tuple(self._ops):
            await self._send(collection)

    async def _send(self, collection: str) -> None:
        await self.sent()
        if collection == "line":
            self._write_lines()
        await self._write_ops(collection)

    async def _write_ops(self, collection: str) -> None:
        ops = self._ops.pop(collection, None)
        if ops:
            await self.db[collection].bulk_write(ops, session=self.session)
