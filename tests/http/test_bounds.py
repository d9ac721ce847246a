"""Clients that hold still, send too much, or come in crowds: bounded, told why, others unaffected.

The floods are against a real `outlast serve`, by raw sockets, with its memory measured. They are
small in `make test`; with `OUTLAST_TEST_DEEP` there are 10,000 connections (`make proof`).
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx2
import psutil
import pytest

from outlast.http import body, wire

from .site import API, Site, until

DEEP: Final = "OUTLAST_TEST_DEEP" in os.environ
FILES: Final = 16_000 if DEEP else 328
CROWD: Final = 10_000 if DEEP else 400
MIB: Final = 1_048_576

READ: Final = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Raw:
    """A connection that is spoken to byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self, within_s: float = 30) -> bytes:
        """Everything until the server closes, which may cut off what we still say."""
        told = b""
        with _cut_off():
            while more := await self.some(within_s=within_s):
                told += more
        return told

    async def some(self, n: int = 4096, within_s: float = 30) -> bytes:
        return await asyncio.wait_for(self.reader.read(n), within_s)


@asynccontextmanager
async def raw(port: int, receive_bytes: int | None = None) -> AsyncIterator[Raw]:
    made = socket.socket()
    if receive_bytes is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=made)
    try:
        yield Raw(reader, writer)
    finally:
        writer.transport.abort()


# Holding still -----------------------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience for half a second."""
    for module, name, seconds in (
        (wire, "HEAD_S", 0.5), (wire, "LOOK_S", 0.1), (wire, "STUCK_S", 0.5), (body, "BODY_S", 0.5),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, seconds)


@pytest.mark.parametrize(
    "said", [b"", b"GET /livez HT", b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx: "]
)
async def test_a_head_that_does_not_come_is_told_and_closed(
    hasty: None, site: Site, said: bytes
) -> None:
    async with raw(site.port) as slow:
        await slow.say(said)
        reply = await slow.rest()
    assert reply.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b'"code":"too_slow"' in reply


async def test_a_head_that_comes_in_drops_is_no_better(hasty: None, site: Site) -> None:
    async with raw(site.port) as slow:
        answer = asyncio.create_task(slow.rest())
        for byte in READ * 100:
            if answer.done():
                break
            await slow.say(bytes([byte]) if byte != 10 else b" ")
            await asyncio.wait({answer}, timeout=0.05)
        assert (await answer).startswith((b"HTTP/1.1 408", b"HTTP/1.1 400"))


async def test_a_second_request_that_does_not_come_is_told_too(hasty: None, site: Site) -> None:
    async with raw(site.port) as slow:
        await slow.say(READ)
        assert (await slow.some()).startswith(b"HTTP/1.1 200")
        await slow.say(b"GET /")
        assert (await slow.rest()).startswith(b"HTTP/1.1 408")


async def test_a_body_that_does_not_come_is_told_and_closed(hasty: None, site: Site) -> None:
    async with raw(site.port) as slow:
        await slow.say(_post(b"content-length: 100") + b"{")
        reply = await slow.rest()
    assert reply.startswith(b"HTTP/1.1 408")
    assert b"The body did not arrive" in reply


async def test_an_answer_that_is_not_taken_is_cut_off(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = {"content": "x" * 1_000_000}
    for _ in range(8):  # with patience: on a busy machine a megabyte takes a while
        await site.enqueue("summarize", big)
    hasten(monkeypatch)
    connections = site.server.server_state.connections
    async with raw(site.port, receive_bytes=4096) as deaf:
        before = len(connections)
        await deaf.say(b"GET /api/v1/tasks HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await until(lambda: len(connections) < before)


async def test_streams_and_long_requests_are_left_alone(hasty: None, busy: Site) -> None:
    id = (await busy.enqueue("wait", {"gate": "g"}))["id"]
    async with busy.stream("/events") as stream:
        waiting = asyncio.create_task(busy.ended(id))
        await asyncio.sleep(1.2)  # longer than anybody may hold still
        busy.gates["g"].set()
        assert (await waiting)["result"] == "g"
        frame = await stream.next()
        while frame.kind != "done":
            frame = await stream.next()


# Too much ----------------------------------------------------------------------------------------


@asynccontextmanager
async def served(tmp_path: Path, files: int = FILES) -> AsyncIterator[tuple[psutil.Process, int]]:
    """A real server, with so many files at most."""

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "outlast", "serve", "served:app", "--port", "0",
        "--engine", f"sqlite:///{tmp_path / 'tasks.db'}", "--log-level", "error",
        stdout=asyncio.subprocess.PIPE, preexec_fn=bounded, cwd=Path(__file__).parent / "load",
    )  # fmt: skip
    assert process.stdout
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        yield psutil.Process(process.pid), int(line.decode().rpartition(":")[2])
    finally:
        process.kill()
        await process.wait()


async def test_a_hundred_megabytes_are_refused_before_they_are_sent(tmp_path: Path) -> None:
    async with served(tmp_path) as (process, port):
        await _answers(port)
        before = process.memory_info().rss
        async with raw(port) as large:
            await large.say(_post(b"content-length: 104857600"))
            reply = await large.rest()
            assert reply.startswith(b"HTTP/1.1 413")
            assert b"connection: close" in reply
        for _ in range(10):
            async with raw(port) as large:
                await large.say(_post(b"transfer-encoding: chunked"))
                sent, chunk = 0, b"10000\r\n" + b" " * 0x10000 + b"\r\n"
                with _cut_off():
                    while sent < 100 * MIB:
                        await large.say(chunk)
                        sent += len(chunk)
                assert sent < 32 * MIB  # what is let pass, and the buffers of the kernel
        await _answers(port)
        assert process.memory_info().rss - before < 40 * MIB


async def test_a_crowd_that_holds_still_makes_room(tmp_path: Path) -> None:
    most = min(wire.MAX_CONNECTIONS, FILES - wire.SPARE)
    async with served(tmp_path) as (process, port):
        address = f"http://127.0.0.1:{port}"
        async with httpx2.AsyncClient(base_url=address, timeout=20, trust_env=False) as regular:
            assert (await regular.get("/livez")).status_code == 200
            before = process.memory_info().rss
            crowd: list[socket.socket] = []
            try:
                for n in range(CROWD):
                    crowd.append(_silent(port))
                    if n % 100 == 0:  # whoever was there before goes on as ever
                        assert (await regular.get(f"{API}/tasks")).status_code == 200
                held = process.num_fds()
                assert held <= most + wire.SPARE
                grown = process.memory_info().rss - before

                async def let_in() -> bool:
                    return await _status(port) == 200

                assert await _status(port) in (200, 503)
                await until(let_in)
            finally:
                for one in crowd:
                    one.close()
            assert grown < 10 * MIB + most * 20_000
            await _answers(port)


async def test_a_crowd_that_is_busy_is_refused_clearly(tmp_path: Path) -> None:
    most = 200
    stream = b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n"
    async with served(tmp_path, most + wire.SPARE) as (_, port):
        crowd: list[socket.socket] = []
        try:
            for _ in range(most):
                crowd.append(_silent(port))
                crowd[-1].sendall(stream)
                assert crowd[-1].recv(15).startswith(b"HTTP/1.1 200")
            async with raw(port) as late:
                reply = await late.rest()
                assert reply.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
                assert b"retry-after: " in reply
                assert b"application/problem+json" in reply
        finally:
            for one in crowd:
                one.close()
        await _answers(port)


# Sockets -----------------------------------------------------------------------------------------

HANDSHAKE: Final = (
    b"GET /api/v1/sessions/s/ws HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\n"
    b"upgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\xf1\x80\0\0\0\0", 1002),  # bits that nobody has agreed on
        (b"\x83\x80\0\0\0\0", 1002),  # no such kind of frame
        (b"\x81\x01x", 1002),  # without a mask
        (b"\x80\x80\0\0\0\0", 1002),  # goes on with nothing
        (b"\x89\xfe\x01\x00\0\0\0\0" + b"x" * 256, 1002),  # a ping that is too long
        (b"\x81\xff" + struct.pack("!Q", 2**40) + b"\0\0\0\0", 1009),  # a terabyte
        (b"\x81\xff" + struct.pack("!Q", 70_000) + b"\0\0\0\0" + b"x" * 70_000, 1009),
        (b"\x81\x82\0\0\0\0\xff\xff", 1007),  # no UTF-8
        (b"\x01\xfe" + struct.pack("!H", 60_000) + b"\0\0\0\0" + b"x" * 60_000
         + b"\x80\xfe" + struct.pack("!H", 60_000) + b"\0\0\0\0" + b"x" * 60_000, 1009),
    ],
)  # fmt: skip
async def test_a_frame_that_is_none_ends_its_socket_only(
    site: Site, frame: bytes, code: int
) -> None:
    async with raw(site.port) as good, raw(site.port) as bad:
        for one in (good, bad):
            await one.say(HANDSHAKE)
            assert (await one.some()).startswith(b"HTTP/1.1 101")
        reading = asyncio.create_task(bad.rest())
        await bad.say(frame)
        told = await reading
        assert told[:1] == b"\x88"
        assert struct.unpack("!H", told[2:4]) == (code,)
        await good.say(b"\x82\x82\0\0\0\0\xff\xff")  # bytes: not wanted, but no harm
        assert b"notification_id" in await good.some()
    await until(lambda: site.open_streams == 0)


@pytest.mark.parametrize(
    "head", [b"", b"sec-websocket-version: 8\r\n", b"sec-websocket-key: x\r\n"]
)
async def test_a_handshake_that_is_none_is_refused(site: Site, head: bytes) -> None:
    start, _, _ = HANDSHAKE.partition(b"sec-websocket-version")
    async with raw(site.port) as bad:
        await bad.say(start + head + b"\r\n")
        assert (await bad.rest())[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 426")


# Helpers -----------------------------------------------------------------------------------------


def _post(header: bytes) -> bytes:
    return b"POST /api/v1/tasks HTTP/1.1\r\nhost: localhost\r\n" + header + b"\r\n\r\n"


def _silent(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


async def _status(port: int) -> int:
    async with raw(port) as one:
        with _cut_off():
            await one.say(READ)
            return int((await one.some())[9:12] or 0)
    return 0


async def _answers(port: int) -> None:
    """Enqueue and read, as everybody does."""
    address = f"http://127.0.0.1:{port}"
    async with httpx2.AsyncClient(base_url=address, timeout=30, trust_env=False) as http:
        body = json.dumps({"type": "add", "payload": {"a": 1}})
        made = await http.post(
            f"{API}/tasks", content=body, headers={"content-type": "application/json"}
        )
        assert made.status_code == 202
        assert (await http.get(made.headers["location"])).status_code == 200


class _cut_off:  # noqa: N801  # reads as a statement
    """The server may close while we speak."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: object, _: object) -> bool:
        return isinstance(error, ConnectionError)
