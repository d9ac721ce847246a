"""The bridge: hands tasks to services over Redis Streams, and takes their answers.

It is a worker. Its handler publishes a task once, and then the task waits, parked on the signal
that brings the answer: no lease is held meanwhile, so that a bridge that dies costs nothing, and
what a service works on is not given to another. Each time that a task is handed over it gets a new
fence; an answer counts with the fence of the last time only.
"""

from __future__ import annotations

import asyncio
import copy
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import count
from typing import Any, Final, TypedDict

from redis.exceptions import RedisError

from outlast.agents.words import WITH_SERVICE
from outlast.app import Outlast
from outlast.context import Again, Context
from outlast.core.codec import Signature
from outlast.core.errors import BadInput, OutlastError, Permanent
from outlast.core.failures import KINDS
from outlast.core.model import PRIORITIES
from outlast.handler import Handler
from outlast.steps import SignalTimeout
from outlast.stream import fetch
from outlast.systems.streams.answers import IDLE_MS, OURS, Answers
from outlast.systems.streams.news import News
from outlast.systems.streams.wire import CREATE, TIMEOUT, Streams, event
from outlast.worker.worker import Worker

TIMEOUT_S: Final = 300.0
"""How long a service may take for a task that sets no timeout."""
AGAIN: Final = "2s"
"""After which a task is handed over again that could not be, because Redis did not answer."""
_PERMANENT: Final = frozenset({
    "invalid_parameters", "insufficient_permissions", "resource_not_found", "invalid_input",
    *(code for code, kind in KINDS.items() if kind == "permanent"),
})  # fmt: skip
"""Codes of errors that another attempt does not mend."""


class ServiceTimeout(OutlastError):
    """A service has not answered in time."""

    code = "timed_out"


class ServiceFailed(OutlastError):
    """A service has answered that a task failed; another attempt may help."""

    def __init__(self, message: str, code: str, details: Mapping[str, object] | None) -> None:
        super().__init__(message)
        self.code = code  # type: ignore[misc]  # the service's, not the class's
        self.details = details


class ServiceRefused(Permanent):
    """A service has answered that no attempt will help."""

    def __init__(self, message: str, code: str, details: Mapping[str, object] | None) -> None:
        super().__init__(message, details=details)
        self.code = code  # type: ignore[misc]  # the service's, not the class's


class Handed(TypedDict):
    """What is remembered of handing a task over."""

    fence: str
    timeout_s: float


class Bridge:
    """Serves the external types of an app that fit `types` (patterns; all, by default).

    `await Bridge(app, "redis://…").run()` runs until `stop()`. `consumer` is its name in the
    agent's group, unique among bridges.
    """

    def __init__(
        self,
        app: Outlast,
        url: str,
        *,
        types: Sequence[str] = (),
        consumer: str | None = None,
        idle_ms: int = IDLE_MS,
    ) -> None:
        chosen = {
            name: handler
            for name, handler in app.externals.items()
            if not types or any(fnmatchcase(name, pattern) for pattern in types)
        }
        if not chosen:
            known = ", ".join(app.externals) or "none"
            raise BadInput(
                "There is no type for the bridge to serve: declare what services run, as in"
                f" app.external('report.generate', queue='services'). External types: {known}."
            )
        consumer = consumer or f"agent-{socket.gethostname()}-{os.getpid()}"
        # A second app on the same engine: in it these types have a handler, this one.
        self._app = app.bare()
        self._app.limits, self._app.queues, self._app.lanes = app.limits, app.queues, app.lanes
        self._app.schedules, self._app.externals = app.schedules, dict(app.externals)
        self._streams = Streams(url)
        for name, handler in chosen.items():
            del self._app.externals[name]
            self._app.handlers[name] = self._served(handler)
        self._consumer = consumer
        self._answers = Answers(self._app, self._streams, consumer, idle_ms)
        self._news = News(self._app, self._streams, frozenset(chosen))
        queues = {handler.queue: None for handler in chosen.values()}
        self._worker = Worker(self._app, queues=queues)

    @property
    def types(self) -> list[str]:
        """What it serves."""
        return sorted(self._app.handlers)

    async def run(self) -> None:
        async with self._app:
            loops = [asyncio.create_task(loop.run()) for loop in (self._answers, self._news)]
            try:
                await self._worker.run()
            finally:
                for loop in loops:
                    loop.cancel()
                await asyncio.gather(*loops, return_exceptions=True)
                with suppress(RedisError, OSError):  # else others claim from it
                    await self._streams.leave(self._consumer)
                await self._streams.close()

    async def wait_ready(self) -> None:
        """Until it takes tasks and answers."""
        await self._worker.ready.wait()
        await self._answers.ready.wait()
        await self._news.ready.wait()

    def stop(self) -> None:
        self._worker.stop()

    # the handler ---------------------------------------------------------------------------------

    def _served(self, handler: Handler[..., Any]) -> Handler[..., Any]:
        """The type, as it was declared, but run here."""

        async def run(ctx: Context, /, **payload: object) -> object:
            try:
                return await self._run(ctx, payload)
            except (RedisError, OSError):
                return Again(after=AGAIN)

        run.__name__ = handler.type
        made = copy.copy(handler)
        made.app, made.fn, made.mode = self._app, run, "async"
        made.signature = Signature.of(run)
        return made

    async def _run(self, ctx: Context, payload: dict[str, object]) -> object:
        """Earlier times that it was handed over are gone through again: each is remembered."""
        for n in count(1):
            handed = await ctx.step(f"hand over {n}", self._hand_over, ctx, payload)
            try:
                signal = f"{WITH_SERVICE}{handed['fence']}"
                told = await ctx.wait_for(signal, timeout=handed["timeout_s"])
                error = _error_of(told)
                if error is None:
                    return told["result"]
            except SignalTimeout:
                await self._tell_timeout(ctx, handed)
                error = ServiceTimeout(f"The service did not answer in {handed['timeout_s']:g} s.")
            if await self._is_news(ctx, f"failed {n}"):
                raise error
        raise AssertionError("count() has no end")

    async def _hand_over(self, ctx: Context, payload: dict[str, object]) -> Handed:
        """Publish the task for whoever serves its type."""
        engine = self._app.engine
        task, now = await fetch(engine, ctx.task_id), await engine.now()
        timeout_s = TIMEOUT_S if task.timeout_ms is None else task.timeout_ms / 1_000
        fence = secrets.token_urlsafe(16)
        data = {
            "task_id": task.id,
            "task_type": task.type,
            "params": payload,
            "session_id": task.session_id,
            "timeout": timeout_s,
            "priority": _priority(task.priority),
            "created_by": "agent",
            "attempt": ctx.attempt,
            "fence": fence,
        }
        await self._streams.publish(CREATE, event("task.create", now, data, of=fence))
        return {"fence": fence, "timeout_s": timeout_s}

    async def _tell_timeout(self, ctx: Context, handed: Handed) -> None:
        seconds = handed["timeout_s"]
        data = {
            "task_id": ctx.task_id,
            "status": "timeout",
            "message": f"Task exceeded timeout of {seconds:g} seconds",
            "elapsed_ms": round(seconds * 1_000),
            "fence": handed["fence"],
            "detected_by": OURS,
        }
        now = await self._app.engine.now()
        await self._streams.publish(TIMEOUT, event("task.timeout", now, data, of=handed["fence"]))

    async def _is_news(self, ctx: Context, name: str) -> bool:
        """Is this attempt the first to come here?"""
        first = False

        async def note() -> bool:
            nonlocal first
            first = True
            return True

        await ctx.step(name, note)
        return first


def _error_of(told: Mapping[str, Any]) -> Exception | None:
    """What a service says went wrong, if it does."""
    if told["kind"] == "completed":
        return None
    if told["kind"] == "timeout":
        return ServiceTimeout(told["message"] or "The service says that the task timed out.")
    error: Mapping[str, Any] = told["error"]
    code = str(error.get("code") or "failed").lower()[:64]
    message = str(error.get("message") or "The service says that the task failed.")
    details = error.get("details") if isinstance(error.get("details"), dict) else None
    verdict = error.get("permanent")
    permanent = verdict if isinstance(verdict, bool) else code in _PERMANENT
    return (ServiceRefused if permanent else ServiceFailed)(message, code, details)


def _priority(priority: int) -> str:
    """The last named priority that is not above it."""
    return next(name for name, n in reversed(PRIORITIES.items()) if n <= priority)
