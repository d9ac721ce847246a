"""exchange: a worker's turn. Apply its outcomes, renew its lease, unpark what is due, claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, get_args

from pymongo import DeleteOne, ReplaceOne, UpdateOne

from outlast.core import limits as gate
from outlast.core.model import Deal, Lease, NewEvent, Outcome, SignalIn, Step, Turn
from outlast.core.states import FINAL, Lane, Ms
from outlast.engines._shared import met_by_cancel
from outlast.engines.mongo.documents import Doc, LineId, encode
from outlast.engines.mongo.ends import finish, give_back, load_edges, load_limits
from outlast.engines.mongo.enqueue import enqueue
from outlast.engines.mongo.schema import Document
from outlast.engines.mongo.stands import (
    alarmed,
    claim_order,
    ready_in,
    run_by,
    stopping,
    waiting_in,
)
from outlast.engines.mongo.tx import Tx

DUE_BUDGET: Final = 500
"""Parked tasks that one exchange makes ready."""
PARK_BUDGET: Final = 256
"""Candidates beyond its room that one exchange parks on limits before it says `again`."""
OPEN_LINES: Final = 64
READ_AHEAD: Final = 4
"""Lines whose heads are read while outcomes are applied."""
CHUNK: Final = 64
"""Candidates that are read at once, after the first ones, of which there are as many as room."""
REMEMBERED_TURNS: Final = 8
PRESSURE_CEILING: Final = 10_000
LANES: Final = len(get_args(Lane))


async def exchange(tx: Tx, turn: Turn) -> Deal:
    found = await tx.select("worker", {"_id": turn.worker})
    worker = found[0] if found else None
    tokens: list[int] = worker["tokens"] if worker is not None else []
    repeated = turn.token in tokens
    gone = (worker is None and turn.info is None) or (worker is not None and worker["evicted"])
    if gone or turn.leaving:
        lost = await apply(tx, turn.outcomes, repeated=repeated)
        if not gone:
            await _leave(tx, turn.worker)
        return Deal(now=tx.now, lost=lost, evicted=gone)
    if (turn.room or turn.outcomes) and not repeated:
        tokens = [*tokens, turn.token][-REMEMBERED_TURNS:]
    lease: Document = {
        "_id": turn.worker,
        "info": encode(turn.info) if turn.info is not None or worker is None else worker["info"],
        "seen_at": tx.now,
        "lease_until": tx.now + turn.lease_ms,
        "evicted": False,
        "tokens": tokens,
    }
    stop = worker is not None and worker.get("stop", False)
    if not stop:
        tx.write("worker", ReplaceOne({"_id": turn.worker}, lease, upsert=True))
    # In vain where others wait for a task that ends: the line changes, and is read again.
    if turn.outcomes and turn.room and not (repeated or tx.waited_for(o.id for o in turn.outcomes)):
        await tx.look_ahead(_first_lines(tx, turn), _chunk(turn.room))
    told_before = frozenset(tx.topics)
    lost = await apply(tx, turn.outcomes, repeated=repeated)
    cancel = await _cancelled(tx, turn.worker) if stop else ()
    if stop:
        if cancel:
            lease["stop"] = True
        tx.write("worker", ReplaceOne({"_id": turn.worker}, lease, upsert=True))
    unparked, next_wake = await unpark_due(tx, DUE_BUDGET)
    if repeated:
        query = {"place": {"$in": run_by(turn.worker)}, "fence": turn.token}
        docs = await tx.find(query, sort=("seq",), large=True)
        return Deal(now=tx.now, lost=lost, leases=await _leases(tx, turn, docs))
    leases, again, next_line, emptied = await claim(tx, turn)
    # Whom this turn has made ready it has taken, too: nobody else needs to look.
    tx.topics -= {f"queue:{queue}" for queue in emptied} - told_before
    times = [at for at in (next_wake, next_line) if at is not None] if turn.wants else []
    return Deal(
        now=tx.now,
        lost=lost,
        leases=leases,
        cancel=cancel,
        again=again or unparked == DUE_BUDGET,
        untold=tx.untold,
        next_due=min(times, default=None),
        pressure=await _pressure(tx, turn) if turn.pressure else {},
    )


async def _leave(tx: Tx, worker: str) -> None:
    docs = await tx.find({"place": {"$in": run_by(worker)}})
    await load_limits(tx, docs)
    for doc in docs:
        await give_back(tx, doc, verdict="released", refund=True)
    tx.write("worker", DeleteOne({"_id": worker}))


async def _cancelled(tx: Tx, worker: str) -> tuple[tuple[str, str], ...]:
    docs = await tx.find({"place": stopping(worker)})
    return tuple((doc.id, doc.cancel) for doc in docs if doc.cancel is not None)


async def _pressure(tx: Tx, turn: Turn) -> dict[str, int]:
    await tx.flush()
    return {
        queue: await tx.db.task.count_documents(
            {"place": ready_in(queue, "retry")},
            limit=PRESSURE_CEILING,
            session=tx.session,
        )
        for queue in {want.queue for want in turn.wants}
    }


# outcomes ----------------------------------------------------------------------------------------


async def apply(
    tx: Tx, outcomes: tuple[Outcome, ...], *, repeated: bool
) -> tuple[tuple[str, int], ...]:
    """Each outcome whose fence is current takes effect; the others come back as lost.

    The outcomes of a repeated turn have taken effect already: they are only judged.
    """
    if not outcomes:
        return ()
    if not (repeated or tx.careful):
        tx.trust((outcome.id, outcome.fence) for outcome in outcomes)
    docs = await tx.docs(outcome.id for outcome in outcomes)
    await load_limits(tx, docs.values())
    if not repeated:
        # One by one these are three round trips for each: of the 1.7 ms that a node of a workflow
        # took, 1.2.
        await load_edges(tx, _ending(outcomes, docs))
    lost: list[tuple[str, int]] = []
    for outcome in outcomes:
        task = docs.get(outcome.id)
        if task is not None and task.fence == outcome.fence:
            if not repeated:
                await _apply_one(tx, task, outcome)
        elif not (task is not None and _again(task, outcome, repeated)):
            lost.append((outcome.id, outcome.fence))
    tx.edges = {}
    return tuple(lost)


def _ending(outcomes: tuple[Outcome, ...], docs: dict[str, Doc]) -> list[str]:
    """Tasks that these outcomes end, and that others wait for."""
    final = (docs.get(outcome.id) for outcome in outcomes if outcome.state in FINAL)
    return [doc.id for doc in final if doc is not None and doc.dependents]


def _again(task: Doc, outcome: Outcome, repeated: bool) -> bool:
    """Is this the outcome that the task had from this very lease?"""
    if task.last_fence != outcome.fence:
        return False
    return outcome.state == task.state if outcome.state in FINAL else repeated


async def _apply_one(tx: Tx, task: Doc, outcome: Outcome) -> None:
    if outcome.state == "pending" and task.cancel is not None:
        outcome = met_by_cancel(outcome)
    for event in outcome.events:
        tx.log(task, event.kind, event.data)
    for step in outcome.steps:
        kept = {"value": step.value, "at": tx.now, "n": tx.next()}
        name = {"_id": {"task": task.id, "key": step.key}}
        tx.write("step", UpdateOne(name, {"$setOnInsert": kept}, upsert=True))
        tx.log(task, "step", {"step": step.key})
    if outcome.steps and not task.steps:
        tx.change(task, steps=True)
    if outcome.charges or outcome.pauses:
        await _judge(tx, task, outcome)
    if outcome.spawn:
        await enqueue(tx, outcome.spawn)
    chunks = any(event.kind == "chunk" for event in outcome.events)
    if chunks and not task.streamed:
        tx.change(task, streamed=True)
    if outcome.state == "running":
        told: dict[str, Any] = {}
        if outcome.progress is not None:
            tx.log(task, "progress", b'{"progress":' + outcome.progress + b"}")
            told["progress"] = outcome.progress
        tx.change(task, updated_at=tx.now, version=task.version + 1, **told)
        tx.hold(task)
    elif outcome.state == "pending":
        await give_back(
            tx,
            task,
            verdict=outcome.verdict,
            lane=outcome.lane,
            delay_ms=outcome.delay_ms,
            refund=outcome.refund,
            outcome=outcome,
        )
    else:
        await finish(
            tx, task, outcome.state, reason=outcome.reason, verdict=outcome.verdict, outcome=outcome
        )


async def _judge(tx: Tx, task: Doc, outcome: Outcome) -> None:
    """What the attempt has to say about its limits."""
    for charge in outcome.charges:
        limit, gauge = tx.limit(charge.key), await tx.gauge(charge.key)
        gate.spend(limit, gauge, charge.units, tx.now)
        if charge.ok is None:
            continue
        turned = gate.charge(limit, gauge, task.id, charge.ok, tx.now)
        if turned is not None:
            data = {"key": charge.key, "circuit": "open" if turned == "opened" else "closed"}
            tx.log_told(NewEvent(kind="circuit", data=encode(data)), None)
            await tx.open_key(charge.key)
    for key, pause_ms in outcome.pauses:
        gate.pause(await tx.gauge(key), tx.now + pause_ms)


# due ---------------------------------------------------------------------------------------------


async def unpark_due(tx: Tx, budget: int) -> tuple[int, Ms | None]:
    """Tasks parked on time (or on a signal with a deadline) whose moment has come: how many they
    were, and when the next one comes due."""
    if tx.wake is None or tx.wake > tx.now:
        return 0, tx.wake
    due = await tx.find(alarmed("wake", tx.now), hint="lookup", limit=budget)
    await tx.load_ranks((d.queue, d.lane, d.fair_key) for d in due if d.fair_key is not None)
    for doc in due:
        tx.topics.add(f"queue:{doc.queue}")
        rank = doc.wake_at
        if doc.fair_key is not None:
            rank = await tx.rank(doc.queue, doc.lane, doc.fair_key, tx.now)
        tx.change(doc, parked=None, wake_at=None, awaits=0, rank=rank)
    following = await tx.find(alarmed("wake"), hint="lookup", limit=1)
    tx.wake = following[0].wake_at if following else None
    return len(due), tx.wake


# claim -------------------------------------------------------------------------------------------


async def claim(tx: Tx, turn: Turn) -> tuple[tuple[Lease, ...], bool, Ms | None, Sequence[str]]:
    """Leases for the wants, in their order; whether there may be more at once, and when the next
    line opens; and the queues in which nobody is left who is ready."""
    if not turn.wants:
        return (), False, None, ()
    wants = [want for want in turn.wants if want.queue not in tx.rules.paused]
    lanes: set[tuple[str, str]] = {(want.queue, want.lane) for want in turn.wants}
    claiming = Claiming(tx, turn.room, await _lines(tx, lanes))
    await tx.send_soon()
    picked: list[Doc] = []
    if turn.room > 0:
        for unbounded in (False, True):
            for want in wants:
                n = turn.room - len(picked)
                if not unbounded:
                    n = min(n, want.n)
                for _ in range(n):
                    doc = await claiming.next(want.queue, want.lane)
                    if doc is None:
                        break
                    picked.append(doc)
    for doc in picked:
        tx.change(
            doc,
            state="running",
            parked=None,
            fence=turn.token,
            worker=turn.worker,
            attempt=doc.attempt + 1,
            number=doc.number + 1,
            started_at=tx.now,
            updated_at=tx.now,
            version=doc.version + 1,
        )
        tx.hold(doc)
    leases = await _leases(tx, turn, picked, new=True)
    return leases, claiming.exhausted, tx.next_line(lanes), claiming.emptied


def _first_lines(tx: Tx, turn: Turn) -> list[str]:
    """Where the claim will look first."""
    wants = [want for want in turn.wants if want.n and want.queue not in tx.rules.paused]
    return list(dict.fromkeys(ready_in(want.queue, want.lane) for want in wants))[:READ_AHEAD]


def _chunk(room: int) -> int:
    return max(1, min(room, 500))


async def _lines(tx: Tx, lanes: set[tuple[str, str]]) -> list[LineId]:
    """The lines of these lanes that have a time, open now or later, those first that open first."""
    if not tx.lined:
        return []
    places = [
        {"_id.queue": queue, "_id.lane": lane, "open_at": {"$gte": 0}}
        for queue, lane in sorted(lanes)
    ]
    return await tx.lines({"$or": places}, OPEN_LINES * len(lanes) + 1)


class Source:
    """Candidates of one kind in order, read in chunks from a keyset on."""

    def __init__(self, tx: Tx, place: str, key: str | None, chunk: int) -> None:
        self.key = key
        self._tx = tx
        self._place = place
        self._chunk = chunk
        self._docs: list[Doc] = []
        self._next = 0
        self._more = True
        self._last = ""

    async def peek(self) -> Doc | None:
        if self._next == len(self._docs) and self._more:
            if self._docs:
                query = {"place": self._place, "order": {"$gt": self._last}}
                self._docs = await self._tx.find(
                    query, sort=("order",), limit=self._chunk, large=True
                )
            else:
                self._docs = await self._tx.head(self._place, self._chunk)
            if self._docs:
                self._last = claim_order(self._docs[-1])
            self._next = 0
            self._more = len(self._docs) == self._chunk
            self._chunk = max(self._chunk, CHUNK)
            await self._tx.load_gauges(key for doc in self._docs for key, _units in doc.limits)
        return self._docs[self._next] if self._next < len(self._docs) else None

    def skip(self) -> None:
        self._next += 1


class Claiming:
    """The candidates of one exchange: ready tasks, and those that wait in lines now open."""

    def __init__(self, tx: Tx, room: int, lines: list[LineId]) -> None:
        self._tx = tx
        self._lines = lines
        self._chunk = _chunk(room)
        self._budget = room + PARK_BUDGET
        self._sources: dict[tuple[str, str], list[Source]] = {}
        self._refused: dict[str, Ms | None] = {}
        self._bare: set[tuple[str, str]] = set()
        self.exhausted = False

    @property
    def emptied(self) -> list[str]:
        """Queues of which both lanes were seen to their end, with no open line."""
        lanes = Counter(queue for queue, _ in self._bare)
        return [] if self.exhausted else [queue for queue, n in lanes.items() if n == LANES]

    async def next(self, queue: str, lane: str) -> Doc | None:
        """The next task of a lane that may run now; it holds its limits already."""
        sources = self._sources.get((queue, lane))
        if sources is None:
            sources = self._sources[queue, lane] = await self._open(queue, lane)
        while True:
            found = await self._first(sources)
            if found is None:
                if len(sources) == 1:
                    self._bare.add((queue, lane))
                return None
            source, doc = found
            source.skip()
            if not doc.limits or await self._admitted(doc, source.key):
                return doc
            if self._budget <= 0:
                self.exhausted = True
                return None

    async def _open(self, queue: str, lane: str) -> list[Source]:
        """Ready ones, and the waiters of the open lines."""
        sources = [Source(self._tx, ready_in(queue, lane), None, self._chunk)]
        here = [line for line in self._lines if line[1:] == (queue, lane)]
        for line in here:
            key = line[0]
            if not self._tx.line_open(line):
                continue
            if key in self._refused:
                # By a task of another lane; whoever waits here must stay known.
                self._tx.set_line(line, self._refused[key])
                continue
            waiters = Source(self._tx, waiting_in(*line), key, self._chunk)
            if await waiters.peek() is not None:
                sources.append(waiters)
            else:
                self._tx.drop_line(line)
        return sources

    async def _first(self, sources: list[Source]) -> tuple[Source, Doc] | None:
        """Of the heads of all sources; those of a key only until the key refuses somebody."""
        best: tuple[Source, Doc] | None = None
        for source in sources:
            if source.key in self._refused:
                continue
            doc = await source.peek()
            if doc is not None and (best is None or _order(doc) < _order(best[1])):
                best = source, doc
        return best

    async def _admitted(self, doc: Doc, waits_for: str | None) -> bool:
        """All its limits, or none and parked on the first that refuses."""
        tx = self._tx
        for key, units in doc.limits:
            if key in self._refused:
                at = self._refused[key]
            else:
                at = gate.admit(tx.limit(key), await tx.gauge(key), units, tx.now)
                if at == 0:
                    continue
                self._refused[key] = at
            if waits_for != key:
                self._budget -= 1
                tx.change(doc, parked=f"limit:{key}")
            line: LineId = (key, doc.queue, doc.lane)
            tx.set_line(line, at)
            return False
        for key, units in doc.limits:
            gate.take(tx.limit(key), await tx.gauge(key), doc.id, units, tx.now)
        return True


def _order(doc: Doc) -> tuple[int, int, str]:
    return doc.priority, doc.rank, doc.id


async def _leases(
    tx: Tx, turn: Turn, docs: Sequence[Doc], *, new: bool = False
) -> tuple[Lease, ...]:
    """The leases of claimed tasks, in order."""
    steps: dict[str, list[Step]] = {}
    with_steps = [doc.id for doc in docs if doc.steps]
    if with_steps:
        query = {"_id.task": {"$in": with_steps}}
        for s in await tx.select("step", query, sort=("_id.task", "n")):
            steps.setdefault(s["_id"]["task"], []).append(Step(s["_id"]["key"], s["value"]))
    inboxes: dict[str, list[SignalIn]] = {}
    with_inbox = [doc.id for doc in docs if doc.inbox]
    if with_inbox:
        query = {"_id.task": {"$in": with_inbox}}
        for s in await tx.select("signal", query, sort=("_id.task", "_id.n")):
            signal = SignalIn(s["name"], s["data"], s["at"])
            inboxes.setdefault(s["_id"]["task"], []).append(signal)
    await tx.send_soon()
    leases = []
    for doc in docs:
        leases.append(_lease(turn.token, doc, steps.get(doc.id, ()), inboxes.get(doc.id, ())))
        if new:
            if doc.followed:
                data = {"status": "running", "worker": turn.worker, "lane": doc.lane}
                tx.log(doc, "state", data)
            if doc.fair_key is not None:
                await tx.claimed(doc.queue, doc.lane, doc.rank)
    return tuple(leases)


def _lease(fence: int, doc: Doc, steps: Sequence[Step], inbox: Sequence[SignalIn]) -> Lease:
    return Lease(
        id=doc.id,
        fence=fence,
        type=doc.type,
        queue=doc.queue,
        lane=doc.lane,  # type: ignore[arg-type]
        attempt=doc.attempt,
        number=doc.number,
        max_attempts=doc.max_attempts,
        losses=doc.losses,
        max_losses=doc.max_losses,
        priority=doc.priority,
        timeout_ms=doc.timeout_ms,
        run_at=doc.run_at,
        created_at=doc.created_at,
        limits=doc.limits,
        session_id=doc.session_id,
        user_id=doc.user_id,
        parent_id=doc.parent_id,
        workflow_id=doc.workflow_id,
        unique_key=doc.unique_key,
        payload=doc.payload,
        meta=doc.meta,
        steps=tuple(steps),
        inbox=tuple(inbox),
    )
