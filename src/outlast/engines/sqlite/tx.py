"""One write transaction: what the verbs share while they change tasks.

Events, gauges and wake-ups are collected here and written by `flush()`, once per transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import apsw
import msgspec
from msgspec import Struct

from outlast.core.limits import Gauge, Limit, resolve
from outlast.core.model import NewEvent
from outlast.core.states import Ms
from outlast.engines.sqlite.db import row, rows, sql, value

ENQUEUE: Final = sql("enqueue.sql")
EXCHANGE: Final = sql("exchange.sql")
SETTLE_BUDGET: Final = 500
"""Dependents told in one step; the rest is left to sweep."""

encode: Final = msgspec.json.Encoder().encode
decode: Final = msgspec.json.decode
_limits_of: Final = msgspec.json.Decoder(tuple[tuple[str, int], ...]).decode

Limits = tuple[tuple[str, int], ...]


class Held(Struct):
    """What a change of state needs to know about a task: a row of the view `held`."""

    seq: int
    id: str
    type: str
    queue: str
    lane: str
    priority: int
    run_at: Ms
    state: str
    parked: str | None
    fence: int | None
    last_fence: int | None
    worker: str | None
    attempt: int
    number: int
    losses: int
    max_losses: int
    started_at: Ms | None
    limits: str | None
    fair_key: str | None
    cancel: str | None
    session_id: str | None
    workflow_id: str | None
    unique_key: str | None
    followed: int
    streamed: int
    dependents: int
    inbox: int
    hold: str | None
    awaits: int
    needs: str
    attempts: str | None
    created_at: Ms
    steps: int


def limits_of(text: str | None) -> Limits:
    return _limits_of(text) if text else ()


def gauge_of(key: str, row: Any) -> Gauge:
    """A row of `gauge` without its key; no row is a new gauge."""
    if row is None:
        return Gauge(key)
    used, tat_us, paused_until, open_until, probe, buckets = row
    return Gauge(key, used, tat_us, paused_until, open_until, probe, decode(buckets))


class Definitions:
    """The limit definitions as this process last read them; `meta.limits` counts their changes."""

    def __init__(self) -> None:
        self._generation = -1
        self.by_key: dict[str, Limit] = {}

    def refresh(self, conn: apsw.Connection) -> None:
        generation = value(conn, "select value from meta where name = 'limits'")
        if generation != self._generation:
            stored = rows(conn, "select value from record where kind = 'limit'")
            found = (Limit.from_json(decode(data)) for (data,) in stored)
            self.by_key = {limit.key: limit for limit in found}
            self._generation = generation


class Tx:
    """A transaction in progress, at one moment of engine time."""

    def __init__(
        self, conn: apsw.Connection, now: Ms, mono: Ms, boot: str, definitions: Definitions
    ) -> None:
        self.conn = conn
        self.execute = conn.execute
        self.executemany = conn.executemany
        self.now = now
        self.mono = mono
        self.boot = boot
        self.topics: set[str] = set()
        self._events: list[tuple[Any, ...]] = []
        self._gauges: dict[str, Gauge] = {}
        self._gauges_before: dict[str, tuple[Any, ...] | None] = {}
        self._definitions = definitions
        self._definitions_checked = False
        self._ranks: dict[tuple[str, str, str | None], int] = {}
        self._opened: set[str] = set()
        """Keys of which no line was closed since all were opened."""
        self.awaited: set[int] = set()
        self.untold = False
        """Were dependents left to a sweep?"""

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return rows(self.conn, statement, values)

    def row(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return row(self.conn, statement, values)

    def value(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return value(self.conn, statement, values)

    def held(self, ids: Iterable[str]) -> dict[str, Held]:
        """Tasks by id."""
        found = self.rows(EXCHANGE["held"], (encode(list(ids)).decode(),))
        return {columns[1]: Held(*columns) for columns in found}

    def held_by_seq(self, seqs: Iterable[int]) -> list[Held]:
        found = self.rows(EXCHANGE["held_by_seq"], (encode(list(seqs)).decode(),))
        return [Held(*columns) for columns in found]

    # the log -------------------------------------------------------------------------------------

    def log(self, task: Held, kind: str, data: dict[str, Any] | bytes) -> None:
        self._events.append(
            (
                task.seq,
                kind,
                task.number,
                self.now,
                task.session_id,
                task.workflow_id,
                data if isinstance(data, bytes) else encode(data),
            )
        )
        self.topics.add(f"task:{task.id}")
        self.topics.add("log")

    def log_new(
        self, seq: int, task_id: str, session_id: str | None, workflow_id: str | None, status: str
    ) -> None:
        data = _NEW_STATE.get(status) or encode({"status": status})
        self._events.append((seq, "state", 0, self.now, session_id, workflow_id, data))
        self.topics.add(f"task:{task_id}")
        self.topics.add("log")

    def log_told(self, event: NewEvent, seq: int | None, number: int) -> None:
        self._events.append(
            (seq, event.kind, number, self.now, event.session_id, event.workflow_id, event.data)
        )
        self.topics.add("log")
        if event.task_id:
            self.topics.add(f"task:{event.task_id}")

    def write_events(self) -> None:
        if self._events:
            self.executemany(EXCHANGE["add_event"], self._events)
            self._events = []

    # limits --------------------------------------------------------------------------------------

    def limit(self, key: str) -> Limit | None:
        """The definition that applies to a key."""
        if not self._definitions_checked:
            self._definitions.refresh(self.conn)
            self._definitions_checked = True
        return resolve(key, self._definitions.by_key)

    def definitions_changed(self) -> None:
        self.execute("update meta set value = value + 1 where name = 'limits'")
        self._definitions = Definitions()  # our own: what is not committed is nobody else's
        self._definitions_checked = False

    def gauge(self, key: str) -> Gauge:
        """The state of a key, written back by flush."""
        gauge = self._gauges.get(key)
        if gauge is None:
            stored = self.row(EXCHANGE["gauge"], (key,))
            gauge = self._gauges[key] = gauge_of(key, stored)
            self._gauges_before[key] = stored
        return gauge

    def open_key(self, key: str) -> None:
        """Somebody may pass here again: let the next claims look at the waiters."""
        if key not in self._opened:
            self._opened.add(key)
            for (queue,) in self.rows(EXCHANGE["open_key"], (self.now, key, self.now)):
                self.topics.add(f"queue:{queue}")

    def close_line(self, key: str, queue: str, lane: str, open_at: Ms | None) -> None:
        """Nobody passes there before that; None: before a slot is freed."""
        self._opened.discard(key)
        self.execute(EXCHANGE["close_line"], (open_at, key, queue, lane))

    # places --------------------------------------------------------------------------------------

    def rank(self, queue: str, lane: str, fair_key: str | None, due: Ms) -> int:
        """Where a task that becomes ready stands: its due time, or a virtual time per key."""
        if fair_key is None:
            return due
        rank = max(self._fair(queue, lane, fair_key), self._fair(queue, lane, None))
        self._ranks[queue, lane, fair_key] = rank + 1
        return rank

    def claimed(self, queue: str, lane: str, rank: int) -> None:
        """The virtual clock of a fair queue: newcomers start where claiming is."""
        if rank > self._fair(queue, lane, None):
            self._ranks[queue, lane, None] = rank

    def _fair(self, queue: str, lane: str, key: str | None) -> int:
        at = (queue, lane, key)
        if at not in self._ranks:
            stored = self.row(ENQUEUE["fair_rank"], at)
            self._ranks[at] = 0 if stored is None else stored[0]
        return self._ranks[at]

    def mark_awaited(self, seq: int) -> None:
        """Somebody waits for this task; whoever has read it already looks into `awaited`."""
        self.execute(ENQUEUE["mark_dependents"], (seq,))
        self.awaited.add(seq)

    def line_there(self, key: str, queue: str, lane: str) -> bool:
        return self.row(ENQUEUE["line_there"], (key, queue, lane)) is not None

    def flush(self) -> None:
        """Write what was collected, just before the commit."""
        self.write_events()
        changed = [
            (g.key, *values)
            for g in self._gauges.values()
            if (values := _columns(g)) != self._gauges_before[g.key]
        ]
        if changed:
            self.executemany(EXCHANGE["set_gauge"], changed)
        if self._ranks:
            self.executemany(ENQUEUE["fair_set"], [(*at, rank) for at, rank in self._ranks.items()])


def _columns(g: Gauge) -> tuple[Any, ...]:
    return (g.used, g.tat_us, g.paused_until, g.open_until, g.probe, encode(g.buckets).decode())


_NEW_STATE: Final = {
    status: encode({"status": status}) for status in ("ready", "scheduled", "blocked", "throttled")
}
