"""Dramatiq on Redis: one process of eight threads; by default no results are kept."""

from __future__ import annotations

import dramatiq  # type: ignore[import-not-found]  # in an environment of its own
import tally
from adapter import URL, Blocking
from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found]

dramatiq.set_broker(RedisBroker(url=URL))


@dramatiq.actor  # type: ignore[untyped-decorator]
def noop() -> None:
    tally.tick()


@dramatiq.actor  # type: ignore[untyped-decorator]
def late(asked_ns: int) -> None:
    tally.since(asked_ns)


ADAPTER = Blocking(
    noop.send, late.send, ["dramatiq", "dramatiq_adapter", "--processes", "1", "--threads", "8"]
)
