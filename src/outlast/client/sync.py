"""`Client`: a server from synchronous code."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, Self, TypeVar, Unpack

import httpx2

from outlast.client import leases, operating, sessions, tasks
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

P = ParamSpec("P")
T = TypeVar("T")


def _sent(build: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    """The method that sends what `build` builds."""

    @wraps(build)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.send(build(*args, **kwargs))

    return method


class Client:
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
                pause_s = self._link.pause(error, tries, again=call.again)
            time.sleep(pause_s)
            tries += 1

    enqueue = _sent(tasks.enqueue)
    enqueue_many = _sent(tasks.enqueue_many)
    get = _sent(tasks.get)
    page = _sent(tasks.page)
    why = _sent(tasks.why)
    retry = _sent(tasks.retry)
    cancel = _sent(tasks.cancel)
    signal = _sent(tasks.signal)
    delete = _sent(tasks.delete)
    matching = _sent(tasks.matching)
    bulk = _sent(tasks.bulk)
    requeue_orphaned = _sent(tasks.requeue_orphaned)

    health = _sent(operating.health)
    queues = _sent(operating.queues)
    pause = _sent(operating.pause)
    resume = _sent(operating.resume)
    dead_page = _sent(operating.dead_page)
    dead_groups = _sent(operating.dead_groups)
    workers = _sent(operating.workers)
    limits = _sent(operating.limits)
    set_limit = _sent(operating.set_limit)
    delete_limit = _sent(operating.delete_limit)
    usage = _sent(operating.usage)
    budgets = _sent(operating.budgets)
    set_budget = _sent(operating.set_budget)
    delete_budget = _sent(operating.delete_budget)
    history = _sent(operating.history)
    types = _sent(operating.types)
    webhooks = _sent(operating.webhooks)
    create_webhook = _sent(operating.create_webhook)
    delete_webhook = _sent(operating.delete_webhook)
    rotate_webhook = _sent(operating.rotate_webhook)
    enable_webhook = _sent(operating.enable_webhook)
    deliveries_page = _sent(operating.deliveries_page)
    replay = _sent(operating.replay)
    keys = _sent(operating.keys)
    create_key = _sent(operating.create_key)
    revoke_key = _sent(operating.revoke_key)

    session_page = _sent(sessions.session_page)
    notifications = _sent(sessions.notifications)
    acknowledge = _sent(sessions.acknowledge)
    preferences = _sent(sessions.preferences)
    set_preferences = _sent(sessions.set_preferences)
    token = _sent(sessions.token)
    ticket = _sent(sessions.ticket)

    claim = _sent(leases.claim)
    heartbeat = _sent(leases.heartbeat)
    progress = _sent(leases.progress)
    emit = _sent(leases.emit)
    used = _sent(leases.used)
    complete = _sent(leases.complete)
    fail = _sent(leases.fail)
    release = _sent(leases.release)

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
            time.sleep(self._link.pause(error, place.failures, again=True))
            place.failures += 1
