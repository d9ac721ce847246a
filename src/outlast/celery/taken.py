"""Functions that Celery ran, as types of an Outlast app, called as before.

    from outlast.celery import app, shared_task

    @shared_task(bind=True, autoretry_for=(ConnectionError,), retry_backoff=True)
    def fetch(self, url: str) -> str: ...

    fetch.delay("https://…").get(timeout=10)

What differs is told in `docs/systems/asynctaskflow.md`: JSON only, named arguments, and a task that
fails for good is dead and can be redriven.
"""

from __future__ import annotations

import atexit
import inspect
import os
import random
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    NoReturn,
    ParamSpec,
    TypeVar,
    get_type_hints,
    overload,
)

from outlast.app import Outlast
from outlast.context import SyncContext
from outlast.core.errors import (
    BadInput,
    Conflict,
    OutlastError,
    Permanent,
    TaskCancelled,
    TaskDead,
    Transient,
)
from outlast.core.limits import Limit
from outlast.core.model import TaskId
from outlast.core.retry import Retry
from outlast.handler import Handler
from outlast.loading import importable
from outlast.options import priority_of
from outlast.sync import SyncApp, SyncHandle

P = ParamSpec("P")
R = TypeVar("R")

_APP: Final = Outlast()
FOREVER: Final = 999_999
_PERIODS: Final = {"s": "s", "m": "min", "h": "hour"}
# What every task here has anyway.
_AS_IT_IS: Final = frozenset(
    {"acks_late", "acks_on_failure_or_timeout", "ignore_result", "reject_on_worker_lost",
     "send_events", "shared", "store_errors_even_if_ignored", "throws", "track_started"}
)  # fmt: skip


class MaxRetriesExceededError(Permanent):
    """`retry()` was called once more than `max_retries` allows, without an error to raise."""


class Request:
    """What `self.request` tells of the attempt."""

    def __init__(self, ctx: SyncContext | None, kwargs: Mapping[str, Any]) -> None:
        self.id: TaskId | None = None if ctx is None else ctx.task_id
        self.retries = 0 if ctx is None else ctx.attempt - 1
        self.args: tuple[Any, ...] = ()
        self.kwargs = dict(kwargs)
        self.called_directly = ctx is None


class Bound:
    """`self` of a function with `bind=True`."""

    MaxRetriesExceededError = MaxRetriesExceededError

    def __init__(self, task: SharedTask[..., Any], ctx: SyncContext | None, request: Request):
        self._task = task
        self._ctx = ctx
        self.request = request
        self.name = task.name
        self.max_retries = task.max_retries
        self.default_retry_delay = task.default_retry_delay

    def retry(
        self,
        *,
        exc: BaseException | None = None,
        countdown: float | None = None,
        eta: datetime | None = None,
        max_retries: int | None = None,
    ) -> NoReturn:
        """Ends the attempt; another one follows, unless there were enough."""
        if self._ctx is None:  # called as a plain function
            raise exc or MaxRetriesExceededError(f"{self.name} was called directly: no retry.")
        if eta is not None:
            countdown = max(0.0, eta.timestamp() - self._ctx.now / 1_000)
        after = self.default_retry_delay if countdown is None else countdown
        most = self.max_retries if max_retries is None else max_retries
        if most is not None and self.request.retries >= most:
            if exc is None:
                raise MaxRetriesExceededError(f"{self.name} was retried {most} times.")
            raise _as(Permanent, exc) from exc
        asked = exc or RuntimeError("retry() was called")
        raise _as(Transient, asked, after=after) from exc

    def update_state(self, state: str = "", meta: Mapping[str, Any] | None = None) -> None:
        """The progress of the task: `meta` may have `current` and `total`."""
        if self._ctx is not None:
            told = dict(meta or {})
            done, total = told.get("current", 0), told.get("total", 0)
            percent = min(100.0, max(0.0, 100 * done / total)) if total else 0.0
            self._ctx.progress(percent, state, **told)


class SharedTask(Generic[P, R]):
    """What `@shared_task` makes of a function. Called, it is the plain function."""

    def __init__(self, app: Outlast, fn: Callable[..., R], options: dict[str, Any]) -> None:
        told = dict(options)
        self.app = app
        self.run = fn
        self.name: str = told.pop("name", None) or f"{importable(fn.__module__)}.{fn.__name__}"
        self.bind: bool = told.pop("bind", False)
        self.autoretry_for = tuple(told.pop("autoretry_for", ()))
        self.dont_autoretry_for = tuple(told.pop("dont_autoretry_for", ()))
        self.default_retry_delay: float = told.pop("default_retry_delay", 180)
        given = dict(told.pop("retry_kwargs", None) or {})
        self.max_retries: int | None = given.pop("max_retries", told.pop("max_retries", 3))
        self._countdown: float | None = given.pop("countdown", None)
        self._backoff = float(told.pop("retry_backoff", False))
        self._backoff_max: float = told.pop("retry_backoff_max", 600)
        self._jitter: bool = told.pop("retry_jitter", True)
        self.__doc__ = fn.__doc__
        self.handler: Handler[..., R] = self._register(told)

    def _register(self, told: dict[str, Any]) -> Handler[..., R]:
        # Errors say themselves when to come again (`_as`); a time limit is an end, as in Celery.
        policy = Retry("0s", jitter=0).never("timed_out")
        options: dict[str, Any] = {"name": self.name, "retry": policy}
        options["max_attempts"] = FOREVER if self.max_retries is None else self.max_retries + 1
        for old, new in (("queue", "queue"), ("expires", "max_age"), ("time_limit", "timeout")):
            if (value := told.pop(old, None)) is not None:
                options[new] = value
        if (priority := told.pop("priority", None)) is not None:
            options["priority"] = priority_of(priority)
        if (rate := told.pop("rate_limit", None)) is not None:
            limit = Limit(f"rate:{self.name}", rate=_rate(rate))
            self.app.limits[limit.key] = limit
            options["limits"] = [limit.key]
        if told.pop("serializer", "json") != "json":
            raise BadInput(f"{self.name}: arguments and results are JSON; leave out serializer=.")
        if unknown := sorted(told.keys() - _AS_IT_IS):
            warnings.warn(
                f"{self.name}: {', '.join(unknown)} of @shared_task mean nothing to Outlast;"
                " docs/reference/config.md has the options of @app.task.",
                stacklevel=5,
            )
        return self.app.task(**options)(self._attempt())

    def _attempt(self) -> Callable[..., R]:
        """What a worker calls: the function, with its failures in Celery's sense."""

        def attempt(ctx: SyncContext, /, **kwargs: Any) -> R:
            me = (Bound(self, ctx, Request(ctx, kwargs)),) if self.bind else ()
            try:
                return self.run(*me, **kwargs)
            except (OutlastError, Retry, MemoryError):
                raise
            except Exception as error:
                again = isinstance(error, self.autoretry_for)
                if again and not isinstance(error, self.dont_autoretry_for):
                    after = self._after(ctx.attempt - 1)
                    raise _as(Transient, error, after=after) from error
                raise _as(Permanent, error) from error

        parameters = list(inspect.signature(self.run).parameters.values())[int(self.bind) :]
        hints = get_type_hints(self.run, include_extras=True)
        kind = inspect.Parameter.POSITIONAL_ONLY
        context = inspect.Parameter("ctx", kind, annotation=SyncContext)
        attempt.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
        attempt.__annotations__ = hints
        attempt.__name__, attempt.__doc__ = self.run.__name__, self.run.__doc__
        attempt.__module__ = self.run.__module__  # the app is looked for where its handlers are
        return attempt

    def _after(self, retries: int) -> float:
        """In how many seconds an error that is retried by itself is retried."""
        if not self._backoff:
            return self.default_retry_delay if self._countdown is None else self._countdown
        most = min(self._backoff_max, self._backoff * 2.0 ** min(retries, 60))
        return random.uniform(0, most) if self._jitter else most  # noqa: S311  # no secret

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.bind:
            return self.run(Bound(self, None, Request(None, kwargs)), *args, **kwargs)
        return self.run(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<SharedTask {self.name}>"

    if not TYPE_CHECKING:  # which is to know what there is

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(
                f"{vars(self).get('name')} has no {name!r}, as Celery's tasks may have. Signatures,"
                " chains and groups are workflows here (docs/guide/workflows.md); called, it is the"
                " plain function.",
                name=name,
                obj=self,
            )

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult:
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        task_id: TaskId | None = None,
        countdown: float | None = None,
        eta: datetime | None = None,
        expires: float | timedelta | None = None,
        queue: str | None = None,
        priority: int | None = None,
    ) -> AsyncResult:
        """Hand a call over. `priority` 0 is the most urgent, as on Redis; `expires` is how long it
        may wait."""
        options: dict[str, Any] = {
            "id": task_id, "delay": countdown, "run_at": eta, "max_age": expires, "queue": queue,
            "priority": priority,
        }  # fmt: skip
        told = {name: value for name, value in options.items() if value is not None}
        call = self.handler.options(**told).call(*(args or ()), **(kwargs or {}))
        with opened(self.app) as q:
            [handle] = q.enqueue_all([call])
        return AsyncResult(handle.id, self.app)

    def AsyncResult(self, task_id: TaskId) -> AsyncResult:  # noqa: N802  # as Celery has it
        return AsyncResult(task_id, self.app)


class AsyncResult:
    """The way back to a task, by its id."""

    def __init__(self, id: TaskId, app: Outlast | None = None) -> None:
        self.id = id
        self._app = app or _APP

    def __repr__(self) -> str:
        return f"<AsyncResult {self.id}>"

    @property
    def task_id(self) -> TaskId:
        return self.id

    def get(self, timeout: float | None = None, propagate: bool = True) -> Any:
        """The result, once it is there. `TaskDead` and `TaskCancelled` are returned if they are not
        to propagate; a wait that is over raises `WaitTimeout`, which is a `TimeoutError`."""
        with opened(self._app) as q:
            try:
                return self._handle(q).result(timeout)
            except (TaskDead, TaskCancelled) as end:
                if propagate:
                    raise
                return end

    @property
    def state(self) -> str:
        """As Celery says it: PENDING, STARTED, RETRY, SUCCESS, FAILURE or REVOKED."""
        with opened(self._app) as q:
            task = self._handle(q).refresh()
        if task.state == "pending":
            return "RETRY" if task.lane == "retry" else "PENDING"
        return _STATES[task.state]

    status = state

    @property
    def result(self) -> Any:
        """The result or the error; None while there is neither."""
        return self.get(timeout=0, propagate=False) if self.ready() else None

    def ready(self) -> bool:
        return self.state in ("SUCCESS", "FAILURE", "REVOKED")

    def successful(self) -> bool:
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        return self.state == "FAILURE"

    def revoke(self, terminate: bool = True) -> None:
        """Cancel it; what runs is told to stop."""
        with opened(self._app) as q:
            self._handle(q).cancel("revoked")

    def _handle(self, q: SyncApp) -> SyncHandle[object]:
        return q.handle(self.id)


_STATES: Final = {
    "running": "STARTED", "completed": "SUCCESS", "dead": "FAILURE", "cancelled": "REVOKED",
}  # fmt: skip


# From synchronous code ---------------------------------------------------------------------------

_kept: Final[dict[int, tuple[int, SyncApp]]] = {}
_lock: Final = threading.Lock()


@contextmanager
def opened(app: Outlast) -> Iterator[SyncApp]:
    """The app as plain code uses it: where a worker or a server has it open, theirs; else opened at
    the first call and kept until the process ends."""
    with _lock:
        if id(app) not in _kept and not app.is_open:
            opened = app.sync()
            opened.__enter__()
            atexit.register(_close, opened)
            _kept[id(app)] = (os.getpid(), opened)
    pid, mine = _kept.get(id(app), (0, None))
    if mine is None:
        with app.sync() as theirs:
            yield theirs
    elif pid == os.getpid():
        yield mine
    else:
        raise Conflict(
            "The app was used before this process was forked, and its connections are not ours:"
            " enqueue only after the fork."
        )


def _close(opened: SyncApp) -> None:
    """At the end of the process that opened it, and of none that was forked from it."""
    if any(pid == os.getpid() and kept is opened for pid, kept in _kept.values()):
        with suppress(RuntimeError):  # Python may have ended the threads that an engine works with
            opened.__exit__(None, None, None)


def _as(kind: Callable[..., OutlastError], error: BaseException, **more: Any) -> OutlastError:
    """An error of the same name that says whether it is to be retried, so that the record tells of
    the one that happened."""
    made: type[OutlastError] = type(type(error).__name__, (kind,), {})  # type: ignore[arg-type]
    return made(str(error) or type(error).__name__, **more)


def _rate(rate: str | float) -> str:
    """Celery's "10/m" in our words."""
    n, _, period = str(rate).partition("/")
    if period not in ("", *_PERIODS) or not n.isdigit():
        raise BadInput(f"rate_limit={rate!r}: give whole tasks per s, m or h, as in '10/m'.")
    return f"{n}/{_PERIODS.get(period, 's')}"


# What is taken over ------------------------------------------------------------------------------


class Sharing:
    """`@shared_task` for one app: `@shared_task`, `@shared_task()` or `@shared_task(bind=True)`."""

    def __init__(self, app: Outlast) -> None:
        self._app = app

    @overload
    def __call__(self, fn: Callable[P, R], /) -> SharedTask[P, R]: ...

    @overload
    def __call__(self, **options: Any) -> Callable[[Callable[..., R]], SharedTask[..., R]]: ...

    def __call__(  # type: ignore[misc]  # mypy takes the options for a function
        self, fn: Callable[..., Any] | None = None, /, **options: Any
    ) -> Any:
        def decorate(fn: Callable[..., Any]) -> SharedTask[..., Any]:
            if inspect.iscoroutinefunction(fn):
                raise BadInput(f"{fn.__name__} is async, as no task of Celery: give it @app.task.")
            return SharedTask(self._app, fn, options)

        return decorate if fn is None else decorate(fn)


def sharing(app: Outlast) -> Sharing:
    """`shared_task = sharing(app)`, for an app of your own."""
    return Sharing(app)


app: Final = _APP
"""Of those who bring none: on `$OUTLAST_URL`."""
shared_task: Final = sharing(app)
