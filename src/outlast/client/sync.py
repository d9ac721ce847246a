"""`Client`: a server from synchronous code."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
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


class Client(Methods):
    """A server: `Client("https://tasks.example.org", key="olk_…")`.

    Without arguments it is that of `$OUTLAST_SERVER` and `$OUTLAST_KEY`; a session token is as good
    as a key. What may be repeated is, up to `retries` times, when the connection breaks, the server
    is busy or says that it was asked too often. `timeout` bounds each request. `http` is a client
    of your own, for proxies or certificates.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: Duration = "30s",
        retries: int = 3,
        http: httpx2.Client | None = None,
    ) -> None:
        self._link = Link(url, key, timeout, retries)
        self._http = http or httpx2.Client()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Send one request, again if it is worth it and safe."""
        tries = 0
        while True:
            try:
                return self._link.read(call, self._http.send(self._link.request(self._http, call)))
            except RETRIED as error:
                pause_s = self._link.pause(error, tries, again=call.again, patient=call.wait_s > 0)
            time.sleep(pause_s)
            tries += 1

    def now(self) -> Ms:
        """The engine's clock."""
        return ms_of(self.health().timestamp)

    def wait(self, task: HasId | str, timeout: Duration | None = None) -> Task:
        """The record of a task once it is over; `WaitTimeout` when that takes longer."""
        patience = Patience(timeout)
        while True:
            found = self.send(tasks.get(task, wait_s=patience.next_s()))
            if patience.is_over(found):
                return found

    def result(self, task: HasId | str, timeout: Duration | None = None) -> object:
        """What came out of a task. `TaskDead`, `TaskCancelled`, or `WaitTimeout` otherwise."""
        return result_of(self.wait(task, timeout))

    def tasks(self, **filters: Unpack[PageFilters]) -> Iterator[Task]:
        """All tasks that fit, newest first; `limit` is the size of the pages."""
        return self._items(tasks.page, filters)

    def dead(self, **filters: Unpack[PageFilters]) -> Iterator[Task]:
        """All dead tasks that fit, newest first."""
        return self._items(operating.dead_page, filters)

    def session_tasks(self, session_id: str, /, **filters: Unpack[PageFilters]) -> Iterator[Task]:
        """All tasks of a session that fit, newest first."""
        return self._items(lambda **fit: sessions.session_page(session_id, **fit), filters)

    def deliveries(self, webhook: str, **filters: Unpack[PageFilters]) -> Iterator[Task]:
        """All deliveries of a webhook that fit, newest first."""
        return self._items(lambda **fit: operating.deliveries_page(webhook, **fit), filters)

    def stream(self, task: HasId | str, after: str | None = None) -> Iterator[Event]:
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
    ) -> Iterator[Event]:
        """The events of all tasks, from now on or behind a cursor, for ever."""
        call = tasks.events(kinds, session_id, workflow_id)
        return self._follow(Following(call, after, until_done=False))

    def _items(self, build: Callable[..., Call[TaskPage]], filters: PageFilters) -> Iterator[Task]:
        while True:
            page = self.send(build(**filters))
            yield from page.items
            if page.next is None:
                return
            filters = {**filters, "cursor": page.next}

    def _follow(self, place: Following) -> Iterator[Event]:
        while True:
            error: Exception = place.lost
            try:
                request = self._link.request(self._http, place.call())
                reply = self._http.send(request, stream=True)
                try:
                    if reply.status_code != 200:
                        reply.read()
                        self._link.check(reply)
                        return  # 204: nothing will come any more
                    for data in reply.iter_bytes():
                        yield from place.feed(data)
                        if place.is_over:
                            return
                finally:
                    reply.close()
            except RETRIED as problem:
                error = problem
            time.sleep(self._link.pause(error, place.failures, again=True, patient=True))
            place.failures += 1
