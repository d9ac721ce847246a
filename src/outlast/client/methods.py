"""The methods that both clients have: each sends one request, and is told here once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from outlast.client import flows, leases, operating, sessions, tasks
from outlast.client.wire import Call

if TYPE_CHECKING:
    from outlast.client.aio import AsyncClient
    from outlast.client.sync import Client

P = ParamSpec("P")
T = TypeVar("T")


class _Sent(Generic[P, T]):
    """The method that sends what `build` builds: at once, or when it is awaited."""

    def __init__(self, build: Callable[P, Call[T]]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, client: Client, kind: object = None) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, client: AsyncClient, kind: object = None
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, kind: object) -> Callable[P, Call[T]]: ...

    def __get__(self, client: Client | AsyncClient | None, kind: object = None) -> object:
        if client is None:
            return self._build

        @wraps(self._build)
        def method(*args: P.args, **kwargs: P.kwargs) -> object:
            return client.send(self._build(*args, **kwargs))

        return method


class Methods:
    """One request each; what takes several is written in the clients."""

    enqueue = _Sent(tasks.enqueue)
    enqueue_many = _Sent(tasks.enqueue_many)
    get = _Sent(tasks.get)
    page = _Sent(tasks.page)
    why = _Sent(tasks.why)
    content = _Sent(tasks.content)
    retry = _Sent(tasks.retry)
    steps = _Sent(tasks.steps)
    rerun = _Sent(tasks.rerun)
    cancel = _Sent(tasks.cancel)
    signal = _Sent(tasks.signal)
    delete = _Sent(tasks.delete)
    matching = _Sent(tasks.matching)
    bulk = _Sent(tasks.bulk)
    requeue_orphaned = _Sent(tasks.requeue_orphaned)

    enqueue_workflow = _Sent(flows.enqueue_workflow)
    workflow_page = _Sent(flows.workflow_page)
    workflow = _Sent(flows.workflow)
    cancel_workflow = _Sent(flows.cancel_workflow)
    retry_workflow = _Sent(flows.retry_workflow)
    schedules = _Sent(flows.schedules)
    schedule = _Sent(flows.schedule)
    save_schedule = _Sent(flows.save_schedule)
    delete_schedule = _Sent(flows.delete_schedule)
    pause_schedule = _Sent(flows.pause_schedule)
    resume_schedule = _Sent(flows.resume_schedule)
    run_schedule = _Sent(flows.run_schedule)
    approval_page = _Sent(flows.approval_page)
    respond = _Sent(flows.respond)

    health = _Sent(operating.health)
    queues = _Sent(operating.queues)
    pause = _Sent(operating.pause)
    resume = _Sent(operating.resume)
    dead_page = _Sent(operating.dead_page)
    dead_groups = _Sent(operating.dead_groups)
    workers = _Sent(operating.workers)
    drain_worker = _Sent(operating.drain_worker)
    limits = _Sent(operating.limits)
    set_limit = _Sent(operating.set_limit)
    delete_limit = _Sent(operating.delete_limit)
    reset_limit = _Sent(operating.reset_limit)
    usage = _Sent(operating.usage)
    budgets = _Sent(operating.budgets)
    set_budget = _Sent(operating.set_budget)
    delete_budget = _Sent(operating.delete_budget)
    history = _Sent(operating.history)
    types = _Sent(operating.types)
    webhooks = _Sent(operating.webhooks)
    create_webhook = _Sent(operating.create_webhook)
    delete_webhook = _Sent(operating.delete_webhook)
    rotate_webhook = _Sent(operating.rotate_webhook)
    enable_webhook = _Sent(operating.enable_webhook)
    deliveries_page = _Sent(operating.deliveries_page)
    replay = _Sent(operating.replay)
    keys = _Sent(operating.keys)
    create_key = _Sent(operating.create_key)
    revoke_key = _Sent(operating.revoke_key)

    session_page = _Sent(sessions.session_page)
    notifications = _Sent(sessions.notifications)
    acknowledge = _Sent(sessions.acknowledge)
    preferences = _Sent(sessions.preferences)
    set_preferences = _Sent(sessions.set_preferences)
    token = _Sent(sessions.token)
    ticket = _Sent(sessions.ticket)

    claim = _Sent(leases.claim)
    heartbeat = _Sent(leases.heartbeat)
    progress = _Sent(leases.progress)
    emit = _Sent(leases.emit)
    used = _Sent(leases.used)
    complete = _Sent(leases.complete)
    fail = _Sent(leases.fail)
    release = _Sent(leases.release)
