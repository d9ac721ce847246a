"""The log: events after a cursor, in order.

A cursor is `ms-n`: an entry of the stream, which may tell of many tasks, and the place of one of
them in it (`cursor_of` in log.lua).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from outlast.core.errors import BadInput
from outlast.core.model import Cursor, Event, EventPage, EventQuery, NewEvent
from outlast.engines.redis.link import Link
from outlast.engines.redis.wire import plain

LOOK: Final = 500
"""Entries that one call looks at: a reader that wants few of them asks again."""
START: Final = "0-0"

_CURSOR: Final = re.compile(r"[0-9]{1,18}-[0-9]{1,18}")


def place_of(cursor: Cursor) -> tuple[int, int]:
    if not _CURSOR.fullmatch(cursor):
        raise BadInput(f"Not a cursor: {cursor[:40]!r}; take it from `next`", field="cursor")
    ms, _, n = cursor.partition("-")
    return int(ms), int(n)


def cursor_of(place: tuple[int, int]) -> Cursor:
    return f"{place[0]}-{place[1]}"


async def append(link: Link, events: Sequence[NewEvent], skew_ms: int) -> list[Cursor]:
    if not events:
        return []
    return [cursor.decode() for cursor in await link.run("append", skew_ms, plain(events))]


async def events(link: Link, query: EventQuery) -> EventPage:
    """The cursor of a page that is not full is where the log ends now."""
    if query.after == "$":
        last, pruned, _, _, _ = await _look(link, START, "", 1)
        return EventPage((), cursor_of(max(place_of(last), place_of(pruned))))
    after = place_of(query.after or START)
    index = _index(query)
    reset = False
    items: list[Event] = []
    while True:
        last, pruned, looked, upto, entries = await _look(link, cursor_of(after), index, LOOK)
        reset = reset or (query.after is not None and place_of(query.after) < place_of(pruned))
        for event in _events(entries, after):
            after = place_of(event.cursor)
            if _wanted(event, query):
                items.append(event)
                if len(items) == query.limit:
                    return EventPage(tuple(items), event.cursor, reset)
        after = max(after, place_of(upto))  # the last of them may have been forgotten
        if looked < LOOK:
            end = max(after, place_of(last), place_of(pruned))
            return EventPage(tuple(items), cursor_of(end), reset)


async def _look(
    link: Link, after: Cursor, index: str, limit: int
) -> tuple[str, str, int, str, Any]:
    values = [after.encode(), index.encode(), str(limit).encode()]
    last, pruned, looked, upto, entries = await link.eval("events", values, repeat=True)
    return last.decode(), pruned.decode(), looked, upto.decode(), entries


def _index(query: EventQuery) -> str:
    for name in ("task", "session", "workflow"):
        value = getattr(query, f"{name}_id")
        if value is not None:
            return f"{name}:{value}"
    return ""


def _wanted(event: Event, query: EventQuery) -> bool:
    return (
        (query.task_id is None or event.task_id == query.task_id)
        and (query.session_id is None or event.session_id == query.session_id)
        and (query.workflow_id is None or event.workflow_id == query.workflow_id)
        and (not query.kinds or event.kind in query.kinds)
    )


def _events(entries: Sequence[Sequence[bytes]], after: tuple[int, int]) -> Iterator[Event]:
    """From {cursor of the first event, text, holes}; those of forgotten tasks are left out."""
    for cursor, text, holes in entries:
        *told, data = text.split(b"\x1f", 8)
        kind, at, attempt, tasks, type_, queue, session, workflow = (x.decode() for x in told)
        ms, first = place_of(cursor.decode())
        for n, task in enumerate(tasks.split("\x1e")):
            if (ms, first + n) <= after or _forgotten(holes, n):
                continue
            yield Event(
                cursor=cursor_of((ms, first + n)),
                kind=kind,
                at=int(at),
                data=data,
                task_id=task or None,
                attempt=int(attempt),
                type=type_ or None,
                queue=queue or None,
                session_id=session or None,
                workflow_id=workflow or None,
            )


def _forgotten(holes: bytes, n: int) -> bool:
    """Is bit `n` set, as SETBIT counts them?"""
    return n < 8 * len(holes) and bool(holes[n // 8] & (0x80 >> n % 8))
