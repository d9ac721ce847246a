"""dump and load: whole things, for moving from one engine to another.

A cursor of a dump is `<kind>:<place>`. Leases do not travel: a running task arrives as pending, so
the caller drains first. Loading twice is loading once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import apsw

from outlast.core.errors import BadInput
from outlast.core.limits import Gauge
from outlast.core.model import Dumped, Event, EventQuery, Item, Page, Record, SignalIn, TaskQuery
from outlast.core.states import FINAL, Ms
from outlast.engines.sqlite import read
from outlast.engines.sqlite.db import row, rows, sql
from outlast.engines.sqlite.read import READ
from outlast.engines.sqlite.tx import ENQUEUE, EXCHANGE, Tx, decode, encode, gauge_of

COPY: Final = sql("copy.sql")
KINDS: Final = ("record", "gauge", "task", "edge", "event")


def dump(conn: apsw.Connection, after: str | None, limit: int, now: Ms) -> Page[Item]:
    """Records first: whoever loads half of it has the rules already."""
    kind, _, place = (after or f"{KINDS[0]}:").partition(":")
    if kind not in KINDS:
        raise BadInput(f"Not a cursor of a dump: {after!r}", field="cursor")
    last, found = _DUMPS[kind](conn, place, limit, now)
    items = tuple(Item(kind, encode(value)) for value in found)  # type: ignore[arg-type]
    if last is not None:
        return Page(items, f"{kind}:{last}")
    following = KINDS.index(kind) + 1
    return Page(items, f"{KINDS[following]}:" if following < len(KINDS) else None)


Dump = tuple[str | None, Sequence[object]]
"""Where to go on (None: this kind is done), and the values."""


def _records(conn: apsw.Connection, place: str, limit: int, _now: Ms) -> Dump:
    found = rows(conn, COPY["dump_record"], (place, limit))
    records = [
        Record(kind=r[1], key=r[2], value=r[3], version=r[4], expires_at=r[5]) for r in found
    ]
    return (found[-1][0] if len(found) == limit else None), records


def _gauges(conn: apsw.Connection, place: str, limit: int, _now: Ms) -> Dump:
    found = rows(conn, COPY["dump_gauge"], (place, limit))
    gauges = [gauge_of(r[0], r[1:]) for r in found]
    return (found[-1][0] if len(found) == limit else None), gauges


def _tasks(conn: apsw.Connection, place: str, limit: int, now: Ms) -> Dump:
    found = rows(conn, COPY["dump_task"], (int(place or 0), limit))
    query = TaskQuery.of(id=tuple(r[1] for r in found), limit=limit)
    by_id = {task.id: task for task in read.tasks(conn, query, now).items} if found else {}
    dumped = []
    for seq, task_id, fair_key, hold, wake_at, overdue in found:
        task = by_id[task_id]
        reserved = row(conn, ENQUEUE["reserved"], (task.unique_key or "",))
        mine = reserved is not None and reserved[0] == task_id
        labels = rows(conn, READ["labels"], (seq,))
        dumped.append(
            Dumped(
                task=task,
                attrs=tuple((n[5:], v) for n, v in labels if n.startswith("attr.")),
                steps=tuple(rows(conn, READ["steps"], (seq,))),
                signals=tuple(SignalIn(*s) for s in rows(conn, READ["signals"], (seq,))),
                fair_key=fair_key,
                hold=hold,
                wake_at=wake_at,
                overdue=bool(overdue),
                unique_until=reserved[1] if mine else None,
                digest=reserved[2] if mine else None,
            )
        )
    return (str(found[-1][0]) if len(found) == limit else None), dumped


def _edges(conn: apsw.Connection, place: str, limit: int, _now: Ms) -> Dump:
    at = int(place or 0)
    found = rows(conn, COPY["dump_edge"], (at, at, limit))
    return (str(found[-1][0]) if found else None), [edge[1:] for edge in found]


def _events(conn: apsw.Connection, place: str, limit: int, _now: Ms) -> Dump:
    page = read.events(conn, EventQuery(after=place or None, limit=limit))
    return (page.next if len(page.items) == limit else None), page.items


_DUMPS: Final = {
    "record": _records, "gauge": _gauges, "task": _tasks, "edge": _edges, "event": _events,
}  # fmt: skip


def load(tx: Tx, items: Sequence[Item]) -> int:
    """Write what is not there yet; how many were."""
    return sum(_LOADS[item.kind](tx, item.data) for item in items)


def _load_record(tx: Tx, data: bytes) -> int:
    record = decode(data, type=Record)
    tx.execute(
        COPY["load_record"],
        (record.kind, record.key, record.value, record.version, record.expires_at),
    )
    added = tx.conn.changes()
    if record.kind == "limit":
        tx.definitions_changed()
    return added


def _load_gauge(tx: Tx, data: bytes) -> int:
    g = decode(data, type=Gauge)
    tx.execute(
        COPY["load_gauge"],
        (g.key, g.tat_us, g.paused_until, g.open_until, encode(g.buckets).decode()),
    )
    return tx.conn.changes()


def _load_task(tx: Tx, data: bytes) -> int:
    dumped = decode(data, type=Dumped)
    task = dumped.task
    running = task.state == "running"
    ready = task.state == "pending" and task.parked is None
    due = task.run_at
    rank = tx.rank(task.queue, task.lane, dumped.fair_key, due) if ready or running else due
    tx.execute(
        COPY["load_task"],
        (
            task.id, task.type, task.queue, task.lane, task.priority, rank,
            "pending" if running else task.state, task.parked, dumped.wake_at, task.awaits,
            task.needs, dumped.hold, max(task.attempt - running, 0), task.number,
            task.max_attempts, task.losses, task.max_losses, task.timeout_ms,
            task.overdue_after_ms, task.overdue_at, dumped.overdue, task.max_age_ms,
            None if task.max_age_ms is None else due + task.max_age_ms, due, task.created_at,
            task.started_at, task.updated_at, task.completed_at,
            encode(task.limits).decode() if task.limits else None, dumped.fair_key,
            task.session_id, task.user_id, task.parent_id, task.workflow_id, task.unique_key,
            encode(task.tags).decode() if task.tags else None, task.followed,
            bool(dumped.steps), bool(dumped.signals), task.version, task.reason,
            task.fingerprint, _text(task.progress),
            None if task.attempts == b"[]" else _text(task.attempts), _text(task.error),
            task.result,
        ),
    )  # fmt: skip
    if not tx.conn.changes():
        return 0
    _load_belongings(tx, dumped, tx.conn.last_insert_rowid())
    tx.topics.add(f"queue:{task.queue}")
    return 1


def _load_belongings(tx: Tx, dumped: Dumped, seq: int) -> None:
    task = dumped.task
    tx.execute(ENQUEUE["add_body"], (seq, task.payload, task.meta))
    for tag in task.tags:
        tx.execute(ENQUEUE["add_label"], ("tag", tag, seq))
    for name, value in dumped.attrs:
        tx.execute(ENQUEUE["add_label"], (f"attr.{name}", value, seq))
    for n, (key, data, at) in enumerate(dumped.steps):
        tx.execute(COPY["load_step"], (seq, key, data, at, n))
    for n, signal in enumerate(dumped.signals, 1):
        tx.execute(COPY["load_signal"], (seq, n, signal.name, signal.data, signal.at))
    living = task.completed_at is None
    if task.unique_key is not None and (living or dumped.unique_until is not None):
        reservation = (task.unique_key, task.id, dumped.unique_until, dumped.digest)
        tx.execute(ENQUEUE["reserve"], reservation)
    if task.parked is not None and task.parked.startswith("limit:"):
        key = task.parked.removeprefix("limit:")
        tx.execute(COPY["load_line"], (key, task.queue, task.lane, tx.now))


def _load_edge(tx: Tx, data: bytes) -> int:
    up, down, done = decode(data, type=tuple[str, str, int])
    found = tx.rows(ENQUEUE["upstream"], (encode([up, down]).decode(),))
    seqs = {row[1]: row[0] for row in found}
    states = {row[1]: row[2] for row in found}
    if up not in seqs or down not in seqs:
        return 0
    tx.execute(ENQUEUE["add_edge"], (seqs[up], seqs[down], done))
    added = tx.conn.changes()
    if not done:
        tx.execute(ENQUEUE["mark_dependents"], (seqs[up],))
        if states[up] in FINAL:  # it is over, and has not told everybody yet
            tx.execute(EXCHANGE["later"], (seqs[up],))
    return added


def _load_event(tx: Tx, data: bytes) -> int:
    event = decode(data, type=Event)
    loaded: Any = tx.value(COPY["loaded_events"]) or ""
    place = (len(event.cursor), event.cursor)
    if place <= (len(loaded), loaded):
        return 0
    tx.execute(
        COPY["load_event"],
        (event.task_id, event.kind, event.attempt, event.at, event.session_id, event.workflow_id,
         event.data),
    )  # fmt: skip
    tx.execute(COPY["set_loaded_events"], (event.cursor,))
    return 1


_LOADS: Final = {
    "record": _load_record, "gauge": _load_gauge, "task": _load_task, "edge": _load_edge,
    "event": _load_event,
}  # fmt: skip


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
