"""The server as a process: where it listens, how it starts, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from outlast import BadInput, Conflict, EngineDown, Outlast
from outlast.http.serve import listen, serve

from .site import API, make_app

PROGRAM = """
import asyncio, resource, sys
from outlast import Outlast
from outlast.http import serve

app = Outlast(sys.argv[1])
most = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

@app.task
async def add(a: int, b: int) -> int:
    return a + b

@app.task
async def keep(text: str) -> None:
    pass

asyncio.run(serve(app, port=0, embedded_worker=True, on_ready=lambda at: print(at, flush=True)))
"""


@asynccontextmanager
async def program(
    tmp_path: Path, most_bytes: int = -1
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A server with a worker; no file of its may grow beyond `most_bytes`."""
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, url, str(most_bytes),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout
    try:
        address = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
        yield process, address
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_it_serves_and_works_and_a_signal_ends_it_well(tmp_path: Path) -> None:
    async with (
        program(tmp_path) as (process, address),
        httpx2.AsyncClient(base_url=address, timeout=20, trust_env=False) as http,
    ):
        body = {"type": "add", "payload": {"a": 2, "b": 3}}
        id = (await http.post(f"{API}/tasks", json=body)).json()["id"]
        task = (await http.get(f"{API}/tasks/{id}", headers={"prefer": "wait=20"})).json()
        assert task["result"] == 5
        async with http.stream("GET", f"{API}/events") as stream:
            lines = stream.aiter_lines()
            assert await anext(lines) == "retry: 1000"
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(30):
                assert [line async for line in lines if line and not line.startswith("id:")] == []
                assert await process.wait() == 0


async def test_a_full_disk_is_told_and_passes(tmp_path: Path) -> None:
    async with (
        program(tmp_path, most_bytes=2_000_000) as (_, address),
        httpx2.AsyncClient(base_url=address, timeout=20, trust_env=False) as http,
    ):
        body = {"type": "keep", "payload": {"text": "x" * 1_000_000}}
        replies = [await http.post(f"{API}/tasks", json=body) for _ in range(4)]
        full = replies[-1]
        assert (replies[0].status_code, full.status_code) == (202, 507)
        assert full.json()["code"] == "engine_full" and full.headers["retry-after"]
        stored = [reply.json()["id"] for reply in replies if reply.status_code == 202]
        page = (await http.get(f"{API}/tasks")).json()
        assert {task["id"] for task in page["items"]} == set(stored)


async def test_the_ways_in_which_it_cannot_listen_are_told_in_a_sentence() -> None:
    app, _ = make_app()
    for host in ("0.0.0.0", "::", "8.8.8.8"):  # noqa: S104
        with pytest.raises(
            BadInput, match=r"Refusing to listen on .*API keys.*--host 127\.0\.0\.1"
        ):
            await serve(app, host, 0)
    for host, port in (("no.such.host.invalid", 0), ("127.0.0.1", 70_000), ("a" * 300, 1)):
        with pytest.raises(BadInput, match="Cannot listen on"):
            await serve(app, host, port)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Conflict, match=rf"Port {port} on 127\.0\.0\.1 is in use.*--port"):
            await serve(app, "127.0.0.1", port)
    assert not app.is_open


def test_loopback_has_several_names() -> None:
    for host in ("127.0.0.1", "localhost", "127.0.0.2"):
        with listen(host, 0) as listener:
            assert listener.getsockname()[0].startswith("127.0.0.")


async def test_an_engine_that_is_down_is_an_error_at_the_start(tmp_path: Path) -> None:
    app = Outlast(f"sqlite:///{tmp_path / 'no' / 'such' / 'folder' / 'tasks.db'}")
    with pytest.raises(EngineDown, match="folder"):
        await serve(app, port=0)


async def test_probes_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="uvicorn.access")
    app, _ = make_app()
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(app, port=0, on_ready=address.set_result))
    async with httpx2.AsyncClient(base_url=await address, trust_env=False) as http:
        for path in ("/livez", "/health?verbose", "/readyz", f"{API}/types"):
            assert (await http.get(path)).status_code == 200
    signal.raise_signal(signal.SIGINT)
    await asyncio.wait_for(serving, 30)
    lines = [record.getMessage() for record in caplog.records if record.name == "uvicorn.access"]
    assert len(lines) == 1 and f"{API}/types" in lines[0]
