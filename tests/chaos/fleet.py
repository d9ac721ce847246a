"""Processes to be killed: start workers, wait for what they do, read the ledger they leave."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from outlast.app import Outlast
from outlast.core.ids import new_id
from outlast.core.limits import Limit
from outlast.core.model import NewTask, Task, TaskQuery
from outlast.engine import Engine, connect

HERE = Path(__file__).parent

_SUPERVISE = """
import json, logging, sys
logging.basicConfig(level="INFO", format="%(asctime)s %(process)d %(levelname)s %(message)s")
from outlast.worker.member import Settings
from outlast.worker.supervise import supervise
options = json.loads(sys.argv[1])
children = options.pop("children", 1)
sys.exit(supervise(Settings(**{"target": "chaosapp:app", **options}), children))
"""
_EMBED = """
import asyncio, json, logging, sys
logging.basicConfig(level="INFO", format="%(asctime)s %(process)d %(levelname)s %(message)s")
from chaosapp import app
from outlast.worker import Worker
asyncio.run(Worker(app, **json.loads(sys.argv[1])).run())
"""
_ROLL_UP = """
import asyncio
from chaosapp import app
from outlast.usage import roll_up
async def run():
    async with app:
        while True:
            await roll_up(app.engine)
            await asyncio.sleep(0.005)
asyncio.run(run())
"""


async def until(holds: Callable[[], bool | Awaitable[bool]], within_s: float = 60.0) -> float:
    """Wait for a condition, with a deadline; how long it took."""
    since = monotonic()
    while True:
        held = holds()
        if held if isinstance(held, bool) else await held:
            return monotonic() - since
        assert monotonic() - since < within_s, f"not so after {within_s} s"
        await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it went while we read
        return False


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the ledger."""

    kind: str
    task: str
    number: int
    pid: int


@dataclass
class Process:
    """A supervisor, or a worker of its own."""

    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def children(self) -> list[int]:
        """The worker processes of a supervisor."""
        return _children(self.popen.pid)

    @property
    def descendants(self) -> list[int]:
        """Everything below it that lives."""
        found = self.children
        for pid in found:
            found += _children(pid)
        return found

    @property
    def output(self) -> str:
        return self.log.read_text()

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def kill_group(self) -> None:
        """kill -9 of everything at once."""
        for pid in (*self.children, self.popen.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.popen.wait(10)

    async def ended(self, within_s: float = 60.0) -> int:
        await until(lambda: self.popen.poll() is not None, within_s)
        return int(self.popen.returncode)


@dataclass
class Fleet:
    """An engine, a ledger, a gate, and the processes that use them."""

    folder: Path
    url: str
    engine: Engine = field(init=False)
    processes: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = connect(self.url)
        self.ledger = self.folder / "ledger"
        self.gate = self.folder / "gate"
        self.ledger.touch()

    # processes -----------------------------------------------------------------------------------

    def supervisor(self, **options: Any) -> Process:
        return self._start(_SUPERVISE, options)

    def worker(self, **options: Any) -> Process:
        """A worker without a supervisor, as an application embeds it."""
        return self._start(_EMBED, options)

    def roller(self) -> Process:
        """A process that does nothing but roll up usage."""
        return self._start(_ROLL_UP, {})

    async def ready(self, workers: int = 1) -> None:
        """Until so many workers are known to the engine."""

        async def known() -> bool:
            return len([w for w in await self.engine.workers() if w.alive]) >= workers

        await until(known)

    def end(self) -> None:
        for process in self.processes:
            if process.popen.poll() is None:
                process.kill_group()

    def _start(self, code: str, options: dict[str, Any]) -> Process:
        log = self.folder / f"log-{len(self.processes)}"
        environment = {
            **os.environ,
            "OUTLAST_URL": self.url,
            "CHAOS_LEDGER": str(self.ledger),
            "CHAOS_GATE": str(self.gate),
            "PYTHONPATH": str(HERE),
        }
        with log.open("wb") as output:
            popen = subprocess.Popen(  # noqa: S603
                [sys.executable, "-c", code, json.dumps(options)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.folder,
            )
        process = Process(popen, log)
        self.processes.append(process)
        return process

    # tasks ---------------------------------------------------------------------------------------

    async def enqueue(
        self, type: str, n: int = 1, payload: object = None, **more: Any
    ) -> list[str]:
        body = json.dumps(payload or {}).encode()
        tasks = [NewTask(id=new_id(), type=type, payload=body, **more) for _ in range(n)]
        await self.engine.enqueue(tasks)
        return [task.id for task in tasks]

    async def task(self, task_id: str) -> Task:
        [task] = (await self.engine.tasks(TaskQuery.of(id=task_id))).items
        return task

    async def statuses(self) -> Counter[str]:
        found = await self.engine.count(TaskQuery(), ["status"])
        return Counter({str(count.by[0]): count.n for count in found})

    async def all_are(self, status: str, n: int, within_s: float = 60.0) -> None:
        async def so() -> bool:
            return (await self.statuses()) == {status: n}

        try:
            await until(so, within_s)
        except AssertionError:
            raise AssertionError(f"{await self.statuses()}, and not {n} {status}") from None

    async def verdicts(self, task_id: str) -> list[str]:
        return [entry["outcome"] for entry in json.loads((await self.task(task_id)).attempts)]

    # the truth -----------------------------------------------------------------------------------

    def lines(self, kind: str | None = None) -> list[Line]:
        found = []
        for text in self.ledger.read_text().splitlines():
            word, task, number, pid = text.split()
            found.append(Line(word, task, int(number), int(pid)))
        return [line for line in found if kind is None or line.kind == kind]

    async def started(self, n: int, within_s: float = 60.0) -> float:
        return await until(lambda: len(self.lines("start")) >= n, within_s)


def limited_app(url: str) -> Outlast:
    return Outlast(url, limits=[Limit("narrow", slots=3)])
