"""A real Celery fleet, prefork workers and beat on a real Valkey, runs Outlast's tasks; it is
killed in the middle and started again, and nothing is lost and each is recorded once.

150 tasks in `make test`; with `OUTLAST_TEST_DEEP` a thousand tasks and more kills (`make proof`).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import monotonic

import pytest

from outlast.app import Outlast
from outlast.core.ids import new_id
from outlast.core.model import EventQuery, NewTask, TaskQuery
from outlast.stream import so_far

HERE = Path(__file__).parent
DEEP = "OUTLAST_TEST_DEEP" in os.environ
MANY, KILLS = (1_000, 3) if DEEP else (150, 1)
_SPEC = spec_from_file_location("tests_servers_redis", HERE.parent / "servers" / "redis.py")
assert _SPEC is not None and _SPEC.loader is not None
_SERVERS = module_from_spec(_SPEC)
_SPEC.loader.exec_module(_SERVERS)


@pytest.fixture
def url() -> Iterator[str]:
    server = _SERVERS.Server()
    server.run()
    yield server.url
    server.stop()


class Fleet:
    """Celery's processes, each with its children in a group of its own."""

    def __init__(self, url: str, folder: Path, lease_ms: int) -> None:
        self.folder = folder
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self._running: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            "OUTLAST_URL": url,
            "FLEET_BROKER": f"{url}/1",
            "FLEET_LEDGER": str(self.ledger),
            "FLEET_LEASE_MS": str(lease_ms),
            "PYTHONPATH": str(HERE),
        }

    def worker(self, pool: str = "prefork") -> subprocess.Popen[bytes]:
        name = f"worker{len(self._running)}"
        return self._start("worker", "-P", pool, "-c", "3", "-l", "info", "-n", f"{name}@%h")

    def beat(self) -> subprocess.Popen[bytes]:
        schedule = self.folder / "schedule"
        return self._start("beat", "-l", "info", "-s", str(schedule), "--pidfile=")

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"log{len(self._running)}").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603  # ours
                [sys.executable, "-m", "celery", "-A", "celeryfleet:celery", *words],
                stdout=log, stderr=subprocess.STDOUT, env=self._environment, cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip
        self._running.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """kill -9 of a process and its children at once."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)

    def end(self) -> None:
        for process in self._running:
            self.kill(process)

    def ran(self, kind: str = "ran") -> list[str]:
        lines = [line.split() for line in self.ledger.read_text().splitlines()]
        return [line[1] for line in lines if line[0] == kind]

    def has_run_more_than(self, n: int) -> bool:
        return len(set(self.ran())) > n

    @property
    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("log*")))


async def until(holds: Callable[[], bool | Awaitable[bool]], within_s: float = 60.0) -> None:
    deadline = monotonic() + within_s
    while True:
        held = holds()
        if held if isinstance(held, bool) else await held:
            return
        assert monotonic() < deadline, f"not so after {within_s} s"
        await asyncio.sleep(0.05)


@pytest.fixture
async def fleet(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Fleet]:
    fleet = Fleet(url, tmp_path, request.param)
    try:
        yield fleet
    finally:
        fleet.end()
        sys.stdout.write(fleet.logs)  # pytest shows it when the test failed


async def enqueue(app: Outlast, type: str, ns: range) -> None:
    tasks = [
        NewTask(id=new_id(), type=type, payload=json.dumps({"n": n}).encode(), max_losses=10)
        for n in ns
    ]
    await app.engine.enqueue(tasks)


@pytest.mark.timeout(600)  # two cores that others use, too
@pytest.mark.parametrize("fleet", [3_000], indirect=True)
async def test_a_fleet_that_is_killed_in_the_middle_loses_nothing(fleet: Fleet, url: str) -> None:
    """Killed with everything it runs, some of it between its effect and its record."""
    app = Outlast(url)
    async with app:

        async def all_completed() -> bool:
            counts = await app.engine.count(TaskQuery(), ["status"])
            return {str(c.by[0]): c.n for c in counts} == {"completed": MANY}

        beat, worker = fleet.beat(), fleet.worker()
        for kill in range(KILLS + 1):
            first, last = kill * MANY // (KILLS + 1), (kill + 1) * MANY // (KILLS + 1)
            half = (first + last) // 2
            await enqueue(app, "counts", range(first, half))
            await enqueue(app, "counts_in_a_thread", range(half, last))
            if kill < KILLS:
                seen = (first + half) // 2
                await until(partial(fleet.has_run_more_than, seen), 60)
                fleet.kill(worker)
                fleet.kill(beat)
                beat, worker = fleet.beat(), fleet.worker()
        await until(all_completed, 300 if DEEP else 120)
        tasks = (await app.engine.tasks(TaskQuery(limit=MANY))).items
        results = sorted(int(task.result or b"-1") for task in tasks)
        assert results == list(range(MANY))
        assert set(fleet.ran()) == {task.id for task in tasks}
        for task in tasks:
            entries = [entry["outcome"] for entry in json.loads(task.attempts)]
            assert entries.count("succeeded") == 1, entries
        ends = Counter(e.task_id for e in await so_far(app.engine, EventQuery(kinds=("done",))))
        assert ends == Counter({task.id: 1 for task in tasks})


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fleet", [600_000], indirect=True)
async def test_celerys_own_tasks_and_a_stop_that_drains(fleet: Fleet, url: str) -> None:
    """Runners leave room for Celery's tasks, outlive its time limits, and end with its worker."""
    app = Outlast(url)
    async with app:

        async def runners() -> list[str]:
            return [w.id for w in await app.engine.workers() if w.alive and w.id[:7] == "celery."]

        async def both() -> bool:
            return len(await runners()) == 2

        fleet.beat()
        worker = fleet.worker()
        await until(both, 60)
        before = set(await runners())
        call = (
            "import celeryfleet; celeryfleet.native.delay(1); print(celeryfleet.taken.delay(2).id)"
        )
        done = await asyncio.create_subprocess_exec(
            sys.executable, "-c", call, env=fleet._environment, stdout=subprocess.PIPE
        )
        taken = (await done.communicate())[0].decode().strip()
        assert await app.handle(taken).result(timeout="60s") == 2
        await until(lambda: len(fleet.ran("native")) == 1)
        now = await app.engine.now()

        async def longer_than_the_limit() -> bool:
            return await app.engine.now() - now > 1_500

        await until(longer_than_the_limit)
        assert before == set(await runners())
        assert "time limit" not in fleet.logs
        worker.send_signal(signal.SIGTERM)
        await until(lambda: worker.poll() is not None)
        assert await runners() == []  # they said goodbye: no lease had to run out
        assert worker.returncode == 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("pool", ["solo", "threads"])
@pytest.mark.parametrize("fleet", [600_000], indirect=True)
async def test_a_process_whose_own_tasks_enqueue_is_a_runner_all_the_same(
    fleet: Fleet, url: str, pool: str
) -> None:
    """It has the app open already, on another loop; and in a pool of threads, more than once."""
    async with Outlast(url) as app:
        fleet.worker(pool)
        call = "import celeryfleet; celeryfleet.hands_over.delay(7)"
        calling = await asyncio.create_subprocess_exec(
            sys.executable, "-c", call, env=fleet._environment
        )
        assert await calling.wait() == 0
        await until(lambda: len(fleet.ran("handed")) == 1)
        fleet.beat()
        [handed] = fleet.ran("handed")
        assert await app.handle(handed).result(timeout="60s") == 7
        if pool == "threads":  # the ticks that follow find that the process is a runner
            await until(lambda: bool(re.search(r"Task outlast\.run\S+ succeeded", fleet.logs)))
        assert "raised unexpected" not in fleet.logs
