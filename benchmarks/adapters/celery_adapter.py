"""Celery on Redis or MongoDB: a pool of threads is its fastest; by default no results are kept."""

from __future__ import annotations

import os

import tally
from adapter import URL, Blocking
from celery import Celery  # type: ignore[import-not-found]  # in an environment of its own

app = Celery("celery_adapter", broker=URL.partition("?")[0])
app.conf.update(
    worker_prefetch_multiplier=32, broker_connection_retry_on_startup=True, task_ignore_result=True
)


@app.task  # type: ignore[untyped-decorator]
def noop() -> int:
    tally.tick()
    return 1


@app.task  # type: ignore[untyped-decorator]
def late(asked_ns: int) -> None:
    tally.since(asked_ns)


ADAPTER = Blocking(
    noop.delay,
    late.delay,
    [
        "celery", "-A", "celery_adapter", "worker", "-l", "ERROR", "-n", f"w{os.getpid()}@%h",
        "--without-gossip", "--without-mingle", "-P", "threads", "-c", "8",
    ],
)  # fmt: skip
