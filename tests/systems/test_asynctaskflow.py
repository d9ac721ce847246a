"""AsyncTaskFlow on a real Valkey, over HTTP, with a server and a worker that are processes of
their own, and a model that misbehaves: every endpoint and field of the design, and the failure it
was written about, a storm of retries that must not keep new work out.

300 tasks make the storm in `make test`, and the lanes know it by fewer; with `OUTLAST_TEST_DEEP` it
is 6,000 and the design's own thresholds (`make proof`).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import monotonic
from typing import Any

import httpx2
import pytest

from outlast.core.ids import new_fence
from outlast.core.model import EventQuery, Turn, Want, WorkerInfo
from outlast.engine import Engine, connect
from outlast.samples import PARAGRAPH
from outlast.stream import so_far
from outlast.systems.asynctaskflow import metadata
from outlast.systems.standin import StandIn

HERE = Path(__file__).parent
DEEP = "OUTLAST_TEST_DEEP" in os.environ
STORM, NEW = (6_000, 600) if DEEP else (300, 150)
LANES = {} if DEEP else {"warning": 100, "critical": 250}
AGAIN = "60s" if DEEP else "4s"
CONCURRENCY = 6  # below the model's eight slots: nothing new is to wait at its limit
_SPEC = spec_from_file_location("tests_servers_redis", HERE.parent / "servers" / "redis.py")
assert _SPEC is not None and _SPEC.loader is not None
_SERVERS = module_from_spec(_SPEC)
_SPEC.loader.exec_module(_SERVERS)


class Site:
    """The processes, and words to talk to the server with."""

    def __init__(self, url: str, folder: Path, model: StandIn) -> None:
        self.url = url
        self.folder = folder
        self.model = model
        self.address = ""
        self._running: list[subprocess.Popen[bytes]] = []
        self.http = httpx2.AsyncClient(timeout=40)
        self._environment = {
            **os.environ,
            "OUTLAST_URL": url,
            "PYTHONPATH": str(HERE),
            "OPENROUTER_BASE_URL": model.url,
            "OPENROUTER_MODEL": "parrot",
            "OPENROUTER_API_KEY": "sk-test",
            "STORM": json.dumps({"lanes": LANES, "again": AGAIN}),
        }

    async def start(self) -> None:
        app, quiet = "asynctaskflowapp:app", ("--log-level", "error")
        server = self._start("outlast", "serve", app, "--port", "0")
        self._start("outlast", "worker", app, "--concurrency", str(CONCURRENCY), *quiet)
        self.address = await self._said(server, r"http://127\.0\.0\.1:\d+")

    def _start(self, module: str, *words: str) -> Path:
        log = self.folder / f"log{len(self._running)}"
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603  # ours
                [sys.executable, "-m", module, *words],
                stdout=output, stderr=subprocess.STDOUT, env=self._environment, cwd=self.folder,
            )  # fmt: skip
        self._running.append(process)
        return log

    async def _said(self, log: Path, pattern: str) -> str:
        found: list[str] = []

        def says() -> bool:
            found[:] = re.findall(pattern, log.read_text())
            return bool(found)

        await until(says)
        return found[0]

    async def end(self) -> None:
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            try:
                await asyncio.to_thread(process.wait, 20)
            except subprocess.TimeoutExpired:
                process.kill()
        await self.http.aclose()
        for log in sorted(self.folder.glob("log*")):
            sys.stdout.write(f"--- {log.name}\n{log.read_text()}")

    async def call(self, method: str, path: str, body: object = None, expect: int = 200) -> Any:
        options = {} if body is None else {"json": body}
        reply = await self.http.request(method, f"{self.address}{path}", **options)
        assert reply.status_code == expect, (path, reply.status_code, reply.text)
        return reply.json() if reply.content else None

    async def get(self, path: str) -> Any:
        return await self.call("GET", f"/api/v1{path}")

    async def summarize(self, text: str = PARAGRAPH) -> dict[str, Any]:
        told = await self.call("POST", "/api/v1/tasks/summarize/", {"content": text}, expect=202)
        return dict(told)

    async def ended(self, id: str) -> dict[str, Any]:
        while True:
            reply = await self.http.get(
                f"{self.address}/api/v1/tasks/{id}", headers={"prefer": "wait=30"}
            )
            if reply.json()["status"] in ("completed", "dead", "cancelled"):
                return dict(reply.json())

    async def has_status(self, id: str, status: str) -> bool:
        return bool((await self.get(f"/tasks/{id}"))["status"] == status)

    async def frames(self, id: str) -> list[tuple[str, dict[str, Any]]]:
        """Everything of a task's stream, until the server ends it."""
        reply = await self.http.get(f"{self.address}/api/v1/tasks/{id}/stream")
        found = re.findall(r"^event: (\w+)\n(?:id: .*\n)?data: (.*)$", reply.text, re.M)
        found = found or re.findall(r"^id: .*\nevent: (\w+)\ndata: (.*)$", reply.text, re.M)
        return [(kind, json.loads(data)) for kind, data in found]


async def until(holds: Callable[[], bool | Awaitable[bool]], within_s: float = 60.0) -> None:
    deadline = monotonic() + within_s * (10 if DEEP else 1)
    while True:
        held = holds()
        if held if isinstance(held, bool) else await held:
            return
        assert monotonic() < deadline, f"not so after {within_s} s"
        await asyncio.sleep(0.05)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    server = _SERVERS.Server()
    server.run()
    async with StandIn() as model:
        site = Site(server.url, tmp_path, model)
        try:
            await site.start()
            yield site
        finally:
            await site.end()
            server.stop()


@pytest.mark.timeout(300)  # two cores that others use, too
async def test_the_design_over_http(site: Site) -> None:
    # A summary whose first stream breaks off: PENDING, ACTIVE, FAILED, PENDING, ACTIVE, COMPLETED.
    site.model.cue(do="cut", after=4)
    task = await site.summarize()
    assert (task["type"], task["max_age"], task["max_attempts"]) == ("summarize", 3600.0, 4)
    frames = await site.frames(task["id"])
    kinds = [kind for kind, _ in frames]
    assert kinds.count("rollback") == 1 and kinds[-1] == "done"
    back = kinds.index("rollback")
    assert kinds[:back].count("chunk") == 4
    text = "".join(data["chunk"] for kind, data in frames[back:] if kind == "chunk")
    done = await site.get(f"/tasks/{task['id']}")
    assert done["result"] == text
    assert done["usage"]["output_tokens"] > 0 and done["usage"]["cost"] > 0
    told = metadata(done)
    assert (told["state"], told["retry_count"], told["error_type"]) == (
        "COMPLETED", 1, "ProtocolError",
    )  # fmt: skip
    assert [attempt["lane"] for attempt in done["attempts"]] == ["primary", "retry"]

    # Permanent errors go to the DLQ at once; only what failed or died can be retried by hand.
    site.model.cue(do="error", status=401)
    dead = await site.ended((await site.summarize())["id"])
    assert metadata(dead)["state"] == "DLQ" and dead["error"]["code"] == "unauthorized"
    assert [item["id"] for item in (await site.get("/queues/dlq"))["items"]] == [dead["id"]]
    listed = await site.get("/tasks/?status=dead&limit=10")
    assert [item["id"] for item in listed["items"]] == [dead["id"]]
    await site.call("POST", f"/api/v1/tasks/{done['id']}/retry", expect=409)
    await site.call("POST", f"/api/v1/tasks/{dead['id']}/retry")
    again = await site.ended(dead["id"])
    assert again["status"] == "completed"
    assert len(again["attempts"]) == 2

    # Rate limits rest for all and cost nothing.
    site.model.cue(do="rate_limit", retry_after=2)
    slow = [(await site.summarize())["id"] for _ in range(3)]
    for id in slow:
        ended = await site.ended(id)
        assert (ended["status"], ended["attempt"]) == ("completed", 1)

    # The rest of its endpoints.
    await site.call("POST", "/api/v1/tasks/requeue-orphaned")
    await site.call("DELETE", f"/api/v1/tasks/{done['id']}", expect=204)
    await site.call("GET", f"/api/v1/tasks/{done['id']}", expect=404)
    status = await site.get("/queues/status")
    assert status["queues"] == {"primary": 0, "retry": 0, "scheduled": 0, "dlq": 0}
    assert (status["retry_ratio"], status["pressure"]) == (0.3, "normal")
    assert status["states"]["completed"] == 4
    health = await site.call("GET", "/health")
    assert health["status"] == "healthy"
    assert set(health["components"]) == {"engine", "workers", "circuit_breaker"}

    # Ten failures open the breaker: nothing is picked up, health says so, and it costs no attempt.
    site.model.cue(do="error", status=503, times=20)
    failing = [(await site.summarize())["id"] for _ in range(20)]

    async def is_open() -> bool:
        return bool((await site.call("GET", "/health"))["status"] == "degraded")

    await until(is_open)
    late = (await site.summarize())["id"]
    await until(lambda: site.has_status(late, "throttled"))
    assert (await site.get(f"/tasks/{late}"))["attempt"] == 0
    why = await site.get(f"/tasks/{late}/why")
    assert "circuit" in why["text"]
    for id in (*failing, late):
        with suppress(AssertionError):  # some may have been let through by a slow machine
            await site.call("POST", f"/api/v1/tasks/{id}/cancel")


async def all_are_counted(engine: Engine) -> bool:
    """Does a worker that asks how many retries press hear of all of them?"""
    turn = Turn(
        token=new_fence(),
        worker="asks",
        lease_ms=60_000,
        wants=(Want("default", "retry", 0),),
        info=WorkerInfo(host="test", pid=0),
        pressure=True,
    )
    return (await engine.exchange(turn)).pressure["default"] == STORM


@pytest.mark.timeout(1_800 if DEEP else 300)
async def test_a_storm_of_retries_leaves_new_work_nine_claims_of_ten(site: Site) -> None:
    tasks = [{"type": "doomed", "payload": {"n": n}} for n in range(STORM)]
    for first in range(0, STORM, 500):
        body = {"tasks": tasks[first : first + 500]}
        await site.call("POST", "/api/v1/tasks/batch", body, expect=202)

    async def all_failed_once() -> bool:  # some may be due again by then
        return bool((await site.get("/queues/status"))["queues"]["primary"] == 0)

    await until(all_failed_once)
    await site.call("POST", "/api/v1/queues/default/pause")

    async def all_wait() -> bool:
        waiting = (await site.get("/queues/status"))["queues"]
        return bool(waiting["retry"] == STORM and waiting["scheduled"] == 0)

    await until(all_wait)
    assert (await site.get("/queues/status"))["pressure"] == "critical"
    assert (await site.get("/queues/status"))["retry_ratio"] == 0.1
    engine = connect(site.url)
    await engine.open()
    try:
        await until(partial(all_are_counted, engine))
        since = await engine.now()

        async def the_worker_knows() -> bool:
            return await engine.now() - since > 2_500  # it looks every second

        await until(the_worker_knows)
        new = [{"type": "summarize", "payload": {"content": f"Sentence {n}."}} for n in range(NEW)]
        for first in range(0, NEW, 500):
            body = {"tasks": new[first : first + 500]}
            await site.call("POST", "/api/v1/tasks/batch", body, expect=202)
        resumed_at = await engine.now()
        await site.call("POST", "/api/v1/queues/default/resume")

        async def all_new_done() -> bool:
            found = (await site.get("/queues/status"))["states"]
            return bool(found.get("completed", 0) == NEW)

        await until(all_new_done)
        events = await so_far(engine, EventQuery(kinds=("state",)))
    finally:
        await engine.close()
    told = [json.loads(event.data) for event in events if event.at >= resumed_at]
    claims = [data["lane"] for data in told if data.get("status") == "running"]
    while_both_wait = claims[CONCURRENCY : len(claims) - claims[::-1].index("primary")]
    assert while_both_wait.count("primary") >= NEW - CONCURRENCY
    for start in range(len(while_both_wait) - 99):
        window = while_both_wait[start : start + 100]
        assert window.count("primary") == 90, f"claims {start} to {start + 100}"
