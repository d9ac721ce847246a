"""Counts task starts outside of what is measured: a small mapped file per worker process.

A task's body calls `tick()` (no-op) or `since(asked_ns)` (start latency). That costs about 0.2 µs,
the same for everybody, and asks neither the database nor the program under test for anything.
Standard library only: it is imported inside each peer's own environment.
"""

from __future__ import annotations

import mmap
import os
import threading
from itertools import count
from pathlib import Path
from time import monotonic_ns

# One slot of 8 bytes per task; the file is sparse, so unused slots cost nothing.
SLOTS = 1 << 21

_lock = threading.Lock()
_next = count()
_slots: memoryview | None = None


def tick() -> None:
    """A task ran now."""
    # next() of a count is one step under the GIL: threads need no lock here.
    (_slots or _open())[next(_next)] = monotonic_ns()


def since(asked_ns: int) -> None:
    """A task began, so long after it was asked for (CLOCK_MONOTONIC is one for all processes)."""
    (_slots or _open())[next(_next)] = monotonic_ns() - asked_ns


def _open() -> memoryview:
    global _slots
    with _lock:
        if _slots is None:
            # Made at the first task, not at import: supervisors import the tasks too.
            path = Path(os.environ["BENCH_DIR"]) / f"tally-{os.getpid()}"
            with path.open("w+b") as file:
                file.truncate(8 * SLOTS)
                _slots = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
    return _slots


class Tally:
    """What the worker processes of one folder have counted so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._maps: dict[Path, memoryview] = {}
        self._filled: dict[Path, int] = {}

    def count(self) -> int:
        for path in self._folder.glob("tally-*"):
            if path not in self._maps and path.stat().st_size == 8 * SLOTS:
                with path.open("rb") as file:
                    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self._maps[path], self._filled[path] = memoryview(mapped).cast("Q"), 0
        for path, view in self._maps.items():
            filled = self._filled[path]
            while filled < SLOTS and view[filled]:
                filled += 1
            self._filled[path] = filled
        return sum(self._filled.values())

    def by_process(self) -> list[list[int]]:
        """What each process counted, in its order."""
        self.count()
        return [view[: self._filled[path]].tolist() for path, view in self._maps.items()]

    def values(self) -> list[int]:
        """All that was counted, sorted: moments of `tick`, spans of `since`; nanoseconds."""
        return sorted(value for row in self.by_process() for value in row)
