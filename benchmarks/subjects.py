"""What is compared on each engine, each at its best honest setting, and where it is installed."""

# ruff: noqa: S603  # every command here is made of our own constants

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import Final

# What holds the peers' environments and all data. Not a RAM disk: an fsync must cost.
CACHE: Final = Path(
    os.environ.get("OUTLAST_BENCH_CACHE", Path(tempfile.gettempdir()) / "outlast-bench")
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A task system as it is set up here. `requirement` is what pip installs; ours is installed."""

    name: str
    adapter: str
    about: str
    requirement: str | None = None
    variant: str = ""
    slower: int = 1
    """Gets so many times fewer tasks than the sizes say, to take about as long."""
    like_for_like: bool = True
    """Does it promise what ours promises? Only then does its rate count as the one to beat."""
    only: tuple[str, ...] = ()
    """The scenarios it takes part in; none named: all."""

    @property
    def ours(self) -> bool:
        return self.adapter == OUTLAST.adapter

    @property
    def python(self) -> Path:
        if self.requirement is None:
            return Path(sys.executable)
        name = re.split(r"[=\[]", self.requirement)[0]
        return CACHE / "venvs" / name / "bin" / "python"


OUTLAST: Final = Subject(
    "Outlast", "outlast_adapter", "whole record kept, three events a task in the log"
)

HUEY: Final = "huey==3.5.4 redis==8.1.0 hiredis==3.5.0"
DBOS: Final = "dbos==3.3.0 psycopg[binary]==3.3.8"
CELERY: Final = "celery==5.7.0 redis==8.1.0 hiredis==3.5.0 pymongo==4.18.3 packaging==26.3"
DRAMATIQ: Final = "dramatiq==2.2.1 redis==8.1.0 hiredis==3.5.0"
RQ: Final = "rq==2.12.0 redis==8.1.0 hiredis==3.5.0"
ARQ: Final = "arq==0.28.0 hiredis==3.5.0 uvloop==0.23.0"
TASKIQ: Final = "taskiq==0.13.0 taskiq-redis==1.2.4 hiredis==3.5.0 uvloop==0.23.0"
SAQ: Final = "saq==0.26.4 redis==7.4.1 hiredis==3.5.0 uvloop==0.23.0 typing-extensions==4.16.0"
STREAQ: Final = "streaq==7.2.0"
PGQUEUER: Final = "pgqueuer[asyncpg,cli]==1.6.0 asyncpg==0.32.0 uvloop==0.23.0"
PROCRASTINATE: Final = "procrastinate==3.10.0 psycopg[binary,pool]==3.3.8 uvloop==0.23.0"


def _raw(about: str) -> Subject:
    """The store without a task system: what bulk enqueue is held against."""
    return Subject("raw", "raw_adapter", about, only=("bulk",))


SUBJECTS: Final[dict[str, tuple[Subject, ...]]] = {
    "sqlite": (
        OUTLAST,
        Subject(
            "Huey", "huey_adapter", "defaults: one thread, result kept until read", HUEY, slower=12
        ),
        Subject("DBOS", "dbos_adapter", "defaults: polls every second, row kept", DBOS, slower=60),
        Subject("DBOS fast", "dbos_adapter", "polls every 50 ms", DBOS, "fast", slower=60),
        Subject(
            "Huey void",
            "huey_adapter",
            "its tasks return nothing: no trace of them is kept",
            HUEY,
            "void",
            slower=12,
            like_for_like=False,
        ),
        Subject(
            "Huey nosync",
            "huey_adapter",
            "`fsync=False`: a power cut may lose or damage the file",
            HUEY,
            "nosync",
            slower=12,
            like_for_like=False,
        ),
        _raw("two tables, one transaction per 1,000, fsync"),
    ),
    "redis": (
        OUTLAST,
        Subject("Celery", "celery_adapter", "8 threads, no results", CELERY, slower=30),
        Subject("Dramatiq", "dramatiq_adapter", "8 threads, no results", DRAMATIQ, slower=8),
        Subject("RQ", "rq_adapter", "SimpleWorker: no fork; results for 500 s", RQ, slower=100),
        Subject("arq", "arq_adapter", "100 at once, results for an hour", ARQ, slower=20),
        Subject("taskiq", "taskiq_adapter", "streams, 100 at once, no results", TASKIQ, slower=8),
        Subject("SAQ", "saq_adapter", "100 at once, results for 600 s", SAQ, slower=15),
        Subject("streaq", "streaq_adapter", "100 at once, results for 300 s", STREAQ, slower=30),
        Subject("Huey", "huey_adapter", "8 threads, result kept until read", HUEY, slower=12),
        _raw("`SET` and `XADD` per task, 1,000 tasks in a write"),
    ),
    "postgresql": (
        OUTLAST,
        # As many tasks as ours: its rate falls with the backlog.
        Subject("PgQueuer", "pgqueuer_adapter", "asyncpg, batches of 250, row deleted", PGQUEUER),
        Subject(
            "Procrastinate",
            "procrastinate_adapter",
            "20 at once, row and events kept",
            PROCRASTINATE,
            slower=60,
        ),
        Subject("DBOS fast", "dbos_adapter", "polls every 50 ms", DBOS, "fast", slower=60),
        _raw("`COPY` into two tables, one transaction per 1,000"),
    ),
    "mongodb": (
        replace(OUTLAST, slower=3),
        Subject("Celery", "celery_adapter", "8 threads, no results", CELERY, slower=50),
        replace(_raw("`insert_many` of 1,000 into two collections, w: majority"), slower=3),
    ),
}
"""By engine; ours comes first."""


def install(subject: Subject) -> None:
    """Make the subject's environment, once per cache."""
    if subject.requirement is None:
        return
    ready = subject.python.with_name("ready")
    if ready.exists() and ready.read_text() == subject.requirement:
        return
    folder = subject.python.parent.parent
    rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(subject.python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, *subject.requirement.split()], check=True)
    ready.write_text(subject.requirement)
