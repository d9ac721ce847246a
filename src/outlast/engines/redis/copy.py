"""dump and load: whole things, for moving from one engine to another.

A cursor of a dump is `<kind>:<place>`. Leases do not travel: a running task arrives as pending, so
the caller drains first. Loading twice is loading once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import structs

from outlast.core.errors import BadInput
from outlast.core.limits import Gauge
from outlast.core.model import Dumped, Event, EventQuery, Item, Page, Record
from outlast.core.states import Ms
from outlast.engines.redis import log, read
from outlast.engines.redis.link import Link
from outlast.engines.redis.records import record_of
from outlast.engines.redis.rows import Rest, Row, signals_of, steps_of
from outlast.engines.redis.wire import named, plain, text

KINDS: Final = ("record", "gauge", "task", "edge", "event")
AT_ONCE: Final = 500

encode: Final = msgspec.json.Encoder().encode
_reserved: Final = msgspec.msgpack.Decoder(tuple[str, Ms | bool, str | bool]).decode

Dump = tuple[str | None, Sequence[object]]
"""Where to go on (None: this kind is done), and the values."""


async def dump(link: Link, after: str | None, limit: int, at: Ms) -> Page[Item]:
    """Records first: whoever loads half of it has the rules already."""
    kind, _, place = (after or f"{KINDS[0]}:").partition(":")
    if kind not in KINDS:
        raise BadInput(f"Not a cursor of a dump: {after!r}", field="cursor")
    last, found = await _DUMPS[kind](link, place, limit, at)
    items = tuple(Item(kind, encode(value)) for value in found)  # type: ignore[arg-type]
    if last is not None:
        return Page(items, f"{kind}:{last}")
    following = KINDS.index(kind) + 1
    return Page(items, f"{KINDS[following]}:" if following < len(KINDS) else None)


async def _records(link: Link, place: str, limit: int, _at: Ms) -> Dump:
    kinds = sorted(kind.decode() for kind in await link.do("SMEMBERS", f"{link.prefix}kinds"))
    keys = await link.pipe([("HKEYS", f"{link.prefix}rec:{kind}") for kind in kinds])
    names = sorted(
        f"{kind}\0{key.decode()}" for kind, of in zip(kinds, keys, strict=True) for key in of
    )
    some = [name.split("\0", 1) for name in names if name > place][:limit]
    raws = await link.pipe([("HGET", f"{link.prefix}rec:{kind}", key) for kind, key in some])
    found = [
        record_of(kind, key, raw)
        for (kind, key), raw in zip(some, raws, strict=True)
        if raw is not None
    ]
    return ("\0".join(some[-1]) if len(some) == limit else None), found


async def _gauges(link: Link, place: str, limit: int, _at: Ms) -> Dump:
    keys = [key for key in await read.gauge_keys(link) if key > place][:limit]
    found = [(await read.read_gauge(link, key))[0] for key in keys]
    return (keys[-1] if len(keys) == limit else None), found


async def _some_rows(link: Link, place: str, limit: int) -> tuple[str | None, list[Row]]:
    """The next records, oldest first; and where to go on. There may be fewer of them than places:
    a sweep forgets some meanwhile."""
    pages = await link.pipe(
        [
            ("ZRANGE", link.prefix + key, f"({place or 0}", "+inf", "BYSCORE", "LIMIT", 0, limit,
             "WITHSCORES")
            for key in await read.sort_keys(link)
        ]
    )  # fmt: skip
    places = sorted(place for page in pages for place in read.places(page))[:limit]
    rows = await read.read_rows(link, [task_id for _, task_id in places])
    following = str(places[-1][0]) if len(places) == limit else None
    return following, sorted(rows.values(), key=lambda row: row.seq)


async def _tasks(link: Link, place: str, limit: int, at: Ms) -> Dump:
    following, rows = await _some_rows(link, place, limit)
    candidates = await read.candidates_of(link, rows, at, bodies=True)
    tasks = await read.tasks_of(link, candidates)
    rows = [candidate.row for candidate in candidates]
    belongings = await link.pipe(
        [
            command
            for row in rows
            for command in (
                ("HGETALL", f"{link.prefix}step:{row.id}"),
                ("LRANGE", f"{link.prefix}inbox:{row.id}", 0, -1),
                ("GET", f"{link.prefix}unique:{row.rest.unique_key}"),
            )
        ]
    )
    dumped = []
    for n, (row, task) in enumerate(zip(rows, tasks, strict=True)):
        steps, signals, raw = belongings[3 * n : 3 * n + 3]
        holder = _reserved(raw) if raw is not None and row.rest.unique_key is not None else None
        mine = holder is not None and holder[0] == row.id
        dumped.append(
            Dumped(
                task=task,
                attrs=row.rest.attrs,
                steps=tuple(steps_of(steps)),
                signals=signals_of(signals),
                fair_key=row.rest.fair_key,
                hold=row.rest.hold,
                wake_at=row.rest.wake_at,
                overdue=row.rest.overdue,
                unique_until=(holder[1] or None) if mine and holder else None,
                digest=(holder[2] or None) if mine and holder else None,  # type: ignore[arg-type]
            )
        )
    return following, dumped


async def _edges(link: Link, place: str, limit: int, _at: Ms) -> Dump:
    following, rows = await _some_rows(link, place, limit)
    edges = []
    for row in rows:
        if row.rest.edges:
            pairs = sorted(await link.pairs("HGETALL", f"{link.prefix}up:{row.id}"))
            edges += [(up.decode(), row.id, int(done)) for up, done in pairs]
    return following, edges


async def _events(link: Link, place: str, limit: int, _at: Ms) -> Dump:
    page = await log.events(link, EventQuery(after=place or None, limit=limit))
    return (page.next if len(page.items) == limit else None), [_portable(e) for e in page.items]


def _portable(event: Event) -> Event:
    """With a cursor of fixed width: whoever loads compares them by length and as text."""
    ms, n = log.place_of(event.cursor)
    return structs.replace(event, cursor=f"{ms:015d}-{n:018d}")


_DUMPS: Final = {
    "record": _records, "gauge": _gauges, "task": _tasks, "edge": _edges, "event": _events,
}  # fmt: skip


async def load(link: Link, items: Sequence[Item], skew_ms: int) -> int:
    """Write what is not there yet; how many were. A step per 500 things: repeat it if it breaks."""
    loaded = 0
    for start in range(0, len(items), AT_ONCE):
        some = [
            (item.kind, _LOADS[item.kind](item.data)) for item in items[start : start + AT_ONCE]
        ]
        loaded += await link.run("load", skew_ms, some)
    return loaded


_NAMES: Final = ("type", "queue", "session_id", "workflow_id")
_HEAD: Final = (
    "lane", "followed", "number", "losses", "version", "created_at", "run_at",
    "updated_at", "priority",
)  # fmt: skip
_OPTIONAL_HEAD: Final = ("started_at", "completed_at")
_REST: Final = (
    "max_attempts", "max_losses", "needs", "awaits", "parked", "timeout_ms", "overdue_after_ms",
    "overdue_at", "max_age_ms", "limits", "user_id", "parent_id", "unique_key", "tags",
    "fingerprint",
)  # fmt: skip


def _load_task(data: bytes) -> dict[str, object]:
    dumped = msgspec.json.decode(data, type=Dumped)
    task = dumped.task
    running = task.state == "running"
    attempts = msgspec.json.decode(task.attempts, type=list[msgspec.Raw])
    inbox: dict[str, int] = {}
    for signal in dumped.signals:
        inbox[signal.name] = inbox.get(signal.name, 0) + 1
    head = {
        **{name: getattr(task, name) for name in _HEAD},
        **{name: getattr(task, name) or False for name in _OPTIONAL_HEAD},
        **{name: named(name, getattr(task, name)) or False for name in _NAMES},
        **dict.fromkeys(("fence", "worker", "last_fence"), False),
        "state": "pending" if running else task.state,
        "rank": task.run_at,
        "attempt": max(task.attempt - running, 0),
    }
    rest = Rest(
        **{name: getattr(task, name) for name in _REST},
        reason=None if running else task.reason,
        wake_at=dumped.wake_at,
        hold=dumped.hold,
        overdue=dumped.overdue,
        kept=None if task.completed_at is None else dumped.unique_until,
        expires_at=None if task.max_age_ms is None else task.run_at + task.max_age_ms,
        fair_key=dumped.fair_key,
        attrs=dumped.attrs,
        steps=bool(dumped.steps),
        inbox=inbox,
        progress=_text(task.progress),
        error=_text(task.error),
        result=_text(task.result),
        attempts=tuple(bytes(attempt).decode() for attempt in attempts),
    )
    living = task.completed_at is None
    return {
        "id": task.id,
        "cut": len(task.payload),
        "head": head,
        "rest": rest,
        "body": text(task.payload + task.meta),
        "steps": plain(dumped.steps),
        "signals": [(s.name, text(s.data), s.at) for s in dumped.signals],
        "reserve": task.unique_key is not None and (living or dumped.unique_until is not None),
        "unique_until": dumped.unique_until,
        "digest": dumped.digest,
    }


_LOADS: Final[dict[str, Callable[[bytes], object]]] = {
    "record": lambda data: plain(msgspec.json.decode(data, type=Record)),
    "gauge": lambda data: msgspec.json.decode(data, type=Gauge),
    "task": _load_task,
    "edge": lambda data: msgspec.json.decode(data, type=tuple[str, str, int]),
    "event": lambda data: plain(msgspec.json.decode(data, type=Event)),
}


def _text(data: bytes | None) -> str | None:
    return None if data is None else text(data)
