"""An app behind a real server on a free port, a real client, and words to talk to it with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

import httpx2

from outlast import Context, Limit, Outlast, Permanent, Transient
from outlast.http.api import create_api
from outlast.http.serve import Server, listen
from outlast.worker import Worker

API = "/api/v1"


@dataclass(frozen=True)
class Frame:
    """One server-sent event."""

    kind: str
    id: str
    data: dict[str, Any]


class Site:
    """A running server."""

    def __init__(self, app: Outlast, server: Server, address: str, http: httpx2.AsyncClient):
        self.app = app
        self.server = server
        self.address = address
        self.http = http
        self.gates: dict[str, asyncio.Event] = {}

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def open_streams(self) -> int:
        count: int = self.server.config.app.state.live.open  # type: ignore[union-attr]
        return count

    async def get(self, path: str, **options: Any) -> httpx2.Response:
        return await self.http.get(API + path, **options)

    async def post(self, path: str, body: object = None, **options: Any) -> httpx2.Response:
        if body is not None:
            options["json"] = body
        return await self.http.post(API + path, **options)

    async def enqueue(
        self, type: str, payload: dict[str, Any] | None = None, **options: Any
    ) -> dict[str, Any]:
        reply = await self.post("/tasks", {"type": type, "payload": payload or {}, **options})
        assert reply.status_code == 202, reply.text
        task: dict[str, Any] = reply.json()
        return task

    async def task(self, id: str, **options: Any) -> dict[str, Any]:
        reply = await self.get(f"/tasks/{id}", **options)
        assert reply.status_code == 200, reply.text
        task: dict[str, Any] = reply.json()
        return task

    async def ended(self, id: str) -> dict[str, Any]:
        """The task once it is over, however long that takes: a test has its own bound."""
        while True:
            task = await self.task(id, headers={"prefer": "wait=15"})
            if task["status"] in ("completed", "cancelled", "dead"):
                return task

    @asynccontextmanager
    async def stream(self, path: str, last: str | None = None) -> AsyncIterator[Stream]:
        headers = {} if last is None else {"last-event-id": last}
        async with self.http.stream("GET", API + path, headers=headers) as reply:
            yield Stream(reply)

    async def frames(self, id: str, last: str | None = None) -> list[Frame]:
        """All frames of a task's stream, until the server ends it."""
        async with self.stream(f"/tasks/{id}/stream", last) as stream:
            return [frame async for frame in stream.frames()]

    async def raw(self, data: bytes) -> bytes:
        """Whatever the server answers to these bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            return await asyncio.wait_for(reader.read(), 30)
        finally:
            writer.close()
            await writer.wait_closed()


class Stream:
    """A stream of server-sent events, as a client reads it."""

    def __init__(self, reply: httpx2.Response) -> None:
        self.reply = reply
        self.comments: list[str] = []
        self.last_id = ""
        self._lines = reply.aiter_lines()

    async def frames(self) -> AsyncGenerator[Frame, None]:
        fields: dict[str, str] = {}
        async for line in self._lines:
            name, _, value = line.partition(": ")
            if line.startswith(":"):
                self.comments.append(line)
            elif line:
                fields[name] = value
            else:
                self.last_id = fields.get("id", self.last_id)
                if "data" in fields:
                    yield Frame(fields["event"], fields["id"], json.loads(fields["data"]))
                fields = {}

    async def next(self) -> Frame:
        return await asyncio.wait_for(anext(self.frames()), 30)


def make_app(url: str = "memory://") -> tuple[Outlast, dict[str, asyncio.Event]]:
    """An app with a handler for each thing that can happen, and the gates that some wait at."""
    app = Outlast(url, limits=[Limit("pool", slots=1)])
    gates: dict[str, asyncio.Event] = {}

    @app.task
    async def add(a: int, b: int = 0) -> int:
        """The sum of two numbers."""
        return a + b

    @app.task
    async def summarize(content: str) -> str:
        return content.partition(".")[0] + "."

    @app.task(retry="1ms")
    async def tell(ctx: Context, chunks: int, fails: int = 0) -> str:
        """Puts out numbered chunks; the first attempts fail behind them."""
        for n in range(chunks):
            await ctx.emit(f"{ctx.attempt}.{n}")
            if n % 3 == 0:
                await ctx.progress(100 * n / chunks, f"chunk {n}")
        if ctx.attempt <= fails:
            raise Transient("not yet")
        return f"{chunks} chunks"

    @app.task(limits=["pool"])
    async def wait(ctx: Context, gate: str) -> str:
        """Says that it is there, and waits for its gate to open."""
        await ctx.progress(50, "waiting")
        await gates.setdefault(gate, asyncio.Event()).wait()
        return gate

    @app.task
    async def doomed() -> None:
        raise Permanent("it cannot be")

    app.external("elsewhere", schema={"type": "object", "required": ["to"]})
    return app, gates


@asynccontextmanager
async def serving(
    app: Outlast, *, heartbeat_s: float = 15.0, working: bool = False, port: int = 0
) -> AsyncIterator[Site]:
    """The app behind a server of its own; with `working`, there is a worker too."""
    listener = listen("127.0.0.1", port)
    api = create_api(app, loopback_only=True, heartbeat_s=heartbeat_s)
    server = Server(api, on_end=api.state.live.closing.set)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    worker = Worker(app)
    running = [asyncio.create_task(server.serve([listener]))]
    try:
        await until(lambda: server.started)
        if working:
            running.append(asyncio.create_task(worker.run()))
            await asyncio.wait_for(worker.ready.wait(), 30)
        async with httpx2.AsyncClient(base_url=address, timeout=30, trust_env=False) as http:
            yield Site(app, server, address, http)
    finally:
        worker.stop_now()
        server.should_exit = True
        await asyncio.wait_for(asyncio.gather(*running), 30)


async def until(holds: Callable[[], bool | Awaitable[bool]], within_s: float = 30.0) -> None:
    """Wait for a condition; fail when it takes too long."""
    deadline = monotonic() + within_s
    while True:
        held = holds()
        if held if isinstance(held, bool) else await held:
            return
        assert monotonic() < deadline, f"not so after {within_s} s"
        await asyncio.sleep(0.005)
