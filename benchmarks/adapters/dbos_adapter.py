"""DBOS on SQLite or PostgreSQL: a workflow per task, its row kept with state, inputs and output.

By default a queue is polled every second. Variant `fast`: every 50 ms.
"""

from __future__ import annotations

import os
import threading
from functools import cache

import tally
from adapter import FOLDER, URL, VARIANT, Blocking
from dbos import DBOS, DBOSClient, DBOSConfig  # type: ignore[import-not-found]  # its own environment

STORE = f"sqlite:///{FOLDER / 'dbos.sqlite'}" if URL.startswith("sqlite") else URL
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
            system_database_url=STORE,
            application_version="1",
            executor_id=f"w{os.getpid()}",
            log_level="ERROR",
            run_admin_server=False,
        )
    )
    DBOS.launch()
    DBOS.register_queue("q", polling_interval_sec=POLL_S)


def prepare() -> None:
    launch()  # the schema, and the queue's row
    DBOS.destroy()


@cache
def client() -> DBOSClient:
    return DBOSClient(system_database_url=STORE)


def _options(workflow: str) -> dict[str, str]:
    return {"queue_name": "q", "workflow_name": workflow, "app_version": "1"}


ADAPTER = Blocking(
    lambda: client().enqueue(_options("noop")),
    lambda asked_ns: client().enqueue(_options("late"), asked_ns),
    ["python", "-m", "dbos_adapter"],
    prepare=prepare,
)

if __name__ == "__main__":
    launch()
    threading.Event().wait()
