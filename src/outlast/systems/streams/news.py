"""News of tasks, from the log to the streams: notifications of sessions, timeouts, dead tasks.

Every bridge reads the log behind one stored cursor, and publishes what it finds under ids made of
the event: so none is missed when a bridge dies, and none is there twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import asdict
from redis.exceptions import RedisError

from outlast import notices
from outlast.app import Outlast
from outlast.core.codec import loads
from outlast.core.errors import OutlastError
from outlast.core.model import Cursor, Event, EventQuery, Put, Task
from outlast.stream import find
from outlast.systems.streams.answers import OURS, REST_S
from outlast.systems.streams.wire import DLQ, NOTIFICATIONS, TIMEOUT, Streams, event
from outlast.views import iso

logger: Final = logging.getLogger("outlast.streams")

LOOK_S: Final = 2.0
PAGE: Final = 200


class News:
    """Tells what the log says about tasks: of the bridge's types, and of every session."""

    def __init__(self, app: Outlast, streams: Streams, types: Collection[str]) -> None:
        self._app = app
        self._streams = streams
        self._types = types
        self.ready = asyncio.Event()

    async def run(self) -> None:
        while True:
            try:
                async with self._app.engine.watch(["log"]) as watch:
                    while True:
                        await self._forward()
                        self.ready.set()
                        await watch.wait(LOOK_S)
            except (RedisError, OutlastError, OSError) as problem:
                logger.warning("News waits: %s", problem)
                await asyncio.sleep(REST_S)

    async def _forward(self) -> None:
        """Everything behind the cursor, a page at a time; the first bridge ever begins now."""
        engine = self._app.engine
        found = await engine.get("position", ["streams"])
        after: Cursor = msgspec.json.decode(found[0].value) if found else "$"
        while True:
            page = await engine.events(EventQuery(after=after, kinds=notices.KINDS, limit=PAGE))
            await self._tell(page.items)
            if page.next != after:
                value = msgspec.json.encode(page.next)
                await engine.put([Put(kind="position", key="streams", value=value)])
            after = page.next
            if len(page.items) < PAGE:
                return

    async def _tell(self, events: Sequence[Event]) -> None:
        owned = [one for one in events if one.session_id is not None]
        wanted: dict[str, notices.Preferences] = {}
        for one, notice in zip(owned, await notices.notices(self._app.engine, owned), strict=True):
            session_id = one.session_id or ""
            if session_id not in wanted:
                wanted[session_id] = await notices.preferences(self._app.engine, session_id)
            if wanted[session_id].want(notice):
                data = {**asdict(notice), "timestamp": iso(notice.timestamp)}
                told = event("notification", one.at, data, of=notice.notification_id)
                await self._streams.publish(NOTIFICATIONS.format(session_id), told)
        for one in events:
            if one.type in self._types:
                await self._tell_of_ours(one)

    async def _tell_of_ours(self, one: Event) -> None:
        task = await find(self._app.engine, one.task_id or "")
        if task is None:
            return
        mark = f"{task.id} {one.at}"
        if one.kind == "overdue":
            told = event("task.timeout", one.at, _overdue(task, one), of=mark)
            await self._streams.publish(TIMEOUT, told)
        elif loads(one.data).get("status") == "dead":
            await self._streams.publish(DLQ, event("task.dlq", one.at, self._dead(task), of=mark))

    def _dead(self, task: Task) -> dict[str, Any]:
        """What somebody needs who looks at it by hand; secrets are not shown."""
        redactor = self._app.redactor
        hidden = redactor.hidden(task)
        return {
            "task_id": task.id,
            "task_type": task.type,
            "status": "failed",
            "reason": task.reason,
            "params": loads(redactor.shown(task.payload, hidden.payload)),
            "error": None if task.error is None else loads(redactor.shown(task.error)),
            "attempts": task.attempt,
            "session_id": task.session_id,
            "created_at": iso(task.created_at),
            "failed_at": iso(task.completed_at),
        }


def _overdue(task: Task, one: Event) -> dict[str, Any]:
    """It takes longer than it should, and goes on."""
    after_ms = task.overdue_after_ms or 0
    return {
        "task_id": task.id,
        "status": "timeout",
        "message": f"Task exceeded timeout of {after_ms / 1_000:g} seconds",
        "elapsed_ms": one.at - task.created_at,
        "still_running": True,
        "detected_by": OURS,
    }
