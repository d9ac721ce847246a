"""The five states, the statuses people see, and the words the five source designs used for them.

A state is stored; a status is derived from the record and engine time. Attempts fail; tasks die:
`failed` is the outcome of an attempt and never a state of a task.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

Ms = int
"""Milliseconds of engine time, since the Unix epoch when absolute."""
FIRST: Final[Ms] = 0
LAST: Final[Ms] = 253_402_300_799_999
"""The first and the last moment that anybody may name: the end of 9999 in UTC, the last that every
calendar can write. What engines make of it by adding spans is a century later at most."""

State = Literal["pending", "running", "completed", "cancelled", "dead"]
Lane = Literal["primary", "retry"]
Status = Literal[
    "ready",
    "scheduled",
    "retrying",
    "throttled",
    "blocked",
    "running",
    "stalled",
    "completed",
    "cancelled",
    "dead",
]
Verdict = Literal["succeeded", "failed", "timed_out", "stalled", "cancelled", "released", "waiting"]
"""The outcome of one attempt. `released` and `waiting` cost no attempt; `stalled` costs a loss."""

STATES: Final[tuple[State, ...]] = get_args(State)
STATUSES: Final[tuple[Status, ...]] = get_args(Status)
FINAL: Final[frozenset[str]] = frozenset({"completed", "cancelled", "dead"})

LEGAL: Final[dict[State, frozenset[State]]] = {
    "pending": frozenset({"running", "completed", "cancelled", "dead"}),
    "running": frozenset({"pending", "completed", "cancelled", "dead"}),
    "completed": frozenset(),
    "cancelled": frozenset({"pending"}),
    "dead": frozenset({"pending", "completed"}),
}
"""Where a task may go. Final states are left by an explicit redrive (or a resolve by hand) only."""


def status_of(state: str, parked: str | None, lane: str, lease_until: Ms | None, now: Ms) -> Status:
    """What people see: a pure function of the stored columns and engine time."""
    if state == "pending":
        if parked is None:
            return "ready"
        if parked == "time":
            return "retrying" if lane == "retry" else "scheduled"
        return "throttled" if parked.startswith("limit:") else "blocked"
    if state == "running":
        return "stalled" if lease_until is not None and lease_until < now else "running"
    return state  # type: ignore[return-value]  # the three final states are statuses too


VOCABULARY: Final[dict[str, tuple[str, str, str, str, str]]] = {
    "ready": ("PENDING", "PENDING", "queued", "pending", "pending"),
    "scheduled": ("PENDING", "PENDING", "queued", "pending", "pending"),
    "throttled": ("PENDING", "PENDING", "queued", "pending", "pending"),
    "blocked": ("PENDING", "PENDING", "queued", "pending", "pending"),
    "retrying": ("FAILED, then PENDING", "PENDING", "queued", "pending", "pending with backoff"),
    "running": ("ACTIVE", "PROCESSING", "processing", "running", "leased, running"),
    "stalled": ("ACTIVE (orphaned)", "PROCESSING", "processing, stale", "stalled", "lease expired"),
    "completed": ("COMPLETED", "COMPLETED", "completed", "completed", "completed"),
    "dead": ("DLQ", "FAILED or TIMEOUT", "failed", "failed", "dead"),
    "cancelled": ("", "", "", "cancelled", ""),
}
"""Status -> the word of AsyncTaskFlow, the async task pattern, the task queue architecture,
the ADE orchestration layer and AutoMechanica."""
