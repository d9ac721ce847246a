"""Deadlines of attempts, by the thousand: one timer of the event loop for all of them; jitter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from random import random
from time import monotonic
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# How late a deadline may be noticed. Attempts that share a tick share a bucket.
TICK_S: Final = 0.02


class Wheel(Generic[T]):
    """Calls `rang(thing)` once its time has come, unless it was taken off before."""

    def __init__(self, rang: Callable[[T], None]) -> None:
        self._rang = rang
        self._loop = asyncio.get_running_loop()
        self._buckets: dict[int, dict[T, None]] = {}
        self._ticks: list[int] = []  # a heap of the buckets' keys
        self._timer: asyncio.TimerHandle | None = None

    def add(self, thing: T, delay_s: float) -> int:
        """The tick it was put on, which `remove` wants to know."""
        tick = int((monotonic() + delay_s) / TICK_S) + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._arm()
        bucket[thing] = None
        return tick

    def remove(self, thing: T, tick: int) -> None:
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket.pop(thing, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._buckets.clear()
        self._ticks.clear()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._ticks[0] * TICK_S - monotonic(), self._turn)

    def _turn(self) -> None:
        self._timer = None
        now = int(monotonic() / TICK_S)
        while self._ticks and self._ticks[0] <= now:
            for thing in self._buckets.pop(heappop(self._ticks)):
                self._rang(thing)
        if self._ticks and self._timer is None:
            self._arm()


def jittered(seconds: float) -> float:
    """Up to a fifth more or less, so that workers that started together drift apart."""
    return seconds * (0.8 + 0.4 * random())  # noqa: S311  # not a secret
