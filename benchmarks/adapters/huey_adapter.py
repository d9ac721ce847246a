"""Huey on SQLite or Redis: a task is deleted when it is taken; its result is kept until it is read.

On SQLite it leaves `synchronous` as it is, which is FULL: every commit is an fsync.
Variants: `void`, the task returns nothing, so no trace of it is kept; `nosync`, `fsync=False`.
"""

from __future__ import annotations

import tally
from adapter import FOLDER, URL, VARIANT, Blocking
from huey import RedisHuey, SqliteHuey  # type: ignore[import-not-found]  # its own environment

SQLITE = URL.startswith("sqlite")
unsafe = {"fsync": False} if VARIANT == "nosync" else {}
huey = (
    SqliteHuey("bench", filename=str(FOLDER / "huey.db"), **unsafe)
    if SQLITE
    else RedisHuey("bench", url=URL)
)


@huey.task()  # type: ignore[untyped-decorator]
def noop() -> int | None:
    tally.tick()
    return None if VARIANT == "void" else 1


@huey.task()  # type: ignore[untyped-decorator]
def late(asked_ns: int) -> None:
    tally.since(asked_ns)


# -n: no periodic tasks; -q: no line of log per task. One thread is its fastest on SQLite.
ADAPTER = Blocking(
    noop, late, ["huey_consumer", "huey_adapter.huey", "-n", "-q", "-w", "1" if SQLITE else "8"]
)
