"""What `@app.task` and `app.register` take, for type checkers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from outlast.context import Again, Context, SyncContext
from outlast.core.durations import Duration
from outlast.core.retry import Retry
from outlast.handler import Function, Gates
from outlast.options import TaskOptions

P = ParamSpec("P")
R = TypeVar("R")


class ClassHandler(Protocol):
    """A handler as an object: `app.register(MyHandler())`.

    `execute` takes the payload and a function `progress(percent, message)`, and may be `async`. It
    may also have `limits_for(payload)`, which gives the limits to hold: keys, or
    `Limit(key, slots=n)`.
    """

    @property
    def task_type(self) -> str: ...

    def execute(self, payload: Any, progress: Any, /) -> Any: ...


class TaskArgs(TaskOptions, total=False):
    name: str
    every: Duration | datetime
    tz: str
    retry: Retry | str
    limits: Gates
    search: Sequence[str]
    isolate: bool
    memory: str | int


class RegisterArgs(TaskOptions, total=False):
    retry: Retry | str
    limits: Gates
    search: Sequence[str]


class Decorator(Protocol):
    """What `@app.task(…)` does to a function; a context as first parameter is left out of calls."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a coroutine is a result too, but comes first
        self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R | Again]], /
    ) -> Function[P, R, Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]]: ...

    @overload
    def __call__(
        self, fn: Callable[P, Coroutine[Any, Any, R | Again]], /
    ) -> Function[P, R, Callable[P, Coroutine[Any, Any, R]]]: ...

    @overload
    def __call__(
        self, fn: Callable[Concatenate[Context, P], R | Again], /
    ) -> Function[P, R, Callable[Concatenate[Context, P], R]]: ...

    @overload
    def __call__(
        self, fn: Callable[Concatenate[SyncContext, P], R | Again], /
    ) -> Function[P, R, Callable[Concatenate[SyncContext, P], R]]: ...

    @overload
    def __call__(self, fn: Callable[P, R | Again], /) -> Function[P, R, Callable[P, R]]: ...
