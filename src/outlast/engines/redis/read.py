"""Reading: tasks by query, counts, workers, gauges. Pages of bounded work, never one script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import structs

from outlast.core import limits as gate
from outlast.core.errors import BadInput
from outlast.core.limits import Gauge, Limit, resolve
from outlast.core.model import (
    Count,
    GaugeView,
    Memory,
    Page,
    Step,
    Task,
    TaskId,
    TaskQuery,
    WorkerInfo,
    WorkerView,
)
from outlast.core.states import FINAL, Ms
from outlast.engines.redis import query as q
from outlast.engines.redis import records
from outlast.engines.redis.link import Link
from outlast.engines.redis.query import Candidate
from outlast.engines.redis.rows import (
    Rest,
    Row,
    decode_row,
    member_of,
    signals_of,
    steps_of,
    task_of,
)

CHUNK: Final = 500
"""Records that one command reads: about 0.5 ms of the server."""
FEW: Final = 16
"""Of each of very many sorted sets that are walked together."""
SCAN: Final = 10_000
"""Records that one page of a query looks at."""
AHEAD: Final = 10_000


class WorkerRow(msgspec.Struct):
    """`worker:<id>`, written by exchange.lua."""

    info: str
    seen_at: Ms
    lease_until: Ms
    evicted: bool = False


_decode_worker: Final = msgspec.msgpack.Decoder(WorkerRow).decode
_decode_gauge: Final = msgspec.msgpack.Decoder(tuple[int, Ms, Ms, str, list[list[int]]]).decode


async def now(link: Link, skew_ms: int) -> Ms:
    seconds, micros = await link.do("TIME")
    return int(seconds) * 1000 + int(micros) // 1000 + skew_ms


# rows --------------------------------------------------------------------------------------------


async def read_rows(link: Link, ids: Sequence[str]) -> dict[str, Row]:
    """The records that there are, by id."""
    found: dict[str, Row] = {}
    for start in range(0, len(ids), CHUNK):
        some = ids[start : start + CHUNK]
        for raw in await link.do("MGET", *[f"{link.prefix}task:{i}" for i in some]):
            if raw is not None:
                row = decode_row(raw)
                found[row.id] = row
    return found


async def read_bodies(link: Link, rows: Sequence[Row]) -> list[Row]:
    """The same records with their bodies; those that were forgotten meanwhile are left out. One
    command reads where a body ends and the body: both may be others by now."""
    found: dict[str, Row] = {}
    apart = [row for row in rows if row.body is None]
    for start in range(0, len(apart), CHUNK):
        some = apart[start : start + CHUNK]
        keys = [f"{link.prefix}{kind}:{row.id}" for row in some for kind in ("task", "body")]
        told = await link.do("MGET", *keys)
        for row, raw, body in zip(some, told[::2], told[1::2], strict=True):
            if raw is not None:
                now = decode_row(raw)
                whole = body if now.body is None else now.body
                found[row.id] = structs.replace(row, cut=now.cut, body=whole)
    return [
        row if row.body is not None else found[row.id]
        for row in rows
        if row.body is not None or row.id in found
    ]


async def _leases(link: Link, rows: Sequence[Row]) -> dict[str, Ms]:
    """Until when the workers of running tasks have their leases."""
    if all(row.worker is None for row in rows):
        return {}
    flat = await link.do("ZRANGE", f"{link.prefix}workers", 0, -1)
    found = await worker_rows(link, [worker.decode() for worker in flat])
    return {worker: row.lease_until for worker, row in found.items()}


async def candidates_of(
    link: Link, rows: Sequence[Row], at: Ms, *, bodies: bool
) -> list[Candidate]:
    leases = await _leases(link, rows)
    if bodies:
        rows = await read_bodies(link, rows)
    return [Candidate(row, leases.get(row.worker or ""), at) for row in rows]


async def tasks_of(link: Link, found: Sequence[Candidate]) -> list[Task]:
    """Whole tasks, but those that were forgotten meanwhile."""
    leases = {candidate.row.id: candidate.lease_until for candidate in found}
    rows = await read_bodies(link, [candidate.row for candidate in found])
    linked = [row.id for row in rows if row.rest.edges]
    after: dict[str, tuple[str, ...]] = {}
    for start in range(0, len(linked), CHUNK):
        some = linked[start : start + CHUNK]
        edges = await link.eval("ups", [task_id.encode() for task_id in some], repeat=True)
        for task_id, ups in zip(some, edges, strict=True):
            after[task_id] = tuple(sorted(up.decode() for up in ups))
    return [task_of(row, after.get(row.id, ()), leases[row.id], found[0].now) for row in rows]


# tasks -------------------------------------------------------------------------------------------


async def memory(link: Link, task_id: TaskId) -> Memory:
    steps, inbox = await link.pipe(
        [
            ("HGETALL", f"{link.prefix}step:{task_id}"),
            ("LRANGE", f"{link.prefix}inbox:{task_id}", 0, -1),
        ]
    )
    return Memory(tuple(Step(key, value) for key, value, _ in steps_of(steps)), signals_of(inbox))


async def tasks(link: Link, query: TaskQuery, at: Ms) -> Page[Task]:
    """Newest first; the cursor is the place of the last one looked at."""
    before = place_of(query.cursor)
    ahead = await _ahead(link, query)
    tests = q.tests(query, ahead)
    bodies = q.needs_body(query)
    found: list[Candidate] = []
    looked = 0
    more: str | None = None
    async for rows in _walk(link, query, ahead, before):
        for candidate in await candidates_of(link, rows, at, bodies=bodies):
            if all(test(candidate) for test in tests):
                found.append(candidate)
        looked += len(rows)
        if len(found) > query.limit:
            found = found[: query.limit]
            more = str(found[-1].row.seq)
            break
        if looked >= SCAN and rows:
            more = str(rows[-1].seq)
            break
    return Page(tuple(await tasks_of(link, found)), more)


async def _walk(
    link: Link, query: TaskQuery, ahead: dict[str, set[str]], before: int | None
) -> AsyncIterator[list[Row]]:
    """The records in which all that the query can find must be, newest first, in chunks."""
    ids = q.ids_of(query)
    if ids is None and any(t.field == "ahead_of" and not t.negated for t in query.terms):
        ids = list(set().union(*ahead.values()))
    if ids is not None:
        rows = sorted((await read_rows(link, ids)).values(), key=lambda row: -row.seq)
        yield [row for row in rows if before is None or row.seq < before]
        return
    keys = await _smallest(link, query)
    size = max(CHUNK // max(len(keys), 1), FEW)
    top = "+inf" if before is None else f"({before}"
    while True:
        replies = await link.pipe(
            [
                ("ZRANGE", link.prefix + key, top, "-inf", "BYSCORE", "REV", "LIMIT", 0, size,
                 "WITHSCORES")
                for key in keys
            ]
        )  # fmt: skip
        pages = [places(reply) for reply in replies]
        # Behind a full page its set goes on: from there on others may have to wait for it.
        until = max((page[-1][0] for page in pages if len(page) == size), default=0)
        come = sorted({x for page in pages for x in page if x[0] >= until}, reverse=True)
        found = await read_rows(link, [task_id for _, task_id in come])
        yield [found[task_id] for _, task_id in come if task_id in found]
        if not until:
            return
        top = f"({until}"


def places(flat: list[bytes]) -> list[tuple[int, str]]:
    """(seq, id) from members and scores."""
    return [(int(float(flat[i + 1])), flat[i].decode()) for i in range(0, len(flat), 2)]


async def _smallest(link: Link, query: TaskQuery) -> list[str]:
    """The keys of the term that leaves the fewest candidates; else of all tasks."""
    running = any(t.field == "status" and not t.negated for t in query.terms)
    workers = await link.do("ZRANGE", f"{link.prefix}workers", 0, -1) if running else []
    sorts = await sort_keys(link)
    choices = q.sources(query, [worker.decode() for worker in workers], sorts)
    if len(choices) <= 1:
        return choices[0] if choices else list(sorts)
    sizes = await link.pipe([("ZCARD", link.prefix + key) for keys in choices for key in keys])
    each = iter(sizes)
    totals = [sum(next(each) for _ in keys) for keys in choices]
    return choices[totals.index(min(totals))]


async def _ahead(link: Link, query: TaskQuery) -> dict[str, set[str]]:
    """For every `ahead_of`: the ids of those that will be claimed before."""
    wanted = [str(v) for term in query.terms if term.field == "ahead_of" for v in term.values]
    rows = await read_rows(link, wanted) if wanted else {}
    found: dict[str, set[str]] = {}
    for task_id in wanted:
        members = []
        if task_id in rows:
            row = rows[task_id]
            members = await link.do(
                "ZRANGE", ready_key(link, row.queue, row.lane), "-", b"(" + member_of(row),
                "BYLEX", "LIMIT", 0, AHEAD,
            )  # fmt: skip
        found[task_id] = {member[21:].decode() for member in members}
    return found


def ready_key(link: Link, queue: str, lane: str) -> str:
    """As lib.lua writes it."""
    return f"{link.prefix}tasks:pending:{lane}" + ("" if queue == "default" else f":{queue}")


def place_of(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise BadInput(f"Not a cursor: {cursor[:40]!r}; take it from `next`", field="cursor")
    return int(cursor)


# counts ------------------------------------------------------------------------------------------


async def count(link: Link, query: TaskQuery, by: Sequence[str], at: Ms) -> list[Count]:
    """From the counters where they can tell; else by looking at all candidates, page by page."""
    q.check_columns(by)
    asked = {*by, *(term.field for term in query.terms)}
    if asked.issubset(q.COUNTED) and all(term.op == "=" for term in query.terms):
        return await _counted(link, query, by, at)
    if not by and len(query.terms) == 1 and query.terms[0].field == "ahead_of":
        [term] = query.terms
        if not term.negated and len(term.values) == 1:
            return await _count_ahead(link, str(term.values[0]))
    ahead = await _ahead(link, query)
    tests = q.tests(query, ahead)
    bodies = q.needs_body(query)
    found: dict[tuple[Any, ...], tuple[int, Ms | None]] = {}
    async for rows in _walk(link, query, ahead, None):
        for candidate in await candidates_of(link, rows, at, bodies=bodies):
            if all(test(candidate) for test in tests):
                key = tuple(q.value_of(candidate, column) for column in by)
                since = candidate.row.run_at if candidate.status == "ready" else None
                _add(found, key, 1, since)
    return _counts(found)


def _add(
    found: dict[tuple[Any, ...], tuple[int, Ms | None]],
    key: tuple[Any, ...],
    n: int,
    since: Ms | None,
) -> None:
    had, before = found.get(key, (0, None))
    ages = [moment for moment in (since, before) if moment is not None]
    found[key] = (had + n, min(ages, default=None))


def _counts(found: dict[tuple[Any, ...], tuple[int, Ms | None]]) -> list[Count]:
    return [Count(key, n, since) for key, (n, since) in sorted(found.items(), key=str)]


async def _count_ahead(link: Link, task_id: str) -> list[Count]:
    rows = await read_rows(link, [task_id])
    if task_id not in rows:
        return []
    row = rows[task_id]
    ready = ready_key(link, row.queue, row.lane)
    n = await link.do("ZLEXCOUNT", ready, "-", b"(" + member_of(row))
    return [Count((), n)] if n else []


async def _counted(link: Link, query: TaskQuery, by: Sequence[str], at: Ms) -> list[Count]:
    tests = q.tests(query, {})
    found: dict[tuple[Any, ...], tuple[int, Ms | None]] = {}
    for (status, queue, lane, type_), n in (await _statuses(link, at)).items():
        values = {"status": status, "queue": queue, "lane": lane, "type": type_}
        if not all(test(_stand_in(values, at)) for test in tests):
            continue
        oldest = None
        if status == "ready" and "type" not in by and all(t.field != "type" for t in query.terms):
            oldest = await _oldest(link, queue, lane)
        _add(found, tuple(values[column] for column in by), n, oldest)
    return _counts(found)


async def sort_keys(link: Link) -> dict[str, tuple[str, str]]:
    """The sorted sets that have all tasks, without prefix -> queue and type of those in it."""
    found = {(queue, type_) for _, queue, _, type_ in await _tallies(link)}
    return {f"by:sort:{queue}\x1f{type_}": (queue, type_) for queue, type_ in sorted(found)}


async def _tallies(link: Link) -> dict[tuple[str, ...], int]:
    """(status, queue, lane, type) -> how many, as lib.lua counts them."""
    return {
        tuple(name.decode().split("\x1f")): int(n)
        for name, n in await link.pairs("HGETALL", f"{link.prefix}metrics:tasks:by_state")
        if not name.startswith(b"bytes:")
    }


async def _statuses(link: Link, at: Ms) -> dict[tuple[str, ...], int]:
    """The tallies, where what lapsed workers run is stalled."""
    tallies = await _tallies(link)
    lapsed = await link.do("ZRANGE", f"{link.prefix}workers", "-inf", f"({at}", "BYSCORE")
    for worker in lapsed:
        held = await link.do("ZRANGE", f"{link.prefix}held:{worker.decode()}", 0, -1)
        rows = list((await read_rows(link, [task_id.decode() for task_id in held])).values())
        for candidate in await candidates_of(link, rows, at, bodies=False):
            if candidate.status == "stalled":
                place = (candidate.row.queue, candidate.row.lane, candidate.row.type)
                tallies["running", *place] = tallies.get(("running", *place), 0) - 1
                tallies["stalled", *place] = tallies.get(("stalled", *place), 0) + 1
    return {key: n for key, n in tallies.items() if n > 0}


def _stand_in(values: dict[str, str], at: Ms) -> Candidate:
    """A candidate that looks like every task of a tally."""
    status = values["status"]
    state, parked, lease_until = "pending", None, None
    if status in FINAL or status in ("running", "stalled"):
        state = status if status in FINAL else "running"
        lease_until = at - 1 if status == "stalled" else None
    elif status != "ready":
        parked = {"throttled": "limit:", "blocked": "deps"}.get(status, "time")
    row = Row(
        id="", type=values["type"], queue=values["queue"], lane=values["lane"],  # type: ignore[arg-type]
        state=state,  # type: ignore[arg-type]
        priority=0, rank=0, seq=0, cut=0, attempt=0, number=0, losses=0, run_at=0, created_at=0,
        updated_at=0, version=0, followed=False, session_id=None, workflow_id=None, started_at=None,
        completed_at=None, worker=None, body=b"",
        rest=Rest(parked=parked),
    )  # fmt: skip
    return Candidate(row, lease_until, at)


async def _oldest(link: Link, queue: str, lane: str) -> Ms | None:
    """The earliest due time of the ready ones: that of the first of each priority."""
    ages: list[Ms] = []
    start = "-"
    while True:
        head = await link.do(
            "ZRANGE", ready_key(link, queue, lane), start, "+", "BYLEX", "LIMIT", 0, 1
        )
        if not head:
            return min(ages, default=None)
        rows = await read_rows(link, [head[0][21:].decode()])
        ages += [row.run_at for row in rows.values()]
        start = f"[{int(head[0][:5]) + 1:05d}"


# workers and gauges ------------------------------------------------------------------------------


async def worker_rows(link: Link, ids: Sequence[str]) -> dict[str, WorkerRow]:
    if not ids:
        return {}
    found = await link.do("MGET", *[f"{link.prefix}worker:{worker}" for worker in ids])
    return {w: _decode_worker(raw) for w, raw in zip(ids, found, strict=True) if raw is not None}


async def workers(link: Link, at: Ms) -> list[WorkerView]:
    flat = await link.do("ZRANGE", f"{link.prefix}workers", 0, -1)
    ids = sorted(worker.decode() for worker in flat)
    rows = await worker_rows(link, ids)
    held = await link.pipe([("ZCARD", f"{link.prefix}held:{worker}") for worker in rows])
    return [
        WorkerView(
            id=worker,
            info=msgspec.json.decode(row.info, type=WorkerInfo),
            seen_at=row.seen_at,
            lease_until=row.lease_until,
            running=running,
            alive=not row.evicted and row.lease_until > at,
        )
        for (worker, row), running in zip(rows.items(), held, strict=True)
    ]


async def read_gauge(link: Link, key: str) -> tuple[Gauge, list[str]]:
    """The gauge and who holds a slot of it."""
    raw, holders = await link.pipe(
        [("GET", f"{link.prefix}gauge:{key}"), ("SMEMBERS", f"{link.prefix}hold:{key}")]
    )
    fields = (0, 0, 0, "", []) if raw is None else _decode_gauge(raw)
    return Gauge(key, len(holders), *fields), sorted(holder.decode() for holder in holders)


async def gauge_keys(link: Link) -> list[str]:
    return sorted(key.decode() for key in await link.do("SMEMBERS", f"{link.prefix}gauges"))


async def gauges(link: Link, keys: Sequence[str] | None, at: Ms) -> list[GaugeView]:
    # Also those that have expired: they apply until a sweep removes them.
    stored = {record.key: record.value for record in await records.get(link, "limit", None, 0)}
    definitions = {
        key: Limit.from_json(msgspec.json.decode(value)) for key, value in stored.items()
    }
    if keys is None:
        exact = {key for key in stored if not key.endswith(":*")}
        keys = sorted(exact.union(await gauge_keys(link)))
    views = []
    for key in keys:
        gauge, holders = await read_gauge(link, key)
        limit = resolve(key, definitions)
        views.append(
            GaugeView(
                key=key,
                limit=None if limit is None else stored[limit.key],
                used=gauge.used,
                waiting=await _waiting(link, key),
                circuit=gate.circuit(limit, gauge, at),
                open_until=gauge.open_until or None,
                paused_until=gauge.paused_until if gauge.paused_until > at else None,
                probe=gauge.probe or None,
                holders=tuple(holders),
                spent=gate.spent_of(limit, gauge, at),
            )
        )
    return views


async def _waiting(link: Link, key: str) -> int:
    lines = [w.decode() for w in await link.do("SMEMBERS", f"{link.prefix}line:{key}")]
    sets = []
    for where in lines:
        lane, _, queue = where.partition(":")
        sets.append(f"{link.prefix}wait:{lane}:{len(queue.encode())}:{queue}:{key}")
    return sum(await link.pipe([("ZCARD", name) for name in sets]))
