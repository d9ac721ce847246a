"""What the tests of agents share: a bridge that runs, a service that is told what to do."""

from __future__ import annotations

import asyncio
import inspect
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import redis

from outlast import Handle, Outlast
from outlast.agents.services import declare
from outlast.core.states import FINAL
from outlast.systems.streams import Bridge

CREATE = "agent:stream:task.create"
COMPLETED = "agent:stream:task.completed"
FAILED = "agent:stream:task.failed"
TIMEOUT = "agent:stream:task.timeout"
DLQ = "agent:stream:task.dlq"
REPORT = {"quarter": "Q4", "year": 2024}


def make_app(url: str) -> Outlast:
    """With the four types of the pattern, and some whose settings are quicker."""
    app = Outlast(url)
    declare(app)
    app.external("quick", queue="services", timeout="300ms", retry="10ms", max_attempts=2)
    app.external("patient", queue="services", retry="10ms", max_attempts=3)
    return app


async def until(condition: Callable[[], object], seconds: float = 30) -> Any:
    """What the condition gives once it is true; it may be a coroutine function."""
    deadline = monotonic() + seconds
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def bridging(app: Outlast, url: str, **options: Any) -> AsyncIterator[Bridge]:
    bridge = Bridge(app, url, **options)
    running = asyncio.create_task(bridge.run())
    ready = asyncio.create_task(bridge.wait_ready())
    try:
        await asyncio.wait({running, ready}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        assert ready.done()
        yield bridge
    finally:
        ready.cancel()
        bridge.stop()
        await running


def events(streams: redis.Redis, stream: str) -> list[dict[str, Any]]:
    """The events of a stream, their data decoded."""
    return [told | {"data": json.loads(told["data"])} for _, told in streams.xrange(stream)]


class Service:
    """A service elsewhere, step by step."""

    def __init__(self, streams: redis.Redis, name: str = "report") -> None:
        self.streams = streams
        self.group = f"{name}-group"
        streams.xgroup_create(CREATE, self.group, id="0", mkstream=True)

    async def take(self, n: int = 1) -> list[dict[str, Any]]:
        """The data of the next tasks, acknowledged."""
        taken: list[dict[str, Any]] = []

        def read() -> bool:
            for _, entries in (
                self.streams.xreadgroup(self.group, "w", {CREATE: ">"}, count=5) or []
            ):
                for id, told in entries:
                    taken.append(json.loads(told["data"]))
                    self.streams.xack(CREATE, self.group, id)
            return len(taken) >= n

        await until(read)
        return taken

    async def serve(self, handle: Handle[Any], result: object) -> None:
        """Complete every task that comes, until this one is over: whichever attempt is in time."""

        async def is_over() -> bool:
            for _, entries in self.streams.xreadgroup(self.group, "w", {CREATE: ">"}) or []:
                for _, told in entries:
                    self.complete(json.loads(told["data"]), result)
            return (await handle.refresh()).state in FINAL

        await until(is_over)

    def complete(self, task: dict[str, Any], result: object = "done") -> None:
        self.answer(COMPLETED, task, status="success", result=result)

    def fail(self, task: dict[str, Any], code: str, message: str = "no", **more: object) -> None:
        self.answer(FAILED, task, status="failed", error={"code": code, "message": message, **more})

    def answer(self, stream: str, task: dict[str, Any], **told: object) -> None:
        data = {"task_id": task["task_id"], "fence": task.get("fence"), **told}
        kind = stream.rpartition(":")[2]
        event = {
            "event_id": str(uuid.uuid4()),
            "event_type": kind,
            "timestamp": "2026-01-01T00:00Z",
        }
        self.streams.xadd(stream, {**event, "data": json.dumps(data)})
