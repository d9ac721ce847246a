"""Connections that break, servers that are busy: what may be repeated is, and nothing is twice."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from outlast import EngineDown
from outlast.client import NotOutlast, Unreachable
from outlast.client import tasks as calls
from outlast.client.wire import Following
from tests.http.site import Site

from .conftest import Maker

Script = Callable[[int], int | bytes | None]
"""By the number of the connection: cut after so many bytes of the answer, answer these bytes
instead, or let everything through."""


class Middle:
    """Between client and server."""

    def __init__(self, port: int, script: Script) -> None:
        self._port = port
        self._script = script
        self.connections = 0
        self.address = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        todo = self._script(self.connections)
        with suppress(ConnectionError):
            if isinstance(todo, bytes):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(todo)
                await writer.drain()
            else:
                await self._pass_on(reader, writer, todo)
        writer.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int | None
    ) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        up = asyncio.create_task(_copy(reader, back, None))
        try:
            await _copy(there, writer, most)
        finally:
            up.cancel()
            back.close()


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int | None
) -> None:
    passed = 0
    while data := await reader.read(65_536):
        data = data if most is None else data[: most - passed]
        writer.write(data)
        await writer.drain()
        passed += len(data)
        if most is not None and passed >= most:
            return


@asynccontextmanager
async def between(site: Site, script: Script) -> AsyncIterator[Middle]:
    middle = Middle(site.port, script)
    server = await asyncio.start_server(middle.handle, "127.0.0.1", 0)
    middle.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield middle


def answer(status: str, *headers: str) -> bytes:
    lines = (f"HTTP/1.1 {status}", "content-length: 0", "connection: close", *headers, "", "")
    return "\r\n".join(lines).encode()


def first(n: int, what: int | bytes) -> Script:
    """This for the first connections, then nothing special."""
    return lambda number: what if number <= n else None


async def test_an_enqueue_whose_reply_is_lost_is_repeated_and_made_once(
    busy: Site, connect: Maker
) -> None:
    async with between(busy, first(2, 0)) as middle:
        client = connect(middle.address)
        task = await client.enqueue("add", {"a": 1})
        assert (task.existing, middle.connections) == (True, 3)
        assert len((await client.page()).items) == 1


async def test_a_batch_whose_reply_is_lost_is_made_once(busy: Site, connect: Maker) -> None:
    async with between(busy, first(1, 10)) as middle:
        made = await connect(middle.address).enqueue_many([{"type": "add", "payload": {"a": 1}}])
        assert [task.existing for task in made] == [True]


async def test_leases_whose_reply_is_lost_are_given_again(busy: Site, connect: Maker) -> None:
    await connect(busy.address).enqueue("elsewhere", {"to": "x"}, queue="far")
    async with between(busy, first(1, 0)) as middle:
        client = connect(middle.address)
        assert len(await client.claim("w", queues=["far"], types=["elsewhere"], wait_s=10)) == 1


async def test_what_must_not_happen_twice_is_not_repeated(busy: Site, connect: Maker) -> None:
    task = await connect(busy.address).enqueue("add", {"a": 1}, delay="1h")
    async with between(busy, first(9, 0)) as middle:
        with pytest.raises(Unreachable, match="does not answer"):
            await connect(middle.address).signal(task, "go")
        assert middle.connections == 1


@pytest.mark.parametrize(
    "refusal",
    [answer("429 Too Many Requests", "retry-after: 0"), answer("503 Service Unavailable")],
    ids=["too often", "busy"],
)
async def test_a_busy_server_is_asked_again(busy: Site, connect: Maker, refusal: bytes) -> None:
    async with between(busy, first(2, refusal)) as middle:
        assert (await connect(middle.address).enqueue("add", {"a": 1})).type == "add"
        assert middle.connections == 3


async def test_waiting_and_following_bear_a_server_that_starts_again(
    busy: Site, connect: Maker
) -> None:
    task = await connect(busy.address).enqueue("add", {"a": 1})
    async with between(busy, first(4, 0)) as middle:  # more often than others are repeated
        assert await connect(middle.address).result(task, timeout="60s") == 1
    async with between(busy, first(4, 0)) as middle:
        events = [event async for event in connect(middle.address).stream(task)]
        assert events[-1].kind == "done"


async def test_it_gives_up_in_the_end(busy: Site, connect: Maker) -> None:
    async with between(busy, first(99, answer("503 Service Unavailable"))) as middle:
        with pytest.raises(EngineDown, match="503"):
            await connect(middle.address, retries=1).queues()
        assert middle.connections == 2


async def test_nobody_there(connect: Maker, unused_port: int) -> None:
    with pytest.raises(Unreachable, match=f"http://127.0.0.1:{unused_port} does not answer"):
        await connect(f"http://127.0.0.1:{unused_port}", retries=1).health()


@pytest.fixture
def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


async def test_somebody_else_there(busy: Site, connect: Maker) -> None:
    html = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>"
    for reply in (html, answer("302 Found", "location: /login")):
        async with between(busy, first(9, reply)) as middle:
            with pytest.raises(NotOutlast):
                await connect(middle.address).queues()


async def test_a_stream_that_breaks_again_and_again_has_no_gap(busy: Site, connect: Maker) -> None:
    direct = connect(busy.address)
    task = await direct.enqueue("tell", {"chunks": 30})
    whole = [event async for event in direct.stream(task)]
    async with between(busy, lambda number: 900 + 37 * number if number < 12 else None) as middle:
        pieces = [event async for event in connect(middle.address).stream(task)]
        assert middle.connections > 3
    assert [event.cursor for event in pieces] == [event.cursor for event in whole]


def test_a_stream_resumes_where_it_began_when_it_breaks_before_its_first_event() -> None:
    """What happens meanwhile is not missed: the first bytes tell where the stream begins."""
    place = Following(calls.events((), None, None), None, until_done=False)
    assert "last-event-id" not in place.call().headers
    assert list(place.feed(b"retry: 1000\n\nid: 42\n\n: ping\n\nevent: sta")) == []
    assert place.call().headers["last-event-id"] == "42"
    [event] = place.feed(b'event: chunk\r\nid: 43\r\ndata: {"chunk":"\xe2\x80\xa8"}\r\n\r\n')
    assert (event.cursor, event.chunk) == ("43", "\u2028")
