"""Runs one subject on one store: calls its verbs, starts its workers, reads counts and CPU."""

# ruff: noqa: S603  # every command here is made of our own constants

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

from stores import ROOT, Store
from subjects import CACHE, Subject
from tally import Tally

HERE: Final = Path(__file__).resolve().parent
TICK_HZ: Final = os.sysconf("SC_CLK_TCK")
PATIENCE_S: Final = 120.0


class Failed(Exception):
    """A subject did not do what was asked of it."""


class Stage:
    """One subject with a fresh folder and an empty space in the store."""

    def __init__(self, subject: Subject, store: Store, folder: Path, url: str) -> None:
        self.subject, self.store, self.url = subject, store, url
        self.tally = Tally(folder)
        self._folder = folder
        self._command = [str(subject.python), str(HERE / "answer.py"), subject.adapter]
        self._env = {
            **os.environ,
            "BENCH_DIR": str(folder),
            "BENCH_URL": url,
            "BENCH_VARIANT": subject.variant,
            "PYTHONPATH": os.pathsep.join(map(str, (HERE, HERE / "adapters", ROOT / "src"))),
            "PYTHONWARNINGS": "ignore",
            "PATH": f"{subject.python.parent}{os.pathsep}{os.environ['PATH']}",
        }

    def ask(self, verb: str, *numbers: int) -> Any:
        run = subprocess.run(
            [*self._command, verb, *map(str, numbers)],
            env=self._env,
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            raise Failed(f"{self.subject.name}: {verb} failed:\n{run.stderr[-4000:]}")
        return json.loads(run.stdout.splitlines()[-1])

    @contextmanager
    def workers(self, n: int = 1) -> Iterator[Work]:
        """So many worker processes with their own defaults (and supervisors, if they have some)."""
        log = self._folder / "worker.log"
        since_ns = time.monotonic_ns()
        with log.open("ab") as out:
            processes = [
                subprocess.Popen(
                    [*self._command, "work"],
                    env=self._env,
                    cwd=self._folder,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
                for _ in range(n)
            ]
        try:
            yield Work(processes, self.tally, log, since_ns)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=10)
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def server_cpu_s(self) -> float:
        """Processor time of the server and everything it started, so far."""
        return 0.0 if self.store.pid is None else cpu_s(self.store.pid)


@contextmanager
def stage(subject: Subject, store: Store) -> Iterator[Stage]:
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=CACHE))
    url = store.take(folder)
    try:
        here = Stage(subject, store, folder, url)
        here.ask("prepare")
        yield here
    finally:
        store.drop(url)
        rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Work:
    """Workers that run."""

    processes: list[subprocess.Popen[bytes]]
    tally: Tally
    log: Path
    since_ns: int

    def reach(self, n: int) -> None:
        """Wait until `n` tasks have run."""
        give_up = time.monotonic() + PATIENCE_S
        while self.tally.count() < n:
            if any(process.poll() is not None for process in self.processes):
                raise Failed(f"A worker ended:\n{self.log.read_text()[-4000:]}")
            if time.monotonic() > give_up:
                told = f"only {self.tally.count()} of {n} tasks ran in {PATIENCE_S:.0f} s"
                raise Failed(f"{told}; the worker's log:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.005)

    def cpu_s(self) -> float:
        """Processor time of the workers and everything they started, so far."""
        return sum(cpu_s(process.pid) for process in self.processes)


def cpu_s(pid: int) -> float:
    """User and system time of a process and those below it, ended ones included."""
    return sum(map(_cpu_s, _tree(pid)))


def _tree(pid: int) -> list[int]:
    found = [pid]
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in listed.read_text().split():
                found += _tree(int(child))
    return found


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICK_HZ
