"""What this process counts of the work it sees. Every app has a meter; `fleet.py` adds them up."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from outlast.core.model import NewTask, Receipt, Swept
from outlast.core.states import FINAL, State, Verdict
from outlast.core.totals import BOUNDS_MS, Spread, Totals, name_of, new_spread, observe

# Types are those that are registered; queues are whatever somebody writes into an option.
MAX_SERIES: Final = 500
OTHER: Final = "other"
FAILED: Final = ("failed", "timed_out")


class Tally:
    """The counts of one type in one queue."""

    __slots__ = ("ends", "enqueued", "run", "wait")

    def __init__(self) -> None:
        self.enqueued = 0
        self.ends: dict[tuple[Verdict, State], int] = {}
        """Attempts by their outcome, and the state in which they left the task."""
        self.wait: Spread = new_spread()
        self.run: Spread = new_spread()

    def ended(self, verdict: Verdict, state: State, wait_ms: int, run_ms: int | None) -> None:
        """An attempt is over and recorded; without `run_ms` it never began."""
        end = (verdict, state)
        self.ends[end] = self.ends.get(end, 0) + 1
        if run_ms is not None:
            # `observe` twice, in place: this is done for every attempt, in 1 µs with all of it.
            wait, run = self.wait, self.run
            if wait_ms > 0:
                wait[bisect_left(BOUNDS_MS, wait_ms)] += 1
                wait[-1] += wait_ms
            else:
                wait[0] += 1
            run[bisect_left(BOUNDS_MS, run_ms)] += 1
            run[-1] += run_ms

    def totals(self, type: str, queue: str) -> Totals:
        found = Totals()

        def count(metric: str, n: int, *label: str) -> None:
            name = name_of(metric, type, queue, *label)
            found.counts[name] = found.counts.get(name, 0) + n

        if self.enqueued:
            count("enqueued", self.enqueued)
        for (verdict, state), n in self.ends.items():
            count("attempts", n, verdict)
            if state in FINAL:
                count("ended", n, state)
            elif verdict in FAILED:
                count("retried", n)
        for metric, spread in (("wait", self.wait), ("run", self.run)):
            if any(spread):
                found.spreads[name_of(metric, type, queue)] = list(spread)
        return found


class Meter:
    """The counts of this process since it began."""

    def __init__(self) -> None:
        self.changed = False
        """Set by whatever is counted; unset by whoever has seen to it."""
        self._tallies: dict[tuple[str, str], Tally] = {}
        self._counted = Totals()

    def tally(self, type: str, queue: str) -> Tally:
        """To be added to now: whoever asks is about to count."""
        self.changed = True
        found = self._tallies.get((type, queue))
        if found is None:
            if len(self._tallies) >= MAX_SERIES:
                queue = OTHER
            found = self._tallies.setdefault((type, queue), Tally())
        return found

    def enqueued(self, tasks: Sequence[NewTask], receipts: Sequence[Receipt]) -> None:
        for task, receipt in zip(tasks, receipts, strict=True):
            if not receipt.existing:
                self.tally(task.type, task.queue).enqueued += 1

    def swept(self, swept: Swept) -> None:
        """Tasks of lost workers, and those that waited too long."""
        for metric in ("rescued", "died", "expired"):
            self.count(metric, getattr(swept, metric))

    def count(self, metric: str, n: int = 1) -> None:
        if n:
            counts = self._counted.counts
            counts[metric] = counts.get(metric, 0) + n
            self.changed = True

    def observe(self, metric: str, ms: int) -> None:
        observe(self._counted.spreads.setdefault(metric, new_spread()), max(ms, 0))
        self.changed = True

    def totals(self) -> Totals:
        total = Totals()
        total.add(self._counted)
        for (type, queue), tally in self._tallies.items():
            total.add(tally.totals(type, queue))
        return total
