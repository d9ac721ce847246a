"""DBOS on SQLite: a workflow per task, its row kept with state, inputs and output.

By default a queue is polled every second. Variant `fast`: every 50 ms.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from typing import NoReturn

import tally
from adapter import FOLDER, VARIANT, by_threads, gap_s
from dbos import DBOS, DBOSClient, DBOSConfig  # type: ignore[import-not-found]  # its own environment

FILE = FOLDER / "dbos.sqlite"
URL = f"sqlite:///{FILE}"
POLL_S = 0.05 if VARIANT == "fast" else 1.0


@DBOS.workflow(name="noop")  # type: ignore[untyped-decorator]
async def noop() -> int:
    tally.tick()
    return 1


@DBOS.workflow(name="late")  # type: ignore[untyped-decorator]
async def late(asked_ns: int) -> None:
    tally.since(asked_ns)


def launch() -> None:
    DBOS(
        config=DBOSConfig(
            name="bench",
            system_database_url=URL,
            application_version="1",
            log_level="ERROR",
            run_admin_server=False,
        )
    )
    DBOS.launch()
    DBOS.register_queue("q", polling_interval_sec=POLL_S)


def _options(workflow: str) -> dict[str, str]:
    return {"queue_name": "q", "workflow_name": workflow, "app_version": "1"}


class Dbos:
    def __init__(self) -> None:
        self._made: DBOSClient | None = None

    @property
    def client(self) -> DBOSClient:
        if self._made is None:
            if not FILE.exists():
                launch()  # the schema, and the queue's row
                DBOS.destroy()
            self._made = DBOSClient(system_database_url=URL)
        return self._made

    def enqueue(self, n: int, callers: int) -> float:
        client = self.client  # made before the clock runs
        return by_threads(lambda: client.enqueue(_options("noop")), n, callers)

    def bulk(self, n: int) -> float:
        return self.enqueue(n, 1)  # there is no call for many; one thread does not contend

    def pace(self, n: int) -> None:
        for _ in range(n):
            time.sleep(gap_s())
            self.client.enqueue(_options("late"), time.monotonic_ns())

    def check(self) -> dict[str, object]:
        with sqlite3.connect(FILE) as conn:
            by = conn.execute("select status, count(*) from workflow_status group by 1").fetchall()
        return dict(by)

    def work(self) -> NoReturn:
        launch()
        while True:
            threading.Event().wait()


ADAPTER = Dbos()
