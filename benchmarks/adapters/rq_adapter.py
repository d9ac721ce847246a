"""RQ with its SimpleWorker, which runs tasks in its own process; its default forks for each one."""

from __future__ import annotations

import redis
import tally
from adapter import URL, Blocking
from rq import Queue  # type: ignore[import-not-found]  # in an environment of its own

queue = Queue("default", connection=redis.Redis.from_url(URL))


def noop() -> int:
    tally.tick()
    return 1


def late(asked_ns: int) -> None:
    tally.since(asked_ns)


ADAPTER = Blocking(
    lambda: queue.enqueue(noop),
    lambda asked_ns: queue.enqueue(late, asked_ns),
    ["rq", "worker", "-u", URL, "-q", "default", "-w", "rq.worker.SimpleWorker"],
    many=lambda n: queue.enqueue_many([Queue.prepare_data(noop) for _ in range(n)]),
)
