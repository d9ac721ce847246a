"""What agents are told about tasks, in the words of the async task pattern: its states, its
acknowledgement, and what it says of a task that takes longer than expected."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from outlast.agents.desk import Place, Seen
from outlast.core.errors import OutlastError
from outlast.core.states import FINAL, STATUSES, Status

Word = Literal["pending", "processing", "completed", "failed", "timeout", "cancelled"]
StatusFilter = Literal["all", "pending", "processing", "completed", "failed", "cancelled"]
FILTERS: Final[tuple[StatusFilter, ...]] = get_args(StatusFilter)

Told = dict[str, Any]

WITH_SERVICE: Final = "service:"
"""Tasks that were handed to a service elsewhere are parked on a signal of this name."""

_MOST: Final = 200


def word_of(seen: Seen) -> Word:
    """The pattern's word for what people see as `status`."""
    if seen.status == "dead":
        return "timeout" if seen.reason == "timeout" else "failed"
    if seen.status in ("running", "stalled") or is_with_service(seen):
        return "processing"
    if seen.status == "completed":
        return "completed"
    return "cancelled" if seen.status == "cancelled" else "pending"


def is_with_service(seen: Seen) -> bool:
    return (seen.parked or "").startswith(f"signal:{WITH_SERVICE}")


def statuses_of(wanted: StatusFilter) -> tuple[Status, ...]:
    """The statuses in which tasks of this word may be; `word_of` tells them apart."""
    if wanted == "all":
        return ()
    if wanted == "pending":
        return tuple(s for s in STATUSES if s not in (*FINAL, "running", "stalled"))
    if wanted == "processing":
        return ("running", "stalled", "blocked")
    return {"completed": ("completed",), "failed": ("dead",), "cancelled": ("cancelled",)}[wanted]  # type: ignore[return-value]  # each is a status


def acknowledgement(seen: Seen) -> Told:
    """At once, when a task was handed over."""
    return {
        "task_id": seen.id,
        "task_type": seen.type,
        "status": word_of(seen),
        "message": f"I've started {seen.type} in the background (task {seen.id}). I'll notify you"
        f" when it completes, or you can check status with: 'Show task status for {seen.id}'",
    }


def refusal(problem: OutlastError) -> Told:
    """Nothing was changed, and why."""
    return {"status": "rejected", "error": {"code": problem.code, "message": str(problem)}}


def result_of(seen: Seen, place: Place | None) -> Told:
    """All that there is to say about one task."""
    told: Told = {"task_id": seen.id, "task_type": seen.type, "status": word_of(seen)}
    if seen.status == "completed":
        told["result"] = seen.result
    elif seen.status == "dead":
        told["error"] = _error(seen)
        if told["status"] == "timeout":
            told["message"] = f"Task exceeded timeout of {_seconds(seen.timeout)}"
    elif seen.status == "cancelled":
        told["message"] = f"It was cancelled: {seen.reason or 'no reason recorded'}."
    elif told["status"] == "processing":
        told["progress"] = _progress(seen.progress)
        if seen.reason is not None:  # a cancel has been asked for, and has not reached the work
            told["message"] = f"It is being cancelled: {seen.reason}."
        else:
            told["message"] = late(seen) if seen.late else "It is being worked on."
    elif place is not None:
        told["message"] = late(seen) if seen.late else place.text
        if place.ahead is not None:
            told["queue_position"] = place.ahead + 1
        if place.estimate_s is not None:
            told["starts_in_seconds"] = round(place.estimate_s, 1)
    return told


def summary(seen: Seen) -> Told:
    """One line about a task, for a list."""
    told: Told = {
        "task_id": seen.id,
        "task_type": seen.type,
        "status": word_of(seen),
        "created_at": seen.created_at,
        "completed_at": seen.completed_at,
    }
    if seen.status == "completed":
        told["summary"] = _short(seen.result)
    elif seen.status == "dead":
        told["summary"] = str(_error(seen)["message"])[:_MOST]
    elif seen.progress is not None:
        told["summary"] = f"{seen.progress['percent']:g} % {seen.progress['message']}".strip()
    else:
        told["summary"] = seen.status
    return told


def late(seen: Seen) -> str:
    """The pattern's message about a task that takes longer; the work goes on."""
    return (
        f"Your {seen.type} is taking longer than expected.\nThe task is still running. I'll notify"
        " you when it completes,\nor you can check status with: 'Show task status for"
        f" {seen.id}'"
    )


def _error(seen: Seen) -> Told:
    error: Mapping[str, Any] = seen.error or {}
    return {
        "code": error.get("code", seen.reason or "dead"),
        "message": error.get("message", f"The task died: {seen.reason}."),
        "details": error.get("details") or {},
    }


def _progress(progress: Mapping[str, Any] | None) -> Told | None:
    """With the time that is left, if it goes on as it went so far."""
    if progress is None:
        return None
    percent, elapsed_ms = progress["percent"], progress["elapsed_ms"]
    eta_s = elapsed_ms / 1_000 * (100 - percent) / percent if percent else None
    return {
        "percent": percent,
        "message": progress["message"],
        "eta_seconds": None if eta_s is None else round(eta_s, 1),
    }


def _short(value: object) -> str:
    if isinstance(value, Mapping) and isinstance(value.get("summary"), str):
        value = value["summary"]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"


def _seconds(timeout: float | None) -> str:
    return "its attempts" if timeout is None else f"{timeout:g} seconds"
