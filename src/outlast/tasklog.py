"""The life of a task in the log of a program: logger `outlast.tasks`, one line per step.

A line is readable as it is, and carries its parts as `extra`: `event`, `task_id`, `type`, `queue`,
`attempt`, `worker`, `session_id`, `duration_ms`, `error_code`. Never a payload, a result or the
message of an error: those may be secret. `JsonLines` prints all of it as one JSON object a line.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from outlast.core.model import Lease, NewTask, Outcome, Receipt, Swept

logger: Final = logging.getLogger("outlast.tasks")

PLAIN: Final = "%(asctime)s %(process)d %(levelname)s %(message)s"
FORMATS: Final = ("text", "json")
_HERE: Final = f"{socket.gethostname()}.{os.getpid()}"
"""What the ids of this process's workers begin with."""
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


def created(tasks: Sequence[NewTask], receipts: Sequence[Receipt]) -> None:
    if not logger.isEnabledFor(logging.INFO):
        return
    for task, receipt in zip(tasks, receipts, strict=True):
        if not receipt.existing:
            logger.info(
                "Task created: task_id=%s, type=%s, session=%s",
                task.id,
                task.type,
                task.session_id,
                extra=_extra("created", task),
            )


def processing(lease: Lease) -> None:
    if logger.isEnabledFor(logging.INFO):
        logger.info(
            "Task processing: task_id=%s, type=%s, attempt=%d",
            lease.id,
            lease.type,
            lease.number,
            extra=_of_attempt("processing", lease),
        )


def ended(lease: Lease, outcome: Outcome, run_ms: int | None) -> None:
    """The end of an attempt, once it is recorded."""
    if outcome.state == "completed" and not logger.isEnabledFor(logging.INFO):
        return
    event, level, words = _end(outcome)
    if not logger.isEnabledFor(level):
        return
    extra = _of_attempt(event, lease)
    extra["duration_ms"] = run_ms
    told: list[object] = [lease.id, run_ms]
    if event in ("failed", "retrying"):
        extra["error_code"] = code = _code(outcome)
        told.append(code)
    logger.log(level, words, *told, extra=extra)


def swept(swept: Swept) -> None:
    """Tasks that no attempt tells of; a sweep knows only how many."""
    if swept.rescued or swept.died:
        logger.warning(
            "Tasks rescued: %d run again, %d are dead, %d workers were lost",
            swept.rescued,
            swept.died,
            swept.workers,
            extra={"event": "rescued", "rescued": swept.rescued, "died": swept.died},
        )
    if swept.expired:
        extra = {"event": "expired", "expired": swept.expired}
        logger.warning("Tasks expired: %d waited too long", swept.expired, extra=extra)


def _end(outcome: Outcome) -> tuple[str, int, str]:
    """The event, its level, and its line."""
    if outcome.state == "completed":
        return "completed", logging.INFO, "Task completed: task_id=%s, duration=%s ms"
    if outcome.state == "cancelled":
        return "cancelled", logging.INFO, "Task cancelled: task_id=%s, duration=%s ms"
    if outcome.verdict == "timed_out":
        return "timeout", logging.WARNING, "Task timeout: task_id=%s, elapsed=%s ms"
    if outcome.state == "dead":
        return "failed", logging.ERROR, "Task failed: task_id=%s, duration=%s ms, error=%s"
    if outcome.verdict == "failed":
        return "retrying", logging.WARNING, "Task retrying: task_id=%s, duration=%s ms, error=%s"
    return outcome.verdict, logging.INFO, f"Task {outcome.verdict}: task_id=%s, duration=%s ms"


def _code(outcome: Outcome) -> object:
    error = msgspec.json.decode(outcome.error or b"{}")
    return error.get("code") or outcome.reason


def _extra(event: str, task: NewTask | Lease) -> dict[str, object]:
    return {
        "event": event,
        "task_id": task.id,
        "type": task.type,
        "queue": task.queue,
        "session_id": task.session_id,
    }


def _of_attempt(event: str, lease: Lease) -> dict[str, object]:
    return {**_extra(event, lease), "attempt": lease.number, "worker": _HERE}


class JsonLines(logging.Formatter):
    """One JSON object a line: the standard fields, and whatever came as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
            **{name: value for name, value in vars(record).items() if name not in _STANDARD},
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return _encode(told).decode()


def set_up(level: str, style: str, *, tasks: bool) -> None:
    """The log of a program of Outlast's own: to standard error, as text or as JSON lines.

    Lines about tasks that go well cost more than the work of short ones (10 µs each): they come
    when they are asked for, or with JSON, which is for machines that count them.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if style == "json" else logging.Formatter(PLAIN))
    logging.basicConfig(level=level, handlers=[handler])
    if not tasks and style != "json":
        logger.setLevel(logging.WARNING)
