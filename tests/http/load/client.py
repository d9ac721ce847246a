"""A client for load: keep-alive connections and prepared bytes, so that the server is measured."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from time import perf_counter
from typing import Final

LENGTH: Final = b"content-length: "


class Connection(asyncio.Protocol):
    """One request at a time; the answer is its status."""

    def __init__(self) -> None:
        self._buffer = b""
        self._waiting: asyncio.Future[int] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error or ConnectionError("closed by the server"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, mark, body = self._buffer.partition(b"\r\n\r\n")
        if not mark or self._waiting is None:
            return
        at = head.lower().index(LENGTH) + len(LENGTH)
        if len(body) >= int(head[at:].split(b"\r", 1)[0]):
            self._buffer = b""
            self._waiting.set_result(int(head[9:12]))

    async def ask(self, request: bytes) -> int:
        assert self.transport
        self._waiting = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._waiting


def post(path: str, body: bytes) -> bytes:
    return (
        b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (path.encode(), len(body), body)
    )


async def connect(port: int) -> Connection:
    loop = asyncio.get_running_loop()
    _, made = await loop.create_connection(Connection, "127.0.0.1", port)
    return made


async def closed(port: int, request: bytes, connections: int, n: int) -> float:
    """Requests a second, by so many connections that each wait for their answer."""
    made = [await connect(port) for _ in range(connections)]
    left = n

    async def one(connection: Connection) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            assert await connection.ask(request) == 202

    began = perf_counter()
    await asyncio.gather(*map(one, made))
    took_s = perf_counter() - began
    _close(made)
    return n / took_s


async def open_loop(port: int, request: bytes, rate: float, seconds: float) -> list[float]:
    """Latencies in ms at a steady rate, from when each request was due, whatever became of the
    others; so a server that stalls shows in all that had to wait for it."""
    free: deque[Connection] = deque()
    made: list[Connection] = []
    latencies: list[float] = []

    async def one(due: float) -> None:
        if free:
            connection = free.popleft()
        else:
            connection = await connect(port)
            made.append(connection)
        assert await connection.ask(request) == 202
        latencies.append((perf_counter() - due) * 1000)
        free.append(connection)

    began = perf_counter()
    async with asyncio.TaskGroup() as group:
        for i in range(int(rate * seconds)):
            due = began + i / rate
            if (ahead := due - perf_counter()) > 0:
                await asyncio.sleep(ahead)
            group.create_task(one(due))
    _close(made)
    return sorted(latencies)


def _close(connections: list[Connection]) -> None:
    for connection in connections:
        with suppress(Exception):
            assert connection.transport
            connection.transport.close()
