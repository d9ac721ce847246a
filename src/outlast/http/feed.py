"""What is told of the log, once for all ways to hear it: stream, socket and long poll.

Every way has the same events under the same cursors, so a client may change its way at any time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from random import random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from outlast.app import Outlast
from outlast.core.model import Cursor, Event, EventQuery, Task
from outlast.core.redact import Redactor
from outlast.engine import Engine
from outlast.http.live import Live
from outlast.stream import find, tail
from outlast.views import View, event_view, log_view, task_view, to_json

# An event may carry a mebibyte: whoever listens holds one page of them at a time.
PAGE: Final = 50
PAGE_BYTES: Final = 8 * 1_048_576
POLL_S: Final = 5.0
READS_HZ: Final = 1_000


class Told(Struct, frozen=True):
    """One event, as clients see it."""

    kind: str
    cursor: Cursor
    view: View

    @property
    def frame(self) -> bytes:
        """As a server-sent event; the JSON has no line breaks."""
        kind, cursor = self.kind.encode(), self.cursor.encode()
        return b"event: %b\nid: %b\ndata: %b\n\n" % (kind, cursor, to_json(self.view))

    @property
    def item(self) -> View:
        """As a message of a socket, or one of a page."""
        return {"event": self.kind, "id": self.cursor, "data": self.view}


Feed = AsyncGenerator[Told, None]


async def of_task(
    engine: Engine, redactor: Redactor, query: EventQuery, linger_s: float | None = None
) -> Feed:
    """The task's events; the last one is always a `done`, also when the log has forgotten it."""
    kind, last, may_lack_end = "", query.after, query.after is None
    events = tail(engine, query, until_done=True, poll_s=_poll_s(), linger_s=linger_s)
    async for event in events:
        kind, last = event.kind, event.cursor
        may_lack_end = may_lack_end or kind == "reset"
        ending = await _ending(engine, redactor, event)
        if kind == "done" and not ending:
            event = replace(event, kind="state")  # it was redriven: this end was not the end
        yield _told(event, event_view(event, redactor) | ending)
    if kind != "done" and may_lack_end:
        task = await find(engine, query.task_id or "")
        if task is not None and task.completed_at is not None:
            rest = await engine.events(replace(query, after=last or None, limit=1))
            if not rest.items:  # else it ended just now, and the log has more to tell
                yield _late_end(redactor, task, rest.next)


async def of_all(
    app: Outlast,
    query: EventQuery,
    wanted: Callable[[Event], bool],
    live: Live,
    linger_s: float | None = None,
) -> Feed:
    """All events that are wanted. Every event wakes every such stream, which then reads: the more
    there are, the longer each rests before, so that all together read a thousand times a second."""
    events = tail(
        app.engine,
        query,
        poll_s=_poll_s(),
        linger_s=linger_s,
        wanted=wanted,
        rest_s=lambda: live.open / READS_HZ,
    )
    async for event in events:
        yield _told(event, log_view(event, app.redactor))


async def frames(head: bytes, feed: Feed) -> AsyncGenerator[bytes, None]:
    yield head
    async with aclosing(feed):
        async for told in feed:
            yield told.frame


async def page(feed: Feed) -> list[Told]:
    """What there is now: a page of it."""
    found: list[Told] = []
    size = 0
    async with aclosing(feed):
        async for told in feed:
            found.append(told)
            size += len(told.frame)
            if len(found) == PAGE or size >= PAGE_BYTES:
                break
    return found


def _poll_s() -> float:
    """Hints are seldom lost, and a thousand idle streams that look every second take a fifth of a
    core; apart from each other, so that they do not all look at once."""
    return POLL_S * (0.8 + 0.4 * random())  # noqa: S311  # no secret


def _told(event: Event, view: View) -> Told:
    if event.kind == "reset":
        view["at"] = None  # it happened here, not in the log
    return Told(event.kind, event.cursor, view)


async def _ending(engine: Engine, redactor: Redactor, event: Event) -> View:
    """For a `done`: what the record says, unless a redrive has changed that since."""
    if event.kind != "done" or event.task_id is None:
        return {}
    task = await find(engine, event.task_id)
    return _end_of(redactor, task) if task is not None and task.completed_at == event.at else {}


def _late_end(redactor: Redactor, task: Task, cursor: Cursor) -> Told:
    done = Event(
        cursor=cursor,
        kind="done",
        at=task.completed_at or task.updated_at,
        data=b"{}",
        task_id=task.id,
        attempt=task.number,
    )
    return _told(done, event_view(done, redactor) | _end_of(redactor, task))


def _end_of(redactor: Redactor, task: Task) -> View:
    view = task_view(task, redactor)
    end = {name: view[name] for name in ("status", "result", "error", "reason")}
    # The record keeps the last failure; a task that completed did not end with it.
    return {**end, "error": None} if task.state == "completed" else end
