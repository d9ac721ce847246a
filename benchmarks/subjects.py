"""What is compared, each in an environment of its own, and how to run and to measure it."""

# ruff: noqa: S603  # every command here is made of our own constants

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

from tally import Tally

HERE = Path(__file__).resolve().parent
# What installs the peers' environments and holds the databases. Not a RAM disk: an fsync must cost.
CACHE = Path(os.environ.get("OUTLAST_BENCH_CACHE", Path(tempfile.gettempdir()) / "outlast-bench"))
TICK_HZ = os.sysconf("SC_CLK_TCK")
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Subject:
    """A task system as it is set up here. `requirement` is what pip installs; ours is installed."""

    name: str
    adapter: str
    about: str
    requirement: str | None = None
    variant: str = ""
    like_for_like: bool = True
    """Does it promise what ours promises? Only then does its rate count as the one to beat."""

    @property
    def python(self) -> Path:
        if self.requirement is None:
            return Path(sys.executable)
        return CACHE / "venvs" / self.requirement / "bin" / "python"


OUTLAST = Subject(
    "Outlast", "outlast_adapter", "fsync, whole record kept, three events a task in the log"
)
HUEY, DBOS = "huey==3.5.4", "dbos==3.3.0"
PEERS = (
    Subject("Huey", "huey_adapter", "defaults: fsync, one thread, result kept until read", HUEY),
    Subject("DBOS", "dbos_adapter", "defaults: polls every second, row kept", DBOS),
    Subject("DBOS fast", "dbos_adapter", "polls every 50 ms", DBOS, variant="fast"),
    Subject(
        "Huey void",
        "huey_adapter",
        "its tasks return nothing: no trace of them is kept",
        HUEY,
        variant="void",
        like_for_like=False,
    ),
    Subject(
        "Huey nosync",
        "huey_adapter",
        "`fsync=False`: a power cut may lose or damage the file",
        HUEY,
        variant="nosync",
        like_for_like=False,
    ),
)


def install(subject: Subject) -> None:
    """Make the subject's environment, once per cache."""
    if subject.requirement is None or subject.python.with_name("ready").exists():
        return
    folder = subject.python.parent.parent
    rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(subject.python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, subject.requirement], check=True)
    subject.python.with_name("ready").touch()


class Stage:
    """One subject with a fresh folder: calls its verbs, starts its worker, reads its counts."""

    def __init__(self, subject: Subject, folder: Path) -> None:
        self.subject = subject
        self.folder = folder
        self.tally = Tally(folder)
        self._command = [str(subject.python), str(HERE / "answer.py"), subject.adapter]
        self._env = {
            **os.environ,
            "BENCH_DIR": str(folder),
            "BENCH_VARIANT": subject.variant,
            "PYTHONPATH": f"{HERE}{os.pathsep}{HERE / 'adapters'}",
            "PATH": f"{subject.python.parent}{os.pathsep}{os.environ['PATH']}",
        }

    def ask(self, verb: str, *numbers: int) -> dict[str, float]:
        run = subprocess.run(
            [*self._command, verb, *map(str, numbers)],
            env=self._env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            raise SystemExit(f"{self.subject.name}: {verb} failed:\n{run.stderr[-4000:]}")
        answer: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
        return answer

    @contextmanager
    def worker(self) -> Iterator[Work]:
        """One worker process with its own defaults (and its supervisor, if it has one)."""
        log = self.folder / "worker.log"
        since_ns = time.monotonic_ns()
        with log.open("ab") as out:
            process = subprocess.Popen(
                [*self._command, "work"],
                env=self._env,
                cwd=self.folder,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            yield Work(process, self.tally, log, since_ns)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def stage(subject: Subject) -> Iterator[Stage]:
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=CACHE))
    try:
        yield Stage(subject, folder)
    finally:
        rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Work:
    """A worker that runs."""

    process: subprocess.Popen[bytes]
    tally: Tally
    log: Path
    since_ns: int

    def reach(self, n: int) -> None:
        """Wait until `n` tasks have run."""
        give_up = time.monotonic() + PATIENCE_S
        while self.tally.count() < n:
            if self.process.poll() is not None:
                raise SystemExit(f"The worker ended:\n{self.log.read_text()[-4000:]}")
            if time.monotonic() > give_up:
                told = f"only {self.tally.count()} of {n} tasks ran in {PATIENCE_S:.0f} s"
                raise SystemExit(f"{told}; the worker's log:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.005)

    def cpu_s(self) -> float:
        """Processor time of the worker and everything it started, so far."""
        return sum(map(_cpu_s, _tree(self.process.pid)))


def _tree(pid: int) -> list[int]:
    found = [pid]
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in listed.read_text().split():
                found += _tree(int(child))
    return found


def _cpu_s(pid: int) -> float:
    """User and system time, with that of children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICK_HZ
