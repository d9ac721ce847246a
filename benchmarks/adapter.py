"""What the benchmark asks of a task system: the verbs that each file in `adapters/` answers.

An adapter runs in the environment of what it adapts, with `$BENCH_DIR` to put its files in and
`$BENCH_VARIANT` to say how it is set up. Standard library only, as `tally`.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, Protocol

FOLDER = Path(os.environ.get("BENCH_DIR", "."))
VARIANT = os.environ.get("BENCH_VARIANT", "")


class Adapter(Protocol):
    """One task system. Every enqueue returns only when its task is as durable as it gets."""

    def enqueue(self, n: int, callers: int) -> float:
        """Enqueue `n` no-ops one at a time by so many callers at once; the seconds it took."""

    def bulk(self, n: int) -> float:
        """Enqueue `n` no-ops in the fastest way there is; the seconds it took."""

    def pace(self, n: int) -> None:
        """Enqueue `n` tasks that report their start latency, each after `gap_s()`."""

    def check(self) -> dict[str, object]:
        """What the store says after the run: how many are over, and how they are kept."""

    def work(self) -> NoReturn:
        """Become the worker: its own command, with its own defaults."""


def gap_s() -> float:
    """Long enough for a worker to fall idle, and in step with nobody's poll."""
    return random.uniform(0.02, 0.05)  # noqa: S311  # no secret


def by_threads(enqueue: Callable[[], object], n: int, callers: int) -> float:
    """For synchronous clients: so many threads, each enqueuing its share; the seconds it took."""
    begin = threading.Barrier(callers + 1)

    def caller() -> None:
        begin.wait()
        for _ in range(n // callers):
            enqueue()

    threads = [threading.Thread(target=caller) for _ in range(callers)]
    for thread in threads:
        thread.start()
    begin.wait()
    since = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - since
