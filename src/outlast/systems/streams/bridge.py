"""The bridge: hands tasks to services over Redis Streams, and takes their answers.

It is a worker. Its handler publishes a task once, and then the task waits, parked on the signal
that brings the answer: no lease is held meanwhile, so that a bridge that dies costs nothing, and
what a service works on is not given to another. Each time that a task is handed over it gets a new
fence; an answer counts with the fence of the last time only, or without one while no other time
could be meant.
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
from typing import Any, Final

from redis.exceptions import RedisError

from outlast.agents.words import WITH_SERVICE
from outlast.app import Outlast
from outlast.context import Again, Context
from outlast.core.codec import Signature, loads
from outlast.core.errors import BadInput, Conflict, OutlastError, Permanent
from outlast.core.failures import KINDS
from outlast.core.model import PRIORITIES, EventQuery
from outlast.core.states import Ms
from outlast.handler import Handler
from outlast.steps import SignalTimeout
from outlast.stream import fetch, so_far
from outlast.systems.streams.answers import (
    FENCE,
    IDLE_MS,
    MARK,
    OURS,
    OVER,
    Answers,
    mark_of,
)
from outlast.systems.streams.news import News
from outlast.systems.streams.wire import CREATE, TIMEOUT, Streams, event
from outlast.worker.worker import Worker

TIMEOUT_S: Final = 300.0
"""How long a service may take for a task that sets no timeout."""
AGAIN: Final = "2s"
"""After which a task is handed over again that could not be, because Redis did not answer."""
SILENT: Final[dict[str, Any]] = {}
"""The answer of a service that has given none in time."""
OFF: Final = "off"
"""The kind of an answer that is ours: the task is handed over anew."""
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
        self._app = app
        self._streams = Streams(url)
        self._served = {name: self._serve(handler) for name, handler in chosen.items()}
        self._consumer = consumer
        self._answers = Answers(app, self._streams, consumer, idle_ms)
        self._news = News(app, self._streams, frozenset(chosen))
        self._worker = Worker(app, queues={handler.queue: None for handler in chosen.values()})

    @property
    def types(self) -> list[str]:
        """What it serves."""
        return sorted(self._served)

    async def run(self) -> None:
        """Until `stop()`. Meanwhile these types have a handler in the app: this bridge."""
        async with self._app:
            if taken := self._served.keys() & self._app.handlers.keys():
                raise Conflict(f"The app has a bridge already that serves {min(taken)!r}.")
            self._app.handlers.update(self._served)
            loops = [asyncio.create_task(loop.run()) for loop in (self._answers, self._news)]
            for loop in loops:  # which end by a mistake only: a bridge that is deaf ends, too
                loop.add_done_callback(lambda _: self._worker.stop())
            try:
                await self._worker.run()
                for loop in loops:
                    if loop.done():
                        loop.result()
            finally:
                for name in self._served:
                    del self._app.handlers[name]
                await asyncio.gather(*map(_end, loops))
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

    def _serve(self, handler: Handler[..., Any]) -> Handler[..., Any]:
        """The type, as it was declared, but run here."""

        async def run(ctx: Context, /, **payload: object) -> object:
            try:
                return await self._run(ctx, payload)
            except (RedisError, OSError):
                return Again(after=AGAIN)

        run.__name__ = handler.type
        made = copy.copy(handler)
        made.fn, made.mode = run, "async"
        made.signature = Signature.of(run)
        return made

    async def _run(self, ctx: Context, payload: dict[str, object]) -> object:
        """Earlier times that it was handed over are gone through again: each is remembered."""
        for n in count(1):
            fence = await ctx.step(f"{FENCE}{n}", self._draw, ctx)
            timeout_s, at = await ctx.step(f"hand over {n}", self._hand_over, ctx, payload, fence)
            if ctx.number > 1:
                await self._call_off(ctx, fence, at)
            told = await self._answer(ctx, fence, timeout_s)
            if told.get("kind") == OFF or (
                told is SILENT and await ctx.step(f"redriven {n}", self._was_redriven, ctx, at)
            ):
                await ctx.step(f"{OVER}{n}", self._close, ctx, None)
                continue
            failure = _failure_in(told, timeout_s)
            if failure is None:
                return told["result"]
            event_id = told.get("event_id") if told.get("kind") == "failed" else None
            await ctx.step(f"{OVER}{n}", self._close, ctx, event_id)
            if told is SILENT:
                await ctx.step(f"timeout {n}", self._tell_timeout, ctx, fence, timeout_s)
            if await self._is_news(ctx, f"failed {n}"):
                raise failure
        raise AssertionError("count() has no end")

    async def _answer(self, ctx: Context, fence: str, timeout_s: float) -> dict[str, Any]:
        """What the service says, or that it is silent. The owner of the task may signal it, too,
        and knows the signal's name, but not the fence: without it a signal is no answer."""
        while True:
            try:
                told = await ctx.wait_for(f"{WITH_SERVICE}{mark_of(fence)}", timeout=timeout_s)
            except SignalTimeout:
                return SILENT
            if isinstance(told, dict) and told.get("fence") == fence:
                return told

    async def _call_off(self, ctx: Context, fence: str, handed_at: Ms) -> None:
        """Has it ended while the service had it, and was redriven? Then that answer is too old."""
        if await self._was_redriven(ctx, handed_at):
            name = f"{WITH_SERVICE}{mark_of(fence)}"
            await self._app.handle(ctx.task_id).signal(name, {"kind": OFF, "fence": fence})

    async def _was_redriven(self, ctx: Context, since: Ms) -> bool:
        query = EventQuery(task_id=ctx.task_id, kinds=("state",))
        found = await so_far(self._app.engine, query)
        return any(event.at > since and loads(event.data).get("redriven") for event in found)

    async def _draw(self, ctx: Context) -> str:
        """A new fence; its mark is in the record before a service can know it."""
        fence = secrets.token_urlsafe(16)
        await ctx.progress(0, "handed to a service", **{MARK: mark_of(fence)})
        return fence

    async def _hand_over(
        self, ctx: Context, payload: dict[str, object], fence: str
    ) -> tuple[float, Ms]:
        """Publish the task for whoever serves its type; how many seconds it may take, from when."""
        engine = self._app.engine
        task, now = await fetch(engine, ctx.task_id), await engine.now()
        timeout_s = TIMEOUT_S if task.timeout_ms is None else task.timeout_ms / 1_000
        data = {
            "task_id": task.id,
            "task_type": task.type,
            "params": payload,
            "session_id": task.session_id,
            "timeout": int(timeout_s) if timeout_s.is_integer() else timeout_s,
            "priority": _priority(task.priority),
            "created_by": "agent",
            "attempt": ctx.attempt,
            "fence": fence,
        }
        await self._streams.publish(CREATE, event("task.create", now, data, of=fence))
        return timeout_s, now

    async def _close(self, ctx: Context, event_id: str | None) -> str | None:
        """Another answer than this event would be late from now on."""
        await ctx.progress(0, "the service failed", **{MARK: ""})
        return event_id

    async def _tell_timeout(self, ctx: Context, fence: str, timeout_s: float) -> None:
        data = {
            "task_id": ctx.task_id,
            "status": "timeout",
            "message": f"Task exceeded timeout of {timeout_s:g} seconds",
            "elapsed_ms": round(timeout_s * 1_000),
            "fence": fence,
            "detected_by": OURS,
        }
        now = await self._app.engine.now()
        await self._streams.publish(TIMEOUT, event("task.timeout", now, data, of=fence))

    async def _is_news(self, ctx: Context, name: str) -> bool:
        """Is this attempt the first to come here?"""
        first = False

        async def note() -> bool:
            nonlocal first
            first = True
            return True

        await ctx.step(name, note)
        return first


async def _end(loop: asyncio.Task[None]) -> None:
    """Cancel it, more than once if need be: the client of Redis may take a cancellation for a
    broken connection, which is an error like others."""
    while not loop.done():
        loop.cancel()
        await asyncio.wait({loop}, timeout=0.1)


def _failure_in(told: Mapping[str, Any], timeout_s: float) -> Exception | None:
    """What went wrong, if something did: no answer, or one that says so."""
    if told is SILENT:
        return ServiceTimeout(f"The service did not answer in {timeout_s:g} s.")
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
