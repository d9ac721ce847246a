"""Many who listen: streams that are dropped and resumed, notifications over a server that dies.

Real processes: `outlast serve`, `outlast worker`, and a client for each listener. A tenth of the
size in `make test`; with `OUTLAST_TEST_DEEP` a thousand of each (`make proof`).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from time import time
from typing import Any, Final

import httpx2
import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from outlast import Outlast
from outlast.core.model import EventQuery
from outlast.stream import so_far

from .site import API, until

LOAD: Final = Path(__file__).parent / "load"
DEEP: Final = "OUTLAST_TEST_DEEP" in os.environ
MANY: Final = 1_000 if DEEP else 100
SOON_S: Final = 1.0 if DEEP else 15.0
"""In `make test` others use the machine, too: it is judged by the clock in `make proof`."""
CHUNKS: Final = 20
DROPS: Final = 3


class Served:
    """A server on a file; it can be killed, and comes back at the same address."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'tasks.db'}"
        self.port = 0
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.process = await _outlast(
            "serve", "served:app", "--engine", self.url, "--port", str(self.port),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdout
        line = await asyncio.wait_for(self.process.stdout.readline(), 30)
        self.port = int(line.decode().rpartition(":")[2])

    async def kill(self) -> None:
        assert self.process
        self.process.kill()
        await self.process.wait()

    @property
    def rss(self) -> int:
        assert self.process
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def client(self) -> httpx2.AsyncClient:
        address = f"http://127.0.0.1:{self.port}"
        return httpx2.AsyncClient(base_url=address, timeout=60, trust_env=False)


async def _outlast(*command: str, **options: Any) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "outlast", *command, "--log-level", "error", cwd=LOAD, **options
    )


@asynccontextmanager
async def served(folder: Path, *, concurrency: int | None) -> AsyncIterator[Served]:
    """A server, and a worker unless its concurrency is None."""
    server = Served(folder)
    await server.start()
    worker = None
    try:
        if concurrency is not None:
            worker = await _outlast(
                "worker", "served:app", "--engine", server.url, "--concurrency", str(concurrency)
            )
        yield server
    finally:
        for process in (worker, server.process):
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()


async def enqueue(http: httpx2.AsyncClient, tasks: list[dict[str, Any]]) -> list[str]:
    ids: list[str] = []
    for start in range(0, len(tasks), 500):
        made = await http.post(f"{API}/tasks/batch", json={"tasks": tasks[start : start + 500]})
        assert made.status_code == 202, made.text
        ids += [task["id"] for task in made.json()["items"]]
    return ids


# Streams -----------------------------------------------------------------------------------------


async def listen(port: int, id: str, last: str | None, most: int | None) -> AsyncIterator[Any]:
    """(id, kind) of the frames of one connection, which is cut after `most` of them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET {API}/tasks/{id}/stream HTTP/1.1\r\nhost: localhost\r\n"
    head += f"last-event-id: {last}\r\n" if last else ""
    writer.write(f"{head}\r\n".encode())
    try:
        cursor = kind = ""
        while most is None or most > 0:
            line = await asyncio.wait_for(reader.readline(), 120)
            if not line:
                return
            name, _, value = line.decode().rstrip("\r\n").partition(": ")
            if name == "event":
                kind = value
            elif name == "id":
                cursor = value
            elif name == "data":
                yield cursor, kind
                most = None if most is None else most - 1
                if kind == "done":
                    return
    finally:
        writer.transport.abort()


async def follow(port: int, id: str, choose: random.Random) -> list[tuple[str, str]]:
    """The whole story, through some lost connections."""
    heard: list[tuple[str, str]] = []
    for most in (*(choose.randint(1, 5) for _ in range(DROPS)), None):
        last = heard[-1][0] if heard else None
        async for told in listen(port, id, last, most):
            heard.append(told)
    return heard


@pytest.mark.timeout(900)
async def test_every_stream_tells_every_event_once_through_lost_connections(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, concurrency=MANY) as server, server.client() as http:
        payload = {"chunks": CHUNKS, "pause_s": 0.2}
        ids = await enqueue(http, [{"type": "tell", "payload": payload}] * MANY)
        stories = await asyncio.gather(*(follow(server.port, id, random.Random(id)) for id in ids))
        async with Outlast(server.url) as app:
            for id, story in zip(ids, stories, strict=True):
                log = await so_far(app.engine, EventQuery(task_id=id))
                assert story == [(event.cursor, event.kind) for event in log]
                assert [kind for _, kind in story].count("chunk") == CHUNKS
                assert story[-1][1] == "done"


@pytest.mark.timeout(600)
async def test_an_idle_stream_costs_less_than_50_kb(tmp_path: Path) -> None:
    async with served(tmp_path, concurrency=None) as server, server.client() as http:
        ids = await enqueue(http, [{"type": "long"}] * 2 * MANY)
        opened: list[asyncio.StreamWriter] = []

        async def open_streams(some: list[str]) -> None:
            for id in some:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                opened.append(writer)
                writer.write(
                    f"GET {API}/tasks/{id}/stream HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
                )
                while not (await asyncio.wait_for(reader.readline(), 30)).startswith(b"data: "):
                    pass

        try:
            await open_streams(ids[:MANY])  # whatever is needed once is there now
            before = server.rss
            await open_streams(ids[MANY:])
            each = (server.rss - before) / MANY
        finally:
            for writer in opened:
                writer.transport.abort()
    print(f"{each / 1000:.1f} KB for an idle stream")  # noqa: T201
    assert each < 50_000


# Notifications -----------------------------------------------------------------------------------


class Listener:
    """The socket of a session, opened again whenever it is lost; it acknowledges nothing."""

    def __init__(self, server: Served, session: str) -> None:
        self._server, self._session = server, session
        self.told: dict[str, set[str]] = defaultdict(set)
        """Ids of notifications, by task."""
        self.delays_s: list[float] = []
        self.opened = 0

    async def run(self) -> None:
        while True:
            address = f"ws://127.0.0.1:{self._server.port}{API}/sessions/{self._session}/ws"
            with suppress(OSError, WebSocketException, EOFError):
                async with connect(address, open_timeout=30) as socket:
                    self.opened += 1
                    async for message in socket:
                        self._hear(json.loads(message))
            await asyncio.sleep(0.05)

    def _hear(self, notice: dict[str, Any]) -> None:
        if notice["task_id"] not in self.told:
            self.delays_s.append(time() - _seconds(notice["timestamp"]))
        self.told[notice["task_id"]].add(notice["notification_id"])


@pytest.mark.timeout(900)
async def test_notifications_come_soon_and_none_is_lost_with_the_server(tmp_path: Path) -> None:
    sessions = [f"s{n}" for n in range(MANY)]
    async with served(tmp_path, concurrency=50) as server, server.client() as http:
        connected = {name: Listener(server, name) for name in sessions[: MANY // 2]}
        running = [asyncio.create_task(listener.run()) for listener in connected.values()]
        try:
            await until(lambda: all(one.opened for one in connected.values()), 60)

            def work() -> list[dict[str, Any]]:
                payload = {"a": 1}
                return [{"type": "add", "payload": payload, "session_id": s} for s in sessions]

            ids = await enqueue(http, work())
            await until(lambda: all(len(one.told) == 1 for one in connected.values()), 60)
            delays_s = sorted(delay for one in connected.values() for delay in one.delays_s)
            soon = sum(delay < SOON_S for delay in delays_s) / len(delays_s)
            print(f"{soon:.1%} in {SOON_S:g} s, the last after {delays_s[-1]:.2f} s")  # noqa: T201
            ids += await enqueue(http, work())
            await server.kill()
            await server.start()
            await until(lambda: all(len(one.told) == 2 for one in connected.values()), 60)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        assert soon >= 0.95
        async with server.client() as later:
            for name in sessions:
                await _all_there(later, name, ids[sessions.index(name) :: MANY], connected)


async def _all_there(
    http: httpx2.AsyncClient, name: str, ids: list[str], connected: dict[str, Listener]
) -> None:
    """At the next interaction: each once, under the id that was pushed, until acknowledged."""
    path = f"{API}/sessions/{name}/notifications"

    async def ended() -> bool:
        return len((await http.get(path)).json()["items"]) == len(ids)

    await until(ended, 60)
    notices = (await http.get(path)).json()["items"]
    assert sorted(notice["task_id"] for notice in notices) == sorted(ids)
    if name in connected:
        pushed = {id for told in connected[name].told.values() for id in told}
        assert pushed == {notice["notification_id"] for notice in notices}
    body = {"ids": [notice["notification_id"] for notice in notices]}
    acked = (await http.post(f"{path}/ack", json=body)).json()["acknowledged"]
    assert sorted(acked) == sorted(body["ids"])
    assert (await http.get(path)).json()["items"] == []
    assert (await http.post(f"{path}/ack", json=body)).json()["acknowledged"] == []


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
