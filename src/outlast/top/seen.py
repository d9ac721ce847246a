"""What the screen shows: read in one go, and told as tables whose lines fit the terminal.

All that comes from outside becomes `Text` of one line by `cell`, so that no markup and no control
character of it reaches the terminal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from outlast.cli.operations import Operations
from outlast.cli.output import STYLES, age
from outlast.cli.output import cell as plain
from outlast.cli.tasks import gist
from outlast.client.wire import ms_of
from outlast.core.errors import EngineDown, OutlastError
from outlast.core.states import STATUSES, Ms
from outlast.http import schemas

SYMBOLS: Final[Mapping[str, str]] = {
    "running": "▶", "ready": "●", "retrying": "↻", "scheduled": "◷", "throttled": "≡",
    "blocked": "‖", "stalled": "!", "dead": "✕", "cancelled": "–", "completed": "✓",
    "paused": "‖", "open": "●", "closed": "●", "half open": "!", "tripped": "✕",
    "alive": "✓", "lost": "✕", "healthy": "✓", "degraded": "!", "unhealthy": "✕", "away": "✕",
}  # fmt: skip
"""Nothing is told by colour alone."""
TONES: Final[Mapping[str, str]] = {
    **STYLES, "paused": "bold yellow", "half open": "yellow", "tripped": "bold red",
    "alive": "green", "lost": "bold red", "healthy": "green", "degraded": "bold yellow",
    "unhealthy": "bold red", "away": "bold red",
}  # fmt: skip
ALWAYS: Final = ("running", "ready", "dead", "completed")
WIDE: Final = 120  # columns from which on a task shows its queue and its id
ID: Final = 36
BAR: Final = 8
GAP: Final = 2


class Seen(Struct, frozen=True, kw_only=True):
    """One look at everything. What was refused is None, with the reason in `refused`."""

    now: Ms
    filter: str
    health: schemas.Health | None = None
    queues: schemas.Queues | None = None
    workers: Sequence[schemas.Worker] | None = None
    limits: schemas.LimitPage | None = None
    tasks: schemas.TaskPage | None = None
    failures: Sequence[schemas.DeadGroup] | None = None
    refused: Mapping[str, OutlastError] = {}


class Row(Struct, frozen=True):
    """One thing: its name, by which it is found again, itself, and what is shown of it."""

    key: str
    of: object
    cells: tuple[object, ...]


class Table(Struct, frozen=True):
    """Rows, and what is to be known of them in a few words. The column `rest` takes what room is
    left; those with `<` in front are aligned to the left, the others to the right."""

    gist: str
    columns: tuple[str, ...] = ()
    rest: int = 0
    rows: tuple[Row, ...] = ()


async def look(there: Operations, filter: str, most: int) -> Seen:
    """Everything at once; an error when nobody is there to be asked."""
    names = ("queues", "tasks", "workers", "limits", "failures", "health")
    found = await asyncio.gather(
        there.queues(), there.page(q=filter, limit=most), there.workers(), there.limits(),
        there.dead_groups(), there.health(), return_exceptions=True,
    )  # fmt: skip
    told: dict[str, object] = {}
    refused: dict[str, OutlastError] = {}
    for name, one in zip(names, found, strict=True):
        if isinstance(one, OutlastError) and not isinstance(one, EngineDown):
            refused[name] = one
        elif isinstance(one, BaseException):
            raise one
        else:
            told[name] = one
    health = told.get("health")
    now = ms_of(health.timestamp) if isinstance(health, schemas.Health) else await there.now()
    return Seen(now=now, filter=filter, refused=refused, **told)  # type: ignore[arg-type]  # by name


# The head ----------------------------------------------------------------------------------------


def head(place: str, seen: Seen, trouble: str, *, read_only: bool) -> Text:
    """How it is, where it is, and how much is done."""
    status = "away" if trouble else seen.health.status if seen.health else ""
    parts = (seen.health.components if seen.health else {}) or {}
    durability = (parts.get("engine") or {}).get("durability", "")
    told = Text.assemble(("outlast top", "bold"), "  ", mark(status))
    told.append(f" · {durability}" if durability and not trouble else "")
    told.append(" · read-only" if read_only else "")
    told.append_text(Text.assemble("  ", cell(place), "\n"))
    if trouble:
        end = "" if trouble.endswith((".", "?", "!")) else "."
        return told.append_text(Text.assemble(cell(trouble), f"{end} Trying again.", style="bold"))
    workers = [one for one in seen.workers or () if one.alive]
    queues = seen.queues.by_queue.values() if seen.queues else ()
    used = seen.queues.states.get("running", 0) if seen.queues else 0
    oldest = max((queue.oldest_seconds for queue in queues), default=0)
    told.append(f"{sum(queue.completed_per_minute for queue in queues):,} done a minute")
    told.append(f" · slots {meter(used, sum(one.slots for one in workers))}")
    told.append(f" · {counted(len(workers), 'worker')}")
    return told.append(f" · oldest waits {ago(round(oldest * 1000))}" if oldest else "")


def counts(seen: Seen, width: int) -> Text:
    """How many tasks there are, by status, in as many lines as that takes."""
    states = seen.queues.states if seen.queues else {}
    shown = [name for name in STATUSES if states.get(name) or name in ALWAYS]
    told, line = Text(), 0
    for name in shown:
        one = Text.assemble(mark(name), f" {states.get(name, 0):,}")
        is_next = line > 0 and line + GAP + one.cell_len > width
        gap = "\n" if is_next else " " * GAP if line else ""
        line = one.cell_len + (0 if is_next else line + len(gap))
        told.append(gap).append_text(one)
    return told


# The tables --------------------------------------------------------------------------------------


def tables(seen: Seen, filter: str, *, wide: bool) -> dict[str, Table]:
    """What there is to see, in the order of the screen."""
    return {
        "tasks": _tasks(seen, filter, wide=wide),
        "queues": _queues(seen),
        "workers": _workers(seen),
        "limits": _limits(seen),
        "failures": _failures(seen),
    }


def _tasks(seen: Seen, filter: str, *, wide: bool) -> Table:
    if seen.filter != filter:
        return Table(f"looking for {filter}" if filter else "looking")
    if seen.tasks is None:
        return _refused(seen, "tasks")
    columns = ("<STATUS", "<TYPE", *(("<QUEUE", "<ID") if wide else ()), "TRY", "AGE", "<")
    rows = []
    for task in seen.tasks.items:
        more = (task.queue, task.id) if wide else ()
        tries, since = f"{task.attempt}/{task.max_attempts}", seen.now - ms_of(task.created_at)
        told: object = gist(task)
        if task.progress is not None and task.state == "running":
            told = f"{bar(task.progress.percent / 100)} {told}"
        cells = (mark(task.status), task.type, *more, tries, ago(since), told)
        rows.append(Row(task.id, task, cells))
    newest = f"the newest {len(rows)}" if seen.tasks.next else f"{len(rows)}"
    told = f"{newest} that fit {filter}" if filter else newest
    return Table(told, columns, len(columns) - 1, tuple(rows))


def _queues(seen: Seen) -> Table:
    if seen.queues is None:
        return _refused(seen, "queues")
    columns = ("<QUEUE", "<", "PRIMARY", "RETRY", "LATER", "RUNNING", "DEAD", "OLDEST", "/MIN")
    rows = tuple(
        Row(name, (name, one), (
            name, mark("paused" if one.paused else "open"), one.primary, one.retry, one.scheduled,
            one.states.get("running", 0), one.dlq,
            ago(round(one.oldest_seconds * 1000)) if one.oldest_seconds else "–",
            one.completed_per_minute,
        ))
        for name, one in seen.queues.by_queue.items()
    )  # fmt: skip
    paused = [name for name, one in seen.queues.by_queue.items() if one.paused]
    told = [f"{len(rows)}", f"{seen.queues.pressure} pressure"]
    told += [f"{SYMBOLS['paused']} paused: {', '.join(paused)}"] if paused else []
    return Table(" · ".join(told), columns, 0, rows)


def _workers(seen: Seen) -> Table:
    if seen.workers is None:
        return _refused(seen, "workers")
    columns = ("<", "<SLOTS", "HEARD", "<ID", "<QUEUES")
    rows = tuple(
        Row(one.id, one, (
            mark("alive" if one.alive else "lost"), meter(one.running, one.slots),
            ago(seen.now - ms_of(one.seen_at)), one.id, ", ".join(one.queues),
        ))
        for one in seen.workers
    )  # fmt: skip
    alive = sum(one.alive for one in seen.workers)
    return Table(f"{alive} alive" if alive else "none is alive", columns, 4, rows)


def _limits(seen: Seen) -> Table:
    if seen.limits is None:
        return _refused(seen, "limits")
    used = {gauge.key for gauge in seen.limits.gauges}
    rows = [_limit(gauge.key, gauge.limit, gauge, seen.now) for gauge in seen.limits.gauges]
    rows += [_limit(one.key, one, None, seen.now) for one in seen.limits.items
             if one.key not in used]  # fmt: skip
    tripped = [gauge.key for gauge in seen.limits.gauges if gauge.circuit != "closed"]
    told = [f"{len(rows)}"]
    told += [f"{SYMBOLS['tripped']} circuit open: {', '.join(tripped)}"] if tripped else []
    columns = ("<LIMIT", "<SLOTS", "WAITING", "RATE", "<")
    return Table(" · ".join(told), columns, 0, tuple(rows))


def _limit(key: str, limit: schemas.Limit | None, gauge: schemas.Gauge | None, now: Ms) -> Row:
    slots, rate = (limit.slots, limit.rate) if limit else (None, None)
    used = gauge.used if gauge else 0
    room = f"{used}" if slots is None else meter(used, slots)
    open_ms, paused_ms = (0, 0) if gauge is None else (
        ms_of(gauge.open_until) - now, ms_of(gauge.paused_until) - now
    )  # fmt: skip
    state = mark("closed", "passes")
    if gauge is not None and gauge.circuit == "half_open":
        state = mark("half open", "half open: one task tries")
    elif gauge is not None and gauge.circuit == "open":
        state = mark("tripped", f"circuit open, tries in {age(open_ms)}")
    elif paused_ms > 0:
        state = mark("paused", f"paused for {age(paused_ms)}")
    elif slots is not None and used >= slots:
        state = mark("throttled", "full")
    return Row(key, gauge or limit, (key, room, gauge.waiting if gauge else 0, rate or "–", state))


def _failures(seen: Seen) -> Table:
    if seen.failures is None:
        return _refused(seen, "failures")
    columns = ("DEAD", "<TYPE", "<ERROR", "LAST", "<")
    rows = tuple(
        Row(f"{one.type} {one.fingerprint}", one, (
            one.count, one.type, one.error_type or one.reason or "–",
            ago(seen.now - ms_of(one.last_at)) if one.last_at else "–", one.message,
        ))
        for one in seen.failures
    )  # fmt: skip
    dead = sum(one.count for one in seen.failures)
    told = f"{SYMBOLS['dead']} {dead:,} dead of {counted(len(rows), 'cause')}" if dead else "none"
    return Table(told, columns, 4, rows)


def _refused(seen: Seen, name: str) -> Table:
    return Table(str(seen.refused.get(name, "")))


# Words and lines ---------------------------------------------------------------------------------


def cell(value: object) -> Text:
    """One line that does nothing but show, whoever wrote it."""
    return plain(value)


def mark(status: str, told: str = "") -> Text:
    """A status as a symbol and a word."""
    return Text(f"{SYMBOLS.get(status, '●')} {told or status}", style=TONES.get(status, ""))


def ago(ms: int) -> str:
    """An age in whole seconds and more: smaller ones would only flicker."""
    return age(ms) if ms >= 1_000 else "0s"


def bar(share: float) -> str:
    full = round(min(max(share, 0), 1) * BAR)
    return "▓" * full + "░" * (BAR - full)


def meter(used: int, of: int) -> str:
    return f"{bar(used / of) if of else bar(0)} {used}/{of}"


def counted(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def lines(table: Table, width: int) -> tuple[Text, list[Text]]:
    """The heads of the columns, and a line for each row: none is wider than `width` if its columns
    without the one that takes the rest are not. Nobody but that one has more than a quarter, except
    an id, which is there to be copied."""
    cells = [[cell(one) for one in row.cells] for row in table.rows]
    heads = [Text(name.removeprefix("<"), style="bold") for name in table.columns]
    most = [min(width // 2, ID) if head.plain == "ID" else max(width // 4, 11) for head in heads]
    sizes = [
        min(max(cell_len(row[n].plain) for row in [heads, *cells]), most[n])
        for n in range(len(heads))
    ]
    if sizes:
        others = sum(sizes) - sizes[table.rest] + GAP * (len(sizes) - 1)
        need = max(cell_len(row[table.rest].plain) for row in [heads, *cells])
        sizes[table.rest] = max(min(need, width - others), 8)
    left = [name.startswith("<") for name in table.columns]
    return _line(heads, sizes, left), [_line(row, sizes, left) for row in cells]


def _line(cells: Sequence[Text], sizes: Sequence[int], left: Sequence[bool]) -> Text:
    told = Text(no_wrap=True)
    for n, (one, size, is_left) in enumerate(zip(cells, sizes, left, strict=True)):
        shown = one.plain
        if cell_len(shown) > size:
            shown = set_cell_size(shown, size - 1) + "…"
        room = " " * (size - cell_len(shown))
        told.append(" " * GAP if n else "")
        told.append(shown + room if is_left else room + shown, style=one.style)
    return told
