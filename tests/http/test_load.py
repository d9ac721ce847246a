"""Enqueuing over HTTP under load: beside the barest route there could be, and while others run.

In `make test` for some seconds, and judged by the CPU time of server and database, which others on
the machine do not change much. `OUTLAST_TEST_DEEP` makes it as many times longer, and judges it by
the clock (`make proof`).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import psutil
import pytest

from outlast import Outlast
from outlast.core.model import TaskQuery
from tests.conformance.servers import url_for

from .load.client import closed, connect, open_loop, post
from .site import until

HERE: Final = Path(__file__).parent / "load"
DEEP: Final = int(os.environ.get("OUTLAST_TEST_DEEP", "0"))
TIMES: Final = max(DEEP, 1)
BODY: Final = json.dumps({"type": "add", "payload": {"a": 1, "b": 2}}).encode()
ENGINES: Final = ("sqlite", "postgresql")


@dataclass
class Served:
    """A server that runs."""

    pid: int
    port: int

    def cpu_s(self, *, with_database: bool = True) -> float:
        """What it has used, and the databases of this test with it."""
        counted = [psutil.Process(self.pid)]
        if with_database:
            children = psutil.Process().children(recursive=True)
            counted += [child for child in children if child.name() == "postgres"]
        used = 0.0
        for one in counted:
            with suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                used += times.user + times.system
        return used


@asynccontextmanager
async def process(*command: str) -> AsyncIterator[Served]:
    """A server of ours or of theirs; it prints its port in its first line."""
    running = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE, cwd=HERE
    )
    assert running.stdout
    try:
        line = await asyncio.wait_for(running.stdout.readline(), 30)
        yield Served(running.pid, int(line.decode().strip().rpartition(":")[2]))
    finally:
        running.kill()
        await running.wait()


def serve(url: str) -> tuple[str, ...]:
    return ("-m", "outlast", "serve", "served:app", "--engine", url, "--port", "0",
            "--log-level", "warning")  # fmt: skip


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("engine", ENGINES)
async def test_at_least_half_the_rate_of_a_bare_insert(engine: str, tmp_path: Path) -> None:
    url = await asyncio.to_thread(url_for, engine, tmp_path)
    bare_url = f"sqlite:///{tmp_path / 'bare.db'}" if engine == "sqlite" else url.partition("?")[0]
    async with process(*serve(url)) as ours, process("bare.py", bare_url) as bare:
        rates, spent = [], {"ours": 0.0, "bare": 0.0}
        for turn in range(8):  # in turns, for a busy machine is busy for both
            took = []
            for name, server, path in (("bare", bare, "/jobs"), ("ours", ours, "/api/v1/tasks")):
                before = server.cpu_s()
                took.append(await closed(server.port, post(path, BODY), 50, 400 * TIMES))
                if turn >= 2:  # two to warm up
                    spent[name] += server.cpu_s() - before
            rates.append(took)
    theirs, mine = (median(some) for some in zip(*rates[2:], strict=True))
    share = spent["bare"] / spent["ours"]
    print(f"{engine}: {mine:.0f}/s beside {theirs:.0f}/s; by CPU time {share:.2f}")  # noqa: T201
    assert share >= 0.5
    if DEEP:
        assert mine >= theirs / 2


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("engine", ENGINES)
async def test_answers_come_soon_while_a_thousand_tasks_run(engine: str, tmp_path: Path) -> None:
    url = await asyncio.to_thread(url_for, engine, tmp_path)
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "outlast", "worker", "served:app", "--engine", url,
        "--concurrency", "1200", "--log-level", "warning", cwd=HERE,
    )  # fmt: skip
    try:
        async with process(*serve(url)) as server:
            port = server.port
            batch = {"tasks": [{"type": "long"}] * 500}
            connection = await connect(port)
            for _ in range(2):
                request = post("/api/v1/tasks/batch", json.dumps(batch).encode())
                assert await connection.ask(request) == 202

            async with Outlast(url) as app:
                running = TaskQuery.of(type="long", status="running")

                async def all_run() -> bool:
                    return sum(count.n for count in await app.engine.count(running)) == 1_000

                await until(all_run, 60)
            before = server.cpu_s(with_database=False)
            latencies = await open_loop(port, post("/api/v1/tasks", BODY), 300, 5 * TIMES)
            used_s = server.cpu_s(with_database=False) - before
    finally:
        worker.kill()
        await worker.wait()
    p99 = latencies[len(latencies) * 99 // 100]
    busy = 300 * used_s / len(latencies)
    told = f"p50 {median(latencies):.0f} ms, p99 {p99:.0f} ms, {busy:.0%} of a core"
    print(f"{engine}: {told}")  # noqa: T201
    assert busy < 0.75  # a third on a quiet machine; there is room, so nobody waits for long
    if DEEP:
        assert p99 < 200
