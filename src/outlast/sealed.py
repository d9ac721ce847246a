"""An engine that sees no plaintext: values are sealed on their way in and opened on their way out.

The one place that decides what is encrypted. Sealed are payloads, results, what errors say,
progress, steps, chunks and other events of attempts, signals, spawned tasks, and records. Plain
stay what engines work with: ids, types, queues, states, times, owners, tags, limits, unique keys,
searchable values, codes and types of errors, reasons, and the records in `PLAIN`. Copies (`dump`,
`load`) move what is sealed as it is.

`Opened` is for every app: without keys it tells sealed work from its own, and gives it back.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from outlast.core.errors import BadInput, KeyMissing
from outlast.core.ids import new_fence
from outlast.core.model import (
    Altered,
    Change,
    Count,
    Cursor,
    Deal,
    EditPayload,
    Event,
    EventPage,
    EventQuery,
    Json,
    Lease,
    Memory,
    NewEvent,
    NewTask,
    Outcome,
    Page,
    Put,
    Receipt,
    Record,
    Redrive,
    Resolve,
    Signal,
    SignalIn,
    Step,
    Task,
    TaskId,
    TaskQuery,
    Turn,
)
from outlast.core.seal import Seal, bare, is_sealed
from outlast.engine import Engine

PLAIN: Final = frozenset({"budget", "copy", "limit", "queue", "quota", "retention", "usage"})
"""Kinds of records that engines read, or that are written without keys, and counts: what was used
is numbers, the names of models, and who used it, which is in clear everywhere."""
BACK_MS: Final = 5_000
"""How long work that cannot be read here is left to others, the first time; a minute at most."""
BACK_MAX_MS: Final = 60_000
_SAID: Final = ("message", "details", "traceback")
_MARK: Final = b'"$enc"'

logger: Final = logging.getLogger("outlast.worker")

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


def sealed(engine: Engine, seal: Seal) -> Engine:
    """The engine as an app with these keys sees it."""
    return cast(Engine, Sealed(engine, seal) if seal.keys else Opened(engine, seal))


class Opened:
    """Opens what it can; the rest of the engine passes through."""

    def __init__(self, engine: Engine, seal: Seal) -> None:
        self._engine = engine
        self._seal = seal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def skew_ms(self) -> int:
        return self._engine.skew_ms

    @skew_ms.setter
    def skew_ms(self, skew_ms: int) -> None:
        self._engine.skew_ms = skew_ms

    async def exchange(self, turn: Turn) -> Deal:
        deal = await self._engine.exchange(turn)
        if not any(map(_is_locked, deal.leases)):
            return deal
        kept: list[Lease] = []
        back: list[Outcome] = []
        for lease in deal.leases:
            try:
                kept.append(self._lease(lease))
            except KeyMissing as problem:
                logger.warning("%s %s was given back: %s", lease.type, lease.id, problem)
                back.append(_given_back(lease, problem))
        if back:
            goes = Turn(
                token=new_fence(),
                worker=turn.worker,
                lease_ms=turn.lease_ms,
                outcomes=tuple(back),
            )
            await self._engine.exchange(goes)
        return replace(deal, leases=tuple(kept), again=deal.again or bool(back))

    async def tasks(self, query: TaskQuery) -> Page[Task]:
        page = await self._engine.tasks(query)
        return Page(tuple(map(self._task, page.items)), page.next)

    async def memory(self, task_id: TaskId) -> Memory:
        kept, shown = await self._engine.memory(task_id), self._shown
        steps = (Step(s.key, shown(s.value, task_id, f"step:{s.key}")) for s in kept.steps)
        inbox = (replace(s, data=shown(s.data, task_id, f"signal:{s.name}")) for s in kept.inbox)
        return Memory(tuple(steps), tuple(inbox))

    async def events(self, query: EventQuery) -> EventPage:
        page = await self._engine.events(query)
        return replace(page, items=tuple(map(self._event, page.items)))

    async def get(self, kind: str, keys: Sequence[str] | None = None) -> list[Record]:
        found = await self._engine.get(kind, keys)
        return [
            replace(record, value=self._seal.open(record.value, place_of(record), "value"))
            if is_sealed(record.value)
            else record
            for record in found
        ]

    # opening -------------------------------------------------------------------------------------

    def _lease(self, lease: Lease) -> Lease:
        open, id = self._seal.open, lease.id
        return replace(
            lease,
            payload=open(lease.payload, id, "payload"),
            meta=open(lease.meta, id, "meta"),
            steps=self._steps(lease.steps, id),
            inbox=self._inbox(lease.inbox, id),
        )

    def _steps(self, steps: Sequence[Step], id: TaskId) -> tuple[Step, ...]:
        open = self._seal.open
        return tuple(Step(s.key, open(s.value, id, f"step:{s.key}")) for s in steps)

    def _inbox(self, inbox: Sequence[SignalIn], id: TaskId) -> tuple[SignalIn, ...]:
        open = self._seal.open
        return tuple(SignalIn(s.name, open(s.data, id, f"signal:{s.name}"), s.at) for s in inbox)

    def _task(self, task: Task) -> Task:
        id, error, result, progress = task.id, task.error, task.result, task.progress
        whole = (task.payload, task.meta, result or b"", progress or b"")
        if not any(map(is_sealed, whole)) and _MARK not in task.attempts + (error or b""):
            return task
        progress = None if progress is None else self._shown(progress, id, "progress")
        return replace(
            task,
            payload=self._shown(task.payload, id, "payload"),
            meta=b"{}" if is_sealed(meta := self._shown(task.meta, id, "meta")) else meta,
            result=None if result is None else self._shown(result, id, "result"),
            error=None if error is None else _encode(self._error(_decode(error), id)),
            attempts=_encode([self._brief(entry, id) for entry in _decode(task.attempts)]),
            progress=None if progress is None or is_sealed(progress) else progress,
        )

    def _event(self, event: Event) -> Event:
        if _MARK not in event.data:
            return event
        owner = _owner(event)
        if is_sealed(event.data):
            return replace(event, data=self._shown(event.data, owner, "event"))
        told = _decode(event.data)
        if isinstance(told, dict):
            told = self._brief(told, owner)
            if "progress" in told:
                told["progress"] = Raw(self._shown(_encode(told["progress"]), owner, "progress"))
        return replace(event, data=_encode(told))

    def _brief(self, told: dict[str, Any], id: TaskId) -> dict[str, Any]:
        """With the error that the engine has put into an attempt or an event."""
        error = told.get("error")
        return {**told, "error": self._error(error, id)} if isinstance(error, dict) else told

    def _error(self, error: dict[str, Any], id: TaskId) -> dict[str, Any]:
        found = dict(error)
        for name in _SAID:
            data = _encode(found.get(name))
            if is_sealed(data):
                try:
                    found[name] = _decode(self._seal.open(data, id, f"error.{name}"))
                except KeyMissing as problem:
                    found[name] = str(problem) if name == "message" else None
        return found

    def _shown(self, data: Json, owner: str, field: str) -> Json:
        """For people: what does not open is shown as such."""
        try:
            return self._seal.open(data, owner, field)
        except KeyMissing:
            return bare(data)


class Sealed(Opened):
    """Seals, too."""

    async def enqueue(
        self, tasks: Sequence[NewTask], *, within: object | None = None
    ) -> list[Receipt]:
        receipts = await self._engine.enqueue([self._new(task) for task in tasks], within=within)
        return [
            receipt if receipt.digest is None else self._told(receipt, task.digest)
            for task, receipt in zip(tasks, receipts, strict=True)
        ]

    async def exchange(self, turn: Turn) -> Deal:
        if turn.outcomes:
            turn = replace(turn, outcomes=tuple(map(self._outcome, turn.outcomes)))
        return await super().exchange(turn)

    async def alter(self, ids: Sequence[TaskId], change: Change) -> list[Altered]:
        if not isinstance(change, Redrive | EditPayload | Resolve | Signal) or (
            isinstance(change, Redrive) and change.payload is None
        ):
            return await self._engine.alter(ids, change)
        altered: list[Altered] = []
        for id in ids:  # a value is sealed for one task
            altered += await self._engine.alter([id], self._change(change, id))
        return altered

    async def tasks(self, query: TaskQuery) -> Page[Task]:
        _check_terms(query)
        return await super().tasks(query)

    async def count(self, query: TaskQuery, by: Sequence[str] = ()) -> list[Count]:
        _check_terms(query)
        return await self._engine.count(query, by)

    async def append(self, events: Sequence[NewEvent]) -> list[Cursor]:
        return await self._engine.append([self._new_event(e, _owner(e)) for e in events])

    async def put(self, puts: Sequence[Put]) -> list[Record | None]:
        written = await self._engine.put([self._put(put) for put in puts])
        return [
            record if record is None or put.value is None else replace(record, value=put.value)
            for put, record in zip(puts, written, strict=True)
        ]

    # sealing -------------------------------------------------------------------------------------

    def _new(self, task: NewTask) -> NewTask:
        payload, meta = self._seal.close(task.payload, task.id, "payload"), task.meta
        if meta != b"{}":
            meta = self._seal.close(meta, task.id, "meta")
        digest = None if task.digest is None else self._seal.digest(task.digest)[0]
        return replace(task, payload=payload, meta=meta, digest=digest)

    def _told(self, receipt: Receipt, digest: str | None) -> Receipt:
        """The caller's own digest, if that is what was kept, under whichever key."""
        same = digest is not None and receipt.digest in self._seal.digest(digest)
        return replace(receipt, digest=digest) if same else receipt

    def _outcome(self, outcome: Outcome) -> Outcome:
        close, id = self._seal.close, outcome.id
        result, error, progress = outcome.result, outcome.error, outcome.progress
        return replace(
            outcome,
            result=None if result is None else close(result, id, "result"),
            error=None if error is None else self._sealed_error(error, id),
            progress=None if progress is None else close(progress, id, "progress"),
            steps=tuple(Step(s.key, close(s.value, id, f"step:{s.key}")) for s in outcome.steps),
            events=tuple(self._new_event(event, id) for event in outcome.events),
            spawn=tuple(map(self._new, outcome.spawn)),
        )

    def _sealed_error(self, error: Json, id: TaskId) -> Json:
        """Code and type stay: engines put them into the history and the log."""
        told = _decode(error)
        for name in _SAID:
            if told.get(name) is not None:
                told[name] = Raw(self._seal.close(_encode(told[name]), id, f"error.{name}"))
        return _encode(told)

    def _new_event(self, event: NewEvent, owner: str) -> NewEvent:
        if event.kind in PLAIN:
            return event
        return replace(event, data=self._seal.close(event.data, owner, "event"))

    def _change(self, change: Redrive | EditPayload | Resolve | Signal, id: TaskId) -> Change:
        close = self._seal.close
        match change:
            case Resolve(result=result):
                return replace(change, result=close(result, id, "result"))
            case Signal(name=name, data=data):
                return replace(change, data=close(data, id, f"signal:{name}"))
        return replace(change, payload=close(change.payload or b"{}", id, "payload"))

    def _put(self, put: Put) -> Put:
        if put.value is None or put.kind.partition(".")[0] in PLAIN:
            return put
        return replace(put, value=self._seal.close(put.value, place_of(put), "value"))


def _is_locked(lease: Lease) -> bool:
    """Every lease of every app passes here: 0.1 µs for one without steps and signals."""
    if is_sealed(lease.payload):
        return True
    if lease.steps and any(is_sealed(step.value) for step in lease.steps):
        return True
    return bool(lease.inbox) and any(is_sealed(signal.data) for signal in lease.inbox)


def _given_back(lease: Lease, problem: KeyMissing) -> Outcome:
    """Another worker may have the key; the record says meanwhile what is missing."""
    error = {
        "code": problem.code,
        "type": type(problem).__name__,
        "message": str(problem),
        "details": None,
        "traceback": None,
    }
    return Outcome(
        id=lease.id,
        fence=lease.fence,
        state="pending",
        verdict="released",
        delay_ms=min(BACK_MS * lease.number, BACK_MAX_MS),
        refund=True,
        error=_encode(error),
    )


def _check_terms(query: TaskQuery) -> None:
    for term in query.terms:
        if term.field == "text" or term.field.startswith("payload."):
            name = term.field.removeprefix("payload.")
            told = "<name>" if name == "text" else name
            raise BadInput(
                "Payloads are encrypted and cannot be searched. Declare what is to be found with"
                f" @app.task(search=[…]), which stores it readable, and ask for attr.{told}:…",
                field="q",
            )


def _owner(event: Event | NewEvent) -> str:
    return event.task_id or event.session_id or event.workflow_id or ""


def place_of(record: Record | Put) -> str:
    """What the value of a record is bound to."""
    return f"{record.kind}/{record.key}"
