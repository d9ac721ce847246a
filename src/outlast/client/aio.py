"""`AsyncClient`: a server from asynchronous code, with the methods of `Client`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Self, TypeVar, Unpack

import httpx2

from outlast.client import operating, sessions, tasks
from outlast.client.methods import Methods
from outlast.client.tasks import PageFilters
from outlast.client.wire import (
    RETRIED,
    Call,
    Event,
    Following,
    Link,
    Patience,
    ms_of,
    result_of,
)
from outlast.core.durations import Duration
from outlast.core.states import Ms
from outlast.http.schemas import Task, TaskPage
from outlast.options import HasId

T = TypeVar("T")


class AsyncClient(Methods):
    """A server: `AsyncClient("https://tasks.example.org", key="olk_…")`. See `Client`."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: Duration = "30s",
        retries: int = 3,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        self._link = Link(url, key, timeout, retries)
        self._http = http or httpx2.AsyncClient()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Send one request, again if it is worth it and safe."""
        tries = 0
        while True:
            try:
                reply = await self._http.send(self._link.request(self._http, call))
                return self._link.read(call, reply)
            except RETRIED as error:
                pause_s = self._link.pause(error, tries, again=call.again, patient=call.wait_s > 0)
            await asyncio.sleep(pause_s)
            tries += 1

    async def now(self) -> Ms:
        """The engine's clock."""
        return ms_of((await self.health()).timestamp)

    async def wait(
        self,
        task: HasId | str,
        timeout: Duration | None = None,  # noqa: ASYNC109  # a Duration
    ) -> Task:
        """The record of a task once it is over; `WaitTimeout` when that takes longer."""
        patience = Patience(timeout)
        while True:
            found = await self.send(tasks.get(task, wait_s=patience.next_s()))
            if patience.is_over(found):
                return found

    async def result(
        self,
        task: HasId | str,
        timeout: Duration | None = None,  # noqa: ASYNC109  # a Duration
    ) -> object:
        """What came out of a task. `TaskDead`, `TaskCancelled`, or `WaitTimeout` otherwise."""
        return result_of(await self.wait(task, timeout))

    def tasks(self, **filters: Unpack[PageFilters]) -> AsyncGenerator[Task, None]:
        """All tasks that fit, newest first; `limit` is the size of the pages."""
        return self._items(tasks.page, filters)

    def dead(self, **filters: Unpack[PageFilters]) -> AsyncGenerator[Task, None]:
        """All dead tasks that fit, newest first."""
        return self._items(operating.dead_page, filters)

    def session_tasks(
        self, session_id: str, /, **filters: Unpack[PageFilters]
    ) -> AsyncGenerator[Task, None]:
        """All tasks of a session that fit, newest first."""
        return self._items(lambda **fit: sessions.session_page(session_id, **fit), filters)

    def deliveries(
        self, webhook: str, **filters: Unpack[PageFilters]
    ) -> AsyncGenerator[Task, None]:
        """All deliveries of a webhook that fit, newest first."""
        return self._items(lambda **fit: operating.deliveries_page(webhook, **fit), filters)

    def stream(self, task: HasId | str, after: str | None = None) -> AsyncGenerator[Event, None]:
        """The events of a task, from the first or behind a cursor, until it is over. A broken
        connection is made again, and goes on where it was."""
        return self._follow(Following(tasks.stream(task), after, until_done=True))

    def events(
        self,
        after: str | None = None,
        *,
        kinds: Sequence[str] = (),
        session_id: str | None = None,
        workflow_id: str | None = None,
    ) -> AsyncGenerator[Event, None]:
        """The events of all tasks, from now on or behind a cursor, for ever."""
        call = tasks.events(kinds, session_id, workflow_id)
        return self._follow(Following(call, after, until_done=False))

    async def _items(
        self, build: Callable[..., Call[TaskPage]], filters: PageFilters
    ) -> AsyncGenerator[Task, None]:
        while True:
            page = await self.send(build(**filters))
            for item in page.items:
                yield item
            if page.next is None:
                return
            filters = {**filters, "cursor": page.next}

    async def _follow(self, place: Following) -> AsyncGenerator[Event, None]:
        while True:
            error: Exception = place.lost
            try:
                request = self._link.request(self._http, place.call())
                reply = await self._http.send(request, stream=True)
                try:
                    if reply.status_code != 200:
                        await reply.aread()
                        self._link.check(reply)
                        return  # 204: nothing will come any more
                    async for data in reply.aiter_bytes():
                        for event in place.feed(data):
                            yield event
                        if place.is_over:
                            return
                finally:
                    await reply.aclose()
            except RETRIED as problem:
                error = problem
            await asyncio.sleep(self._link.pause(error, place.failures, again=True, patient=True))
            place.failures += 1
