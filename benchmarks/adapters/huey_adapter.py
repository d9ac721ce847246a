"""Huey on SQLite: a task's row is deleted when it is taken; its result is kept until it is read.

By default it leaves `synchronous` as SQLite has it, which is FULL: every commit is an fsync.
Variants: `void`, the task returns nothing, so no trace of it is kept; `nosync`, `fsync=False`.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from pathlib import Path
from typing import NoReturn

import tally
from adapter import FOLDER, VARIANT, by_threads, gap_s
from huey import SqliteHuey  # type: ignore[import-not-found]  # in an environment of its own

FILE = FOLDER / "huey.db"
huey = SqliteHuey("bench", filename=str(FILE), **({"fsync": False} if VARIANT == "nosync" else {}))


@huey.task()  # type: ignore[untyped-decorator]
def noop() -> int | None:
    tally.tick()
    return None if VARIANT == "void" else 1


@huey.task()  # type: ignore[untyped-decorator]
def late(asked_ns: int) -> None:
    tally.since(asked_ns)


class Huey:
    def enqueue(self, n: int, callers: int) -> float:
        return by_threads(noop, n, callers)

    def bulk(self, n: int) -> float:
        return self.enqueue(n, 1)  # there is no call for many; one thread does not contend

    def pace(self, n: int) -> None:
        for _ in range(n):
            time.sleep(gap_s())
            late(time.monotonic_ns())

    def check(self) -> dict[str, object]:
        with sqlite3.connect(FILE) as conn:
            [waiting] = conn.execute("select count(*) from task").fetchone()
        return {"waiting": waiting}

    def work(self) -> NoReturn:
        consumer = str(Path(sys.executable).with_name("huey_consumer"))
        # -n: no periodic tasks; -q: no line of log per task. One thread is its default, and
        # on SQLite its fastest.
        os.execv(consumer, [consumer, "huey_adapter.huey", "-n", "-q"])  # noqa: S606


ADAPTER = Huey()
