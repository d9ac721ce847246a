"""Threads for handlers that are plain functions.

Not `concurrent.futures`: its threads are joined when the interpreter exits, so one handler that
never returns would keep a worker from ever ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")

_Job = Callable[[], None]


class Threads:
    """Up to `size` daemon threads, started when they are first needed."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._started = 0
        self._busy = 0
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._done: list[asyncio.Future[None]] = []
        self._lock = threading.Lock()

    async def run(self, fn: Callable[[], T]) -> T:
        """The result of `fn()`, called in a thread with a copy of the caller's context."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        context = copy_context()
        result: list[T] = []
        errors: list[BaseException] = []

        def job() -> None:
            try:
                result.append(context.run(fn))
            except BaseException as error:
                errors.append(error)
            self._answer(loop, woken)

        if self._busy == self._started < self.size:
            self._started += 1
            name = f"outlast-thread-{self._started}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._busy += 1  # until the job is done, which is not when nobody waits for it any more
        self._jobs.put(job)
        await woken
        if errors:
            raise errors.pop()
        return result[0]

    def close(self) -> None:
        """Idle threads end; one that is at work ends with it, or with the process."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # its arguments must not live until the next one comes

    def _answer(self, loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> None:
        with self._lock:
            self._done.append(woken)
            first = len(self._done) == 1
        if first:  # one wake-up of the loop for all that end meanwhile
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            done, self._done = self._done, []
        self._busy -= len(done)
        for woken in done:
            if not woken.done():
                woken.set_result(None)
