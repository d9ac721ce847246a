"""What engines share: statements in files of their own, hints, which children are born, rows of
tasks, what an end says."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from outlast.core.model import KEPT_ATTEMPTS, Json, Outcome, Task
from outlast.core.states import Ms, State, Verdict, status_of

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.decode
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def statements(package: str, file: str) -> dict[str, str]:
    """The `-- name: verb` blocks of one script, by name, comments above the first one dropped."""
    parts = _NAME.split(files(package).joinpath(file).read_text())
    found = {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}
    if len(found) * 2 + 1 != len(parts):
        raise ValueError(f"{package}/{file} names a statement twice")
    return found


EVERYTHING: Final = "*"
"""Stands for more topics than fit into a hint."""
ANY_TASK: Final = "task:*"
"""Stands for more tasks than a hint should name; who waits for a queue sleeps on."""


def few(topics: Collection[str], most: int) -> Collection[str]:
    """At most so many topics that say the same, or more."""
    if len(topics) <= most:
        return topics
    others = {topic for topic in topics if not topic.startswith("task:")}
    return others | {ANY_TASK} if len(others) < most else [EVERYTHING]


class Watching:
    """One waiter for some topics, in its own event loop."""

    def __init__(self, watchers: set[Watching], topics: Collection[str]) -> None:
        self._watchers = watchers
        tasks = [ANY_TASK for topic in topics if topic.startswith("task:")]
        self._topics = frozenset([*topics, *tasks])
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    async def __aenter__(self) -> Watching:
        self._watchers.add(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watchers.discard(self)

    async def wait(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True

    def hear(self, topics: Collection[str]) -> None:
        """From any thread."""
        if EVERYTHING in topics or not self._topics.isdisjoint(topics):
            with suppress(RuntimeError):  # its loop is closed
                self._loop.call_soon_threadsafe(self._rung.set)


class Ringer:
    """Rings the waiters of this process at once, and those of the others by `_send`, which tells
    them what has come together since it was last under way."""

    def __init__(self) -> None:
        self.watchers: set[Watching] = set()
        self._topics: set[str] = set()
        self._sender: asyncio.Task[None] | None = None

    def ring(self, topics: Iterable[str]) -> None:
        """Something about these topics was committed."""
        heard = frozenset(topics)
        if heard:
            self._ring_here(heard)
            self._topics |= heard
            if self._sender is None or self._sender.done():
                self._sender = asyncio.create_task(self._send(), name="outlast-hint")

    def _ring_here(self, topics: Collection[str]) -> None:
        for watcher in tuple(self.watchers):
            watcher.hear(topics)

    async def _send(self) -> None:
        """Until there are no topics left."""
        raise NotImplementedError


# Children ----------------------------------------------------------------------------------------


def in_any_case(outcome: Outcome) -> list[int]:
    """The places of those children of an outcome that are born also where a cancel meets it: not of
    those that the task was to wait for, nor of who would wait for one of these."""
    barred, left = set(outcome.after), dict(enumerate(outcome.spawn))
    while out := [n for n, new in left.items() if not barred.isdisjoint((new.id, *new.after))]:
        barred.update(left.pop(n).id for n in out)
    return list(left)


def met_by_cancel(outcome: Outcome) -> Outcome:
    """What is left of one that a cancel meets. What tells of children that are not born is not
    remembered: the task, redriven, would look for them."""
    born = tuple(outcome.spawn[n] for n in in_any_case(outcome))
    return replace(outcome, spawn=born, steps=() if outcome.after else outcome.steps)


# Rows of tasks, on the engines that speak SQL ----------------------------------------------------

TASK_COLUMNS: Final = (
    "id", "type", "queue", "lane", "priority", "state", "parked", "payload", "result", "attempt",
    "number", "max_attempts", "losses", "max_losses", "timeout_ms", "overdue_after_ms",
    "overdue_at", "max_age_ms", "run_at", "created_at", "started_at", "updated_at", "completed_at",
    "worker", "lease_until", "reason", "fingerprint", "session_id", "user_id", "parent_id",
    "workflow_id", "unique_key", "needs", "awaits", "version", "meta",
)  # fmt: skip
"""What the statement `tasks` begins with, as it is; its place and what is stored in a form of the
engine's own follow."""


def task_of(row: Sequence[Any], now: Ms, **others: Any) -> Task:
    """A task from a row that begins with the columns above, and its other fields."""
    fields = dict(zip(TASK_COLUMNS, row, strict=False))
    status = status_of(
        fields["state"], fields["parked"], fields["lane"], fields["lease_until"], now
    )
    return Task(**fields, **others, status=status)


# What an end says, on the engines whose logic is Python ------------------------------------------


class Ending(Protocol):
    """What the history needs to know of a task whose attempt is over."""

    number: int
    worker: str | None
    lane: str
    started_at: Ms | None


def history(
    task: Ending, attempts: Json | None, verdict: Verdict, error: Json | None, now: Ms
) -> Json:
    """The attempts of a task with one more, the first and the last of them kept."""
    entry: dict[str, Any] = {
        "number": task.number,
        "worker": task.worker,
        "lane": task.lane,
        "started_at": task.started_at,
        "ended_at": now,
        "outcome": verdict,
    }
    text = _encode(with_error(entry, error))
    if not attempts:
        return b"[" + text + b"]"
    if task.number <= KEPT_ATTEMPTS:
        return attempts[:-1] + b"," + text + b"]"
    kept = [*_decode(attempts), entry]
    if len(kept) > KEPT_ATTEMPTS:
        del kept[KEPT_ATTEMPTS // 2]
    return _encode(kept)


def done(
    state: State, reason: str | None, verdict: Verdict | None, error: Json | None
) -> dict[str, Any]:
    """The data of a `done` event."""
    data: dict[str, Any] = {"status": state}
    if verdict is not None:
        data["outcome"] = verdict
    if reason is not None:
        data["reason"] = reason
    return with_error(data, error)


def with_error(data: dict[str, Any], error: Json | None) -> dict[str, Any]:
    """The error in short: the record has the rest."""
    if error is not None:
        told = _decode(error)
        data["error"] = {name: told.get(name) for name in ("code", "type", "message")}
    return data
