"""Counts attempts and logs their ends, once the engine has recorded them.

Between the end of an attempt and the turn that stores it, the end is *unsure*: it may be refused,
because the lease was lost. What is refused is counted as that and as nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from outlast import tasklog
from outlast.core.model import Fence, Lease, Outcome, Swept, TaskId
from outlast.core.states import FINAL, Ms
from outlast.meter import Meter


class Witness:
    """Sees the attempts of one worker."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._unsure: dict[TaskId, tuple[Lease, Ms, int | None]] = {}

    def ended(self, lease: Lease, now: Ms, run_s: float | None) -> None:
        """An attempt is over, and how it ended is on its way; without `run_s` it never began."""
        run_ms = None if run_s is None else int(run_s * 1_000)
        self._unsure[lease.id] = (lease, now, run_ms)

    def stored(self, outcomes: Sequence[Outcome], lost: Collection[tuple[TaskId, Fence]]) -> None:
        """A turn was answered; `lost` is what it refused."""
        if lost:
            self._meter.count("refused", len(lost))
            for task_id, fence in lost:
                self.forget(task_id, fence)
        meter, take = self._meter, self._unsure.pop
        for outcome in outcomes:
            if outcome.spawn:
                for child in outcome.spawn:
                    meter.tally(child.type, child.queue).enqueued += 1
            if outcome.state != "running" and (unsure := take(outcome.id, None)) is not None:
                lease, now, run_ms = unsure
                record(meter, lease, outcome, now - (run_ms or 0), run_ms)

    def forget(self, task_id: TaskId, fence: Fence) -> None:
        unsure = self._unsure.get(task_id)
        if unsure is not None and unsure[0].fence == fence:
            del self._unsure[task_id]


def record(meter: Meter, lease: Lease, outcome: Outcome, began_at: Ms, run_ms: int | None) -> None:
    """Count and log the end of an attempt that is recorded."""
    tally = meter.tally(lease.type, lease.queue)
    tally.ended(outcome.verdict, outcome.state, began_at - lease.run_at, run_ms)
    if lease.session_id is not None and outcome.state in FINAL:
        meter.count("notices_due")
    tasklog.ended(lease, outcome, run_ms)


def swept(meter: Meter, found: Swept) -> None:
    """Count and log what happened to tasks without an attempt."""
    meter.swept(found)
    tasklog.swept(found)
