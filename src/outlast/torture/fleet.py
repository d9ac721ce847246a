"""The processes under torture: groups of workers, producers, and the server if it is ours."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from outlast.core.errors import EngineDown, OutlastError
from outlast.engine import connect
from outlast.torture.app import FOLDER
from outlast.torture.producer import Share

CONCURRENCY: Final = 25
GRACE_S: Final = 3
PATIENCE_S: Final = 30.0


async def until(holds: Callable[[], bool | Awaitable[bool]], within_s: float) -> bool:
    """Wait for a condition; did it come to hold in time?"""
    give_up_at = monotonic() + within_s
    while True:
        held = holds()
        if held if isinstance(held, bool) else await held:
            return True
        if monotonic() > give_up_at:
            return False
        await asyncio.sleep(0.02)


def send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Process:
    """A process of ours, with its output in a file."""

    def __init__(self, command: list[str], folder: Path, name: str) -> None:
        self.name = name
        # In the folder, where no module of the user's can be mistaken for one of ours.
        environment = {**os.environ, FOLDER: str(folder)}
        with (folder / f"log-{name}").open("ab") as log:
            self._popen = subprocess.Popen(  # noqa: S603  # our own command line, or the user's
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=folder, env=environment, start_new_session=True,
            )  # fmt: skip
        self.pid = self._popen.pid

    @property
    def code(self) -> int | None:
        """The exit code once it has ended."""
        return self._popen.poll()

    @property
    def children(self) -> list[int]:
        with suppress(OSError):
            return [
                int(p)
                for p in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            ]
        return []

    @property
    def family(self) -> list[int]:
        return [*self.children, self.pid]

    def kill(self) -> tuple[int, ...]:
        """It and its children, at once."""
        family = self.family
        send(reversed(family), signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait(PATIENCE_S)
        return tuple(family)


class Server:
    """The engine's server, started by us from the user's command line."""

    def __init__(self, command: str, url: str, folder: Path) -> None:
        self._command = shlex.split(command)
        self._url = url
        self._folder = folder
        self._process: Process | None = None

    async def start(self) -> None:
        """Until it answers. One that ends at once goes again: its predecessor may not be gone."""
        give_up_at = monotonic() + PATIENCE_S
        while True:
            if self._process is None or self._process.code is not None:
                self._process = Process(self._command, self._folder, "server")
            engine = connect(self._url)
            try:
                await engine.open()
                await engine.now()
                return
            except OutlastError as problem:
                if monotonic() > give_up_at:
                    raise EngineDown(
                        f"--server {shlex.join(self._command)}: it does not answer at the engine's "
                        f"address ({problem}). Give a command that stays in the foreground."
                    ) from problem
            finally:
                await engine.close()
            await asyncio.sleep(0.02)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def pids(self) -> list[int]:
        """It and everything below it."""
        found = [self._process.pid] if self._process is not None else []
        for pid in found:
            with suppress(OSError):
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
                found += map(int, children.split())
        return found


class Fleet:
    """Groups of workers and the producers, each replaced when the nemesis has killed it."""

    def __init__(self, folder: Path, url: str, *, workers: int, lease_ms: int) -> None:
        self._folder = folder
        self._url = url
        self._lease_ms = lease_ms
        self._started = 0
        sizes = [workers // 2, workers - workers // 2]
        self._sizes = [size for size in sizes if size]
        self.groups: list[Process] = []
        self.producers: list[Process] = []
        self._shares: list[Share] = []

    def start(self, shares: list[Share]) -> None:
        self._shares = shares
        self.groups = [self._group(i) for i in range(len(self._sizes))]
        self.producers = [self._producer(i) for i in range(len(shares))]

    def replace_group(self, old: Process) -> None:
        i = self.groups.index(old)
        self.groups[i] = self._group(i)

    def replace_producer(self, old: Process) -> None:
        i = self.producers.index(old)
        self.producers[i] = self._producer(i)

    @property
    def workers(self) -> list[int]:
        """The worker processes."""
        return [pid for group in self.groups for pid in group.children]

    @property
    def full_size(self) -> int:
        return sum(self._sizes)

    def _group(self, i: int) -> Process:
        self._started += 1
        command = [
            sys.executable, "-m", "outlast", "worker", "outlast.torture.app:app",
            "--engine", self._url, "--processes", str(self._sizes[i]),
            "--concurrency", str(CONCURRENCY), "--lease", f"{self._lease_ms}ms",
            "--grace", f"{GRACE_S}s",
        ]  # fmt: skip
        return Process(command, self._folder, f"workers{self._started}")

    def _producer(self, i: int) -> Process:
        share = msgspec.json.encode(self._shares[i]).decode()
        command = [sys.executable, "-m", "outlast.torture.producer", share]
        return Process(command, self._folder, f"producer{i}")

    def end(self) -> None:
        for process in (*self.producers, *self.groups):
            if process.code is None:
                process.kill()
