"""A fleet of Celery workers as workers of an Outlast app.

Beat sends the Celery task `outlast.run` every second. Where a place for a runner is free, the
process that got it takes the place: it is a worker that takes leases and runs attempts under their
fences. One that is killed keeps its place for no longer than a lease, and its tasks are rescued
like those of any worker. Celery remembers nothing of all this: a tick that is lost is followed by
another.

A runner ends when Celery's worker does. The main process tells its children by a pipe that it
closes, which also happens when it is killed. After `span`, and with nothing to do, a runner makes
room for Celery's own tasks until the next tick.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from time import monotonic
from typing import Any, Final

from outlast.app import Outlast
from outlast.celery.taken import opened
from outlast.core.codec import dumps
from outlast.core.durations import Duration, to_ms
from outlast.core.errors import BadInput, OutlastError
from outlast.core.model import Put, Record
from outlast.engine import Engine
from outlast.worker import Worker
from outlast.worker.worker import new_worker_id

try:
    from celery import Celery, signals
except ImportError as error:
    raise OutlastError("A Celery fleet needs Celery: install outlast[celery].") from error

logger: Final = logging.getLogger("outlast.celery")

NAME: Final = "outlast.run"
KIND: Final = "runner"
TICK_S: Final = 1.0
LEASE_MS: Final = 10_000
# Celery's time limits are for its own tasks: a runner that is cut down loses what it runs.
NO_LIMIT_S: Final = 10 * 365 * 86_400


def enlist(
    celery: Celery,
    app: Outlast,
    *,
    runners: int = 1,
    queue: str | None = None,
    span: Duration = "60s",
    **options: Any,
) -> None:
    """Have Celery's workers run the tasks of this app, as many processes at once as `runners`.

    Beat must run, and a worker that serves `queue` (Celery's, by default its usual one). `options`
    are those of `Worker`: `queues`, `concurrency`, `threads`, `lease_ms`, …
    """
    if runners < 1:
        raise BadInput(f"runners={runners}: at least one process runs tasks.")
    span_s = to_ms(span) / 1_000
    alone = Lock()

    @celery.task(  # type: ignore[untyped-decorator]  # Celery has no types
        name=NAME,
        ignore_result=True,
        acks_late=False,
        time_limit=NO_LIMIT_S,
        soft_time_limit=NO_LIMIT_S,
    )
    def run() -> None:
        if not alone.acquire(blocking=False):  # a thread of this process is one already
            return
        try:
            if app.is_open:  # by Celery's own tasks that enqueue: an app has one loop
                with opened(app) as q:
                    q.wait(_serve(app, runners, span_s, options))
            else:
                asyncio.run(_serve(app, runners, span_s, options))
        finally:
            alone.release()

    @celery.on_after_finalize.connect(weak=False)  # type: ignore[untyped-decorator]  # likewise
    def tick(sender: Celery, **_: Any) -> None:
        told = {} if queue is None else {"queue": queue}
        sender.add_periodic_task(TICK_S, run.s(), name=NAME, expires=5 * TICK_S, **told)


async def _serve(app: Outlast, runners: int, span_s: float, options: dict[str, Any]) -> None:
    """Be a worker, if there is a place."""
    async with app:
        places = Places(app.engine, options.get("lease_ms", LEASE_MS))
        place = await places.take(runners)
        if place is None:
            return
        worker = Worker(app, worker_id=f"celery.{new_worker_id()}", **options)
        running = asyncio.create_task(worker.run())
        until = monotonic() + span_s
        with _lifeline.ending() as ends:
            while place is not None and not (ends.is_set() or running.done()):
                if monotonic() >= until and worker.is_idle:
                    break
                with suppress(TimeoutError):
                    await asyncio.wait_for(ends.wait(), TICK_S)
                place = await places.keep(place)
        worker.stop()
        await running
        if place is not None:
            await places.leave(place)


class Places:
    """As many as there may be runners; each is a record that expires unless it is kept."""

    def __init__(self, engine: Engine, hold_ms: int) -> None:
        self._engine = engine
        self._hold_ms = hold_ms

    async def take(self, most: int) -> Record | None:
        """One that is free."""
        for n in range(most):
            place = await self._put(f"celery:{n}", 0)
            if place is not None:
                return place
        return None

    async def keep(self, place: Record) -> Record | None:
        """None when it was too late: another may have it by now."""
        try:
            return await self._put(place.key, place.version)
        except Exception as problem:
            logger.warning("The place %s is not kept: %s; trying again", place.key, problem)
            return place

    async def leave(self, place: Record) -> None:
        await self._engine.put([Put(kind=KIND, key=place.key, value=None, expect=place.version)])

    async def _put(self, key: str, expect: int) -> Record | None:
        holder = {"host": socket.gethostname(), "pid": os.getpid()}
        put = Put(kind=KIND, key=key, value=dumps(holder), expect=expect, ttl_ms=self._hold_ms)
        return (await self._engine.put([put]))[0]


class _Lifeline:
    """A pipe that nobody writes to: its end is the end of Celery's main process."""

    def __init__(self) -> None:
        self._read = self._write = -1
        self._pid = 0

    def make(self, **_: Any) -> None:
        """In the main process, before there are others."""
        self._read, self._write = os.pipe()
        self._pid = os.getpid()

    def inherit(self, **_: Any) -> None:
        """In a child, which must not keep it open."""
        if self._write >= 0 and os.getpid() != self._pid:
            os.close(self._write)
            self._write = -1

    def cut(self, **_: Any) -> None:
        """In the main process, when it is told to stop."""
        if self._write >= 0 and os.getpid() == self._pid:
            os.close(self._write)
            self._write = -1

    @contextmanager
    def ending(self) -> Iterator[asyncio.Event]:
        """An event that is set when the pipe ends."""
        event, loop, fd = asyncio.Event(), asyncio.get_running_loop(), self._read

        def ended() -> None:
            loop.remove_reader(fd)
            event.set()

        if fd >= 0:
            loop.add_reader(fd, ended)
        try:
            yield event
        finally:
            if fd >= 0:
                loop.remove_reader(fd)


_lifeline: Final = _Lifeline()
signals.worker_init.connect(_lifeline.make, weak=False)
signals.worker_process_init.connect(_lifeline.inherit, weak=False)
signals.worker_shutting_down.connect(_lifeline.cut, weak=False)
