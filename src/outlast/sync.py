"""Outlast for synchronous code: one event loop in a background thread, the same types.

The app is opened on that loop and belongs to it until the `with` block ends. An app that is open
already (in a worker, in a web server) is used on the loop that it has, from any other thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from outlast.core.durations import Duration
from outlast.core.errors import Conflict
from outlast.core.model import Cursor, Task, TaskId
from outlast.core.states import Status
from outlast.handle import Handle, TaskEvent
from outlast.handler import Call, Handler

if TYPE_CHECKING:
    from outlast.app import Outlast

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class SyncApp:
    """`with app.sync() as q: q.enqueue(summarize, url).result(timeout="60s")`."""

    def __init__(self, app: Outlast) -> None:
        self._app = app
        self._thread: threading.Thread | None = None
        """Of a loop of our own; None when the app brought one."""

    def __enter__(self) -> SyncApp:
        opened_in = self._app.loop
        if opened_in is not None:
            self._loop = opened_in
        else:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="outlast-sync", daemon=True
            )
            self._thread.start()
        try:
            self.wait(self._app.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.wait(self._app.__aexit__(kind, error, trace))
        finally:
            self._stop()

    def enqueue(
        self, handler: Handler[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> SyncHandle[R]:
        """Hand one call over; options come with the handler: `summarize.options(delay="5s")`."""
        return SyncHandle(self, self.wait(handler.enqueue(*args, **kwargs)))

    def enqueue_all(self, calls: Iterable[Call[R]]) -> list[SyncHandle[R]]:
        """Hand over many calls in one step."""
        return [SyncHandle(self, handle) for handle in self.wait(self._app.enqueue(calls))]

    def handle(self, id: TaskId) -> SyncHandle[object]:
        return SyncHandle(self, self._app.handle(id))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the app's loop and wait for it."""
        if asyncio._get_running_loop() is self._loop:
            work.close()
            raise Conflict("This is the app's own loop: use `await` here.")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C in the caller must not leave the wait behind
            future.cancel()
            raise

    def _stop(self) -> None:
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._thread = None


class SyncHandle(Generic[R]):
    """A handle whose methods wait."""

    def __init__(self, app: SyncApp, handle: Handle[R]) -> None:
        self._app = app
        self._handle = handle

    def __repr__(self) -> str:
        return f"<SyncHandle {self.id}>"

    @property
    def id(self) -> TaskId:
        return self._handle.id

    @property
    def existing(self) -> bool:
        return self._handle.existing

    def result(self, timeout: Duration | None = None) -> R:
        """What the handler returned. `TaskDead`, `TaskCancelled`, or `WaitTimeout` otherwise."""
        return self._app.wait(self._handle.result(timeout))

    def events(self, after: Cursor | None = None) -> Iterator[TaskEvent]:
        """Its events as they come; ends when the task does."""
        events = self._handle.events(after)
        try:
            while (event := self._app.wait(_next(events))) is not None:
                yield event
        finally:
            self._app.wait(events.aclose())

    def status(self) -> Status:
        return self._app.wait(self._handle.status())

    def refresh(self) -> Task:
        return self._app.wait(self._handle.refresh())

    def cancel(self, reason: str = "cancelled") -> bool:
        return self._app.wait(self._handle.cancel(reason))

    def retry(self) -> None:
        self._app.wait(self._handle.retry())


async def _next(events: AsyncIterator[TaskEvent]) -> TaskEvent | None:
    # StopAsyncIteration cannot pass through a future.
    return await anext(events, None)
