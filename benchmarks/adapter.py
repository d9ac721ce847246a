"""What the benchmark asks of a task system: the verbs that each file in `adapters/` answers.

An adapter runs in the environment of what it adapts, with `$BENCH_URL` to find its store,
`$BENCH_DIR` for files and `$BENCH_VARIANT` to say how it is set up. Standard library only.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NoReturn, Protocol

FOLDER = Path(os.environ.get("BENCH_DIR", "."))
URL = os.environ.get("BENCH_URL", "")
VARIANT = os.environ.get("BENCH_VARIANT", "")
BATCH = 1_000


class Adapter(Protocol):
    """One task system. Every enqueue returns only when its task is as durable as it gets."""

    def prepare(self) -> None:
        """Make what the store needs to have, once."""

    def enqueue(self, n: int, callers: int) -> float:
        """Enqueue `n` no-ops one at a time by so many callers at once; the seconds it took."""

    def bulk(self, n: int) -> float:
        """Enqueue `n` no-ops in the fastest way there is; the seconds it took."""

    def pace(self, n: int) -> None:
        """Enqueue `n` tasks that report their start latency, each after `gap_s()`."""

    def work(self) -> NoReturn:
        """Become one worker process."""


def gap_s() -> float:
    """Long enough for a worker to fall idle, and in step with nobody's poll."""
    return random.uniform(0.02, 0.05)  # noqa: S311  # no secret


def batches(n: int) -> list[int]:
    return [min(BATCH, n - begin) for begin in range(0, n, BATCH)]


def become(command: Sequence[str]) -> NoReturn:
    """Run a script of this environment (or `python`) in place of this process."""
    program = str(Path(sys.executable).with_name(command[0]))
    os.execv(program, [program, *command[1:]])  # noqa: S606


def nothing() -> None:
    """For those that need no preparation."""


class Blocking:
    """A system whose client blocks: callers are threads, and many are a loop or calls of `many`."""

    def __init__(
        self,
        noop: Callable[[], object],
        late: Callable[[int], object],
        worker: Sequence[str],
        *,
        prepare: Callable[[], None] = nothing,
        many: Callable[[int], object] | None = None,
    ) -> None:
        self.prepare = prepare
        self._noop, self._late, self._many, self._worker = noop, late, many, worker

    def enqueue(self, n: int, callers: int) -> float:
        self._noop()  # the client is made, and its connection
        begin = threading.Barrier(callers + 1)

        def caller() -> None:
            begin.wait()
            for _ in range(n // callers):
                self._noop()

        threads = [threading.Thread(target=caller) for _ in range(callers)]
        for thread in threads:
            thread.start()
        begin.wait()
        since = time.perf_counter()
        for thread in threads:
            thread.join()
        return time.perf_counter() - since

    def bulk(self, n: int) -> float:
        since = time.perf_counter()
        if self._many is None:
            for _ in range(n):
                self._noop()
        else:
            for size in batches(n):
                self._many(size)
        return time.perf_counter() - since

    def pace(self, n: int) -> None:
        for _ in range(n):
            time.sleep(gap_s())
            self._late(time.monotonic_ns())

    def work(self) -> NoReturn:
        become(self._worker)


class Coroutines:
    """A system whose client is asynchronous: callers are coroutines."""

    def __init__(
        self,
        client: Callable[[], AbstractAsyncContextManager[object]],
        noop: Callable[[], Awaitable[object]],
        late: Callable[[int], Awaitable[object]],
        worker: Sequence[str],
        *,
        prepare: Callable[[], None] = nothing,
        many: Callable[[int], Awaitable[object]] | None = None,
    ) -> None:
        self.prepare = prepare
        self._client, self._noop, self._late, self._many = client, noop, late, many
        self._worker = worker

    def enqueue(self, n: int, callers: int) -> float:
        async def caller() -> None:
            for _ in range(n // callers):
                await self._noop()

        async def run() -> float:
            async with self._client():
                since = time.perf_counter()
                await asyncio.gather(*(caller() for _ in range(callers)))
                return time.perf_counter() - since

        return asyncio.run(run())

    def bulk(self, n: int) -> float:
        async def run() -> float:
            async with self._client():
                since = time.perf_counter()
                if self._many is None:
                    for _ in range(n):
                        await self._noop()
                else:
                    for size in batches(n):
                        await self._many(size)
                return time.perf_counter() - since

        return asyncio.run(run())

    def pace(self, n: int) -> None:
        async def run() -> None:
            async with self._client():
                for _ in range(n):
                    await asyncio.sleep(gap_s())
                    await self._late(time.monotonic_ns())

        asyncio.run(run())

    def work(self) -> NoReturn:
        become(self._worker)
