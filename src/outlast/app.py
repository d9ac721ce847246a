"""The application: where the engine is, what types there are, and how tasks are handed over."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import os
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

import msgspec

from outlast import schedules, tasklog
from outlast.budgets import Purse
from outlast.content import Folder, Store
from outlast.context import Again, Context, SyncContext
from outlast.core.budgets import Budget
from outlast.core.durations import Duration
from outlast.core.errors import BadInput, Conflict, Mismatch, OutlastError, UnknownType
from outlast.core.ids import check_id
from outlast.core.lanes import Lanes
from outlast.core.limits import Limit
from outlast.core.model import Json
from outlast.core.redact import REDACTED, Hidden, Redactor, Rules
from outlast.core.retry import Retry
from outlast.core.seal import SETTING, Seal
from outlast.decorating import ClassHandler, Decorator, RegisterArgs, TaskArgs
from outlast.definitions import Keep, Queue, check_keep, publish
from outlast.engine import Engine, connect
from outlast.fleet import Publisher
from outlast.handle import Handle
from outlast.handler import Call, Function, Gate, Gates, Handler, Mode, Payload
from outlast.loading import check_not_importing, target_of
from outlast.meter import Meter
from outlast.options import IDEMPOTENT_MS, Options, Priority, fields_of, memory_mb, name_of
from outlast.schedules import CatchUp, Overlap, Schedule
from outlast.schema import Schema, check_schema
from outlast.sealed import sealed
from outlast.steps import SYSTEM
from outlast.tracing import sending

if TYPE_CHECKING:
    from outlast.escalation import Escalation
    from outlast.sync import SyncApp
    from outlast.workflow import Workflow

P = ParamSpec("P")
R = TypeVar("R")

_canonical: Final = msgspec.json.Encoder(order="sorted").encode
DEFAULT_URL: Final = "sqlite:///outlast.db"
MAX_PUBLISHED: Final = 10_000  # definitions remembered as written: one per user may be many
_TYPE: Final = re.compile(r"[\w.:/-]{1,200}")
_FIELD: Final = re.compile(r"\{(\w+)[\w.]*\}")


class Outlast:
    """An application: `app = Outlast("sqlite:///jobs.db")`, `@app.task()`, `async with app`.

    Without a URL the engine is `$OUTLAST_URL`, else `sqlite:///outlast.db`. `limits` defines what
    handlers may name, `budgets` what tasks may use of models, `queues` says which queues are shared
    fairly, `lanes` how workers share their claims between new work and retries. `keep` bounds what
    stays of ended tasks, by state (or `log`): a duration or a `Keep`; not given, it leaves what the
    engine was told before.

    With `encryption_keys` (else `$OUTLAST_ENCRYPTION_KEYS`) the engine sees no payload, result or
    error in clear: the first key encrypts, all of them read. `redact` (else `$OUTLAST_REDACT`, else
    `REDACTED`) names the fields that nobody is shown. `content` (else `$OUTLAST_CONTENT`) is the
    folder, or the store, of what handlers make that is too large for a result.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        limits: Iterable[Limit] = (),
        budgets: Iterable[Budget] = (),
        queues: Iterable[Queue] = (),
        lanes: Lanes = Lanes(),  # noqa: B008  # a value, frozen
        keep: Mapping[str, Duration | Keep] | None = None,
        encryption_keys: str | Sequence[str] | None = None,
        redact: Sequence[str] | None = None,
        content: str | Store | None = None,
    ) -> None:
        self.url = url or os.environ.get("OUTLAST_URL") or DEFAULT_URL
        self.limits: dict[str, Limit] = {limit.key: limit for limit in limits}
        """The definitions that this program knows, by key or family."""
        self.purse = Purse(budgets)
        self.queues: dict[str, Queue] = {queue.name: queue for queue in queues}
        self.lanes = lanes
        self.handlers: dict[str, Handler[..., Any]] = {}
        """What workers of this program run."""
        self.externals: dict[str, Handler[..., Any]] = {}
        """Types that others run."""
        self.schedules: dict[str, Schedule] = {}
        self.seal = Seal.of(encryption_keys or os.environ.get(SETTING, ""))
        self.redactor = Redactor(Rules(_names(redact)), self._hidden)
        content = content or os.environ.get("OUTLAST_CONTENT") or None
        self.content: Store | None = Folder(content) if isinstance(content, str) else content
        self.guard: Callable[[str], None] | None = None
        """Asked before a task of a type is made or changed here; raises when it may not be."""
        self.meter = Meter()
        """What this program counts."""
        self.publisher = Publisher(self.meter)
        self._publishing: asyncio.Task[None] | None = None
        self._keep = None if keep is None else check_keep(keep)
        self._engine: Engine | None = None
        self._entered = 0
        self._published: dict[str, Limit] = {}
        self._lock: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._target: str | None = None

    # life ----------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = sealed(connect(self.url), self.seal)
        return self._engine

    def use(self, url: str) -> None:
        """Another engine than the one given in code: flags win."""
        if self.is_open:
            raise Conflict("The app is open: choose its engine before.")
        self.url, self._engine = url, None

    def bare(self) -> Outlast:
        """An app on the same engine with no types: its keys are the same, and what it hides."""
        made = Outlast(self.url, redact=self.redactor.rules.names)
        made.seal = self.seal
        return made

    @property
    def is_open(self) -> bool:
        return self._entered > 0

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop in which the app is open."""
        return self._loop if self.is_open else None

    @property
    def target(self) -> str | None:
        """`module:name`, under which another process can import this app."""
        if self._target is None:
            self._target = target_of(self, {h.fn.__module__ for h in self.handlers.values()})
        return self._target

    @target.setter
    def target(self, target: str) -> None:
        self._target = target

    async def __aenter__(self) -> Outlast:
        check_not_importing()
        async with self._one_at_a_time():
            if not self.is_open:
                await self.engine.open()
                try:
                    await self.publish()
                except BaseException:
                    await self.engine.close()
                    raise
                self._publishing = asyncio.create_task(self.publisher.run(self.engine))
            self._entered += 1
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        async with self._one_at_a_time():
            self._entered -= 1
            if not self.is_open:
                self._published.clear()
                if self._publishing is not None:
                    self._publishing.cancel()
                    await asyncio.wait({self._publishing})
                await self.publisher.close(self.engine)
                await self.engine.close()

    def _one_at_a_time(self) -> asyncio.Lock:
        """A lock belongs to one loop; an app may be opened in another one later."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._loop is not loop:
            self._lock, self._loop = asyncio.Lock(), loop
        return self._lock

    def sync(self) -> SyncApp:
        """The same from synchronous code: `with app.sync() as q: q.enqueue(summarize, url)`."""
        from outlast.sync import SyncApp

        return SyncApp(self)

    # types ---------------------------------------------------------------------------------------

    @overload
    def task(  # type: ignore[overload-overlap]  # as in Decorator
        self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R | Again]], /
    ) -> Function[P, R, Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]]: ...

    @overload
    def task(
        self, fn: Callable[P, Coroutine[Any, Any, R | Again]], /
    ) -> Function[P, R, Callable[P, Coroutine[Any, Any, R]]]: ...

    @overload
    def task(
        self, fn: Callable[Concatenate[Context, P], R | Again], /
    ) -> Function[P, R, Callable[Concatenate[Context, P], R]]: ...

    @overload
    def task(
        self, fn: Callable[Concatenate[SyncContext, P], R | Again], /
    ) -> Function[P, R, Callable[Concatenate[SyncContext, P], R]]: ...

    @overload
    def task(self, fn: Callable[P, R | Again], /) -> Function[P, R, Callable[P, R]]: ...

    @overload
    def task(self, **options: Unpack[TaskArgs]) -> Decorator: ...

    def task(  # type: ignore[misc]  # mypy does not see an unpacked TypedDict in **options
        self, fn: Callable[..., Any] | None = None, /, **options: Any
    ) -> object:
        """A function as the handler of a task type, called like it unless `name=` says otherwise.

        `async def` runs in the worker's loop, `def` in a thread, either with `isolate=True` in a
        child process that can be killed and, with `memory="512MB"`, bounded. With `every=` (a cron
        expression or a span, in the zone `tz=`) it has a schedule of the same name.
        """

        def decorate(fn: Callable[..., Any]) -> Function[..., Any, Any]:
            told = dict(options)
            type = _check_type(told.pop("name", getattr(fn, "__name__", "")))
            isolate, memory = told.pop("isolate", False), told.pop("memory", None)
            if memory is not None and not isolate:
                raise BadInput(f"{type}: memory= bounds a child process: add isolate=True.")
            every, tz = told.pop("every", None), told.pop("tz", "UTC")
            mode: Mode = "async" if inspect.iscoroutinefunction(fn) else "thread"
            handler: Function[..., Any, Any] = Function(
                self,
                type,
                fn,
                mode="process" if isolate else mode,
                memory_mb=None if memory is None else memory_mb(memory),
                **_shared(told),
            )
            self._add(self.handlers, handler)
            functools.update_wrapper(handler, fn, updated=())
            if every is not None:
                self.schedule(type, handler, every=every, tz=tz)
            return handler

        return decorate if fn is None else decorate(fn)

    def schedule(
        self,
        name: str,
        task: Handler[..., Any],
        payload: Payload | None = None,
        *,
        every: Duration | datetime,
        tz: str = "UTC",
        catch_up: CatchUp = "latest",
        overlap: Overlap = "allow",
        jitter: Duration = 0,
        **options: Unpack[Options],
    ) -> Schedule:
        """Enqueue a task by the clock: `app.schedule("nightly", report, every="0 3 * * *")`.

        `every` is a cron expression in the zone `tz`, a span, or one moment. It begins with the
        first worker that is started with it, and ends with the first that is started without it.
        """
        if name in self.schedules:
            raise BadInput(f"There is a schedule {name!r} already; choose another name.")
        told = payload or {}
        task.options(**options).accept(told)
        made = schedules.schedule_of(
            name, task.type, told, every=every, tz=tz, catch_up=catch_up, overlap=overlap,
            jitter=jitter, options=options,
        )  # fmt: skip
        self.schedules[name] = made
        return made

    def workflow(
        self, name: str, *, escalate: Sequence[Escalation] = (), **options: Unpack[Options]
    ) -> Workflow:
        """A graph of tasks: `async with app.workflow("ingest") as flow: flow.add(fetch, url)`.

        `escalate` are rules for when it goes wrong or takes too long.
        """
        from outlast.workflow import Workflow

        return Workflow(self, name, options, escalate)

    def register(
        self, handler: ClassHandler, **options: Unpack[RegisterArgs]
    ) -> Handler[..., object]:
        """An object with `task_type` and `execute(payload, progress)` as a handler."""
        execute, type = handler.execute, _check_type(handler.task_type)
        run: Callable[..., object]
        if inspect.iscoroutinefunction(execute):

            async def run(ctx: Context, /, **payload: object) -> object:
                return await execute(payload, ctx.progress)

        else:

            def run(ctx: Context, /, **payload: object) -> object:
                return execute(payload, ctx.progress)

        run.__name__, run.__doc__ = type, inspect.getdoc(handler)
        gates: Callable[[Payload], Sequence[Gate]] | None = getattr(handler, "limits_for", None)
        told = dict(options) if gates is None else {"limits": gates, **options}
        mode: Mode = "async" if inspect.iscoroutinefunction(execute) else "thread"
        made: Handler[..., object] = Handler(self, type, run, mode=mode, **_shared(told))
        return self._add(self.handlers, made)

    def command(
        self, name: str, argv: Sequence[str], **options: Unpack[RegisterArgs]
    ) -> Handler[..., dict[str, object]]:
        """A command line as a handler: `app.command("thumb", ["convert", "{src}", "{dst}"])`.

        Fields in braces are taken from the payload, each into its one argument: no shell reads
        them. The whole payload comes as JSON on standard input. The result has `exit_code`,
        `stdout`, `stderr`, and `json` when the output is JSON.
        """
        type = _check_type(name)
        if isinstance(argv, str) or not argv or not all(isinstance(part, str) for part in argv):
            raise BadInput(f"{name}: argv is a list of texts, as in ['convert', '{{src}}'].")
        made: Handler[..., dict[str, object]] = Handler(
            self,
            type,
            _command_stub(type, argv),
            mode="command",
            command=tuple(argv),
            **_shared(dict(options)),
        )
        return self._add(self.handlers, made)

    def external(
        self, name: str, *, schema: Schema | None = None, **options: Unpack[RegisterArgs]
    ) -> Handler[..., object]:
        """A type that others run: workers in other programs or languages.

        A payload must fit `schema` (JSON Schema, the common keywords).
        """
        if schema is not None:
            check_schema(schema)
        type = _check_type(name)
        made: Handler[..., object] = Handler(
            self,
            type,
            _external_stub(type),
            mode="external",
            schema=schema,
            **_shared(dict(options)),
        )
        return self._add(self.externals, made)

    @functools.cached_property
    def builtins(self) -> dict[str, Handler[..., Any]]:
        """What workers of every program run."""
        from outlast.builtin import builtins

        return builtins(self)

    def builtin(self, type: str, fn: Callable[..., Any], **options: Any) -> Handler[..., Any]:
        """A type of Outlast's own, which is not listed among the app's."""
        return Handler(self, type, fn, mode="async", **_shared({"queue": SYSTEM, **options}))

    def handler(self, type: str) -> Handler[..., Any] | None:
        """What workers of this program do with a type."""
        return self.handlers.get(type) or self.builtins.get(type)

    def find(self, type: str) -> Handler[..., Any] | None:
        """The handler or the declaration of a type."""
        return self.handler(type) or self.externals.get(type)

    def check(self, type: str) -> None:
        """Raise what the guard does, when whoever is at work may not make or change such a task."""
        if self.guard is not None:
            self.guard(type)

    async def known(self, type: str) -> Handler[..., Any]:
        """The same, or what live workers announce; `UnknownType` when nobody knows it."""
        return self.find(type) or await self._announced(type)

    def _hidden(self, type: str) -> Hidden:
        handler = self.find(type)
        return Hidden() if handler is None else handler.hidden

    # tasks ---------------------------------------------------------------------------------------

    async def enqueue(self, calls: Iterable[Call[R]], *, within: object = None) -> list[Handle[R]]:
        """Hand over many calls in one step: all of them or none."""
        batch = list(calls)
        self._check_open()
        for call in batch:
            self.check(call.task.type)  # which may have been prepared by somebody else
            if call.limits:
                await self.define(call.limits)
            if call.within is not None:
                if len(batch) > 1:
                    raise BadInput("Give within= to app.enqueue(…): a batch is one step.")
                within = call.within
        if not batch:
            return []
        made = [call.task for call in batch]
        if within is None:
            await self.purse.refresh(self.engine)
        carried = self.purse.carried(made)
        if within is None:
            await self.purse.admit(self.engine, carried)
        with sending(carried) as tasks:
            receipts = await self.engine.enqueue(tasks, within=within)
        self.meter.enqueued(tasks, receipts)
        tasklog.created(tasks, receipts)
        for call, receipt in zip(batch, receipts, strict=True):
            if call.task.digest is not None and receipt.digest not in (None, call.task.digest):
                raise Mismatch(
                    f"The Idempotency-Key of {call.task.type!r} was used for another request."
                )
        return [Handle(self, receipt.id, existing=receipt.existing) for receipt in receipts]

    async def prepare(
        self,
        type: str,
        payload: Payload | Json,
        *,
        idempotency_key: str | None = None,
        usual: Priority | None = None,
        **options: Unpack[Options],
    ) -> Call[object]:
        """A call by type name, as HTTP and the command line make it, checked in full. `usual` is
        the priority of whoever asks, for types that name none."""
        handler = await self.known(type)
        if usual is not None and handler.priority is None:
            handler = handler.options(priority=usual)
        call: Call[object] = handler.options(**options).accept(payload)
        if idempotency_key is None:
            return call
        if call.task.unique_key is not None:
            raise BadInput("Give unique_key or an Idempotency-Key, not both.", field="unique_key")
        key = name_of(idempotency_key, "Idempotency-Key")
        # Sorted: the same request, written by a client that keeps no order of keys, stays the same.
        said = {"type": type, **options, "after": call.task.after, "within": None}
        told = _canonical((said, msgspec.json.decode(call.task.payload)))
        task = msgspec.structs.replace(
            call.task,
            unique_key=f"idempotency:{key}",
            unique_for_ms=IDEMPOTENT_MS,
            digest=hashlib.sha256(told).hexdigest(),
        )
        return msgspec.structs.replace(call, task=task)

    async def submit(
        self,
        type: str,
        payload: Payload | Json,
        *,
        idempotency_key: str | None = None,
        usual: Priority | None = None,
        **options: Unpack[Options],
    ) -> Handle[object]:
        """Enqueue by type name; the handle tells whether the task was there already."""
        self._check_open()
        call = await self.prepare(
            type, payload, idempotency_key=idempotency_key, usual=usual, **options
        )
        [handle] = await self.enqueue([call])
        return handle

    @overload
    def handle(self, id: str) -> Handle[object]: ...

    @overload
    def handle(self, id: str, of: Handler[..., R]) -> Handle[R]: ...

    def handle(self, id: str, of: Handler[..., Any] | None = None) -> Handle[Any]:
        """The handle of a task that exists; `of=summarize` tells type checkers its result."""
        return Handle(self, check_id(id))

    # definitions ---------------------------------------------------------------------------------

    async def publish(self) -> None:
        """Write the definitions that code gives, where people have not set others."""
        self._published = dict(self.limits)
        caps = {limit.key: limit for b in self.purse.given.values() for limit in b.limits}
        limits = {**self.limits, **caps}
        await publish(self.engine, "limit", {k: v.to_json() for k, v in limits.items()})
        given = {key: budget.to_json() for key, budget in self.purse.given.items()}
        await publish(self.engine, "budget", given)
        await self.purse.refresh(self.engine, now=True)
        if self._keep is not None:
            rules = {state: keep.to_json() for state, keep in self._keep.items()}
            await publish(self.engine, "retention", rules, exact=True)
        await schedules.publish(self)

    async def define(self, limits: Sequence[Limit]) -> None:
        """Definitions that handlers give together with a payload; written when they are new."""
        new = {limit.key: limit for limit in limits if self._published.get(limit.key) != limit}
        if new:
            await publish(self.engine, "limit", {k: v.to_json() for k, v in new.items()})
            if len(self._published) > MAX_PUBLISHED:
                self._published.clear()
            self._published |= new

    async def _announced(self, type: str) -> Handler[..., Any]:
        """A type that only live workers know: its payload is accepted as it is, its queue is one
        that they serve."""
        alive = [worker.info for worker in await self.engine.workers() if worker.alive]
        queues = [queue for info in alive if type in info.types for queue in info.queues]
        known = {name for info in alive for name in info.types}
        if type not in known:
            raise UnknownType(type, known | self.handlers.keys() | self.externals.keys())
        queue = "default" if "default" in queues or not queues else queues[0]
        told = _shared({"queue": queue})
        return Handler(self, type, _external_stub(type), mode="external", **told)

    def _check_open(self) -> None:
        if not self.is_open:
            raise OutlastError("The app is not open: do this inside `async with app:`.")

    def _add(self, known: dict[str, Handler[..., Any]], handler: Handler[P, R]) -> Handler[P, R]:
        if self.find(handler.type) is not None:
            raise BadInput(f"Type {handler.type!r} is registered already; choose another name=.")
        known[handler.type] = handler
        return handler


class _Shared(TypedDict):
    retry: Retry
    fields: Mapping[str, object]
    gates: Gates
    search: Sequence[str]


def _shared(options: dict[str, Any]) -> _Shared:
    """What every kind of handler may be given; the rest are defaults of its tasks."""
    retry, gates = options.pop("retry", None), options.pop("limits", ())
    search = options.pop("search", ())
    if isinstance(search, str) or isinstance(gates, str):
        raise BadInput("search= and limits= are lists of texts, as in search=['user'].")
    policy = Retry(retry) if isinstance(retry, str) else retry
    if policy is not None and not isinstance(policy, Retry):
        raise BadInput(f"retry={policy!r}: give Retry(…) or a schedule such as '5s 30s 2m'.")
    fields = fields_of(options)
    return {"retry": policy or Retry(), "fields": fields, "gates": gates, "search": search}


def _check_type(name: str) -> str:
    if not isinstance(name, str) or not _TYPE.fullmatch(name):
        raise BadInput(
            f"{name!r} is no name for a type: letters, digits and . : / _ - are, up to 200 of them;"
            " give name=…"
        )
    return name


def _names(redact: Sequence[str] | None) -> Sequence[str]:
    """The fields that are redacted: by code, else by the environment, else as usual."""
    if isinstance(redact, str):
        raise BadInput("redact= is a list of names, as in redact=['password'].", field="redact")
    if redact is not None:
        return redact
    given = os.environ.get("OUTLAST_REDACT")
    return REDACTED if given is None else [n for n in map(str.strip, given.split(",")) if n]


def _command_stub(type: str, argv: Sequence[str]) -> Callable[..., object]:
    """A function with the parameters that a command line names, for its signature."""

    def run(**payload: object) -> dict[str, object]:
        raise OutlastError(f"{type!r} is a command line: it runs in a worker.")

    names = dict.fromkeys(name for part in argv for name in _FIELD.findall(part))
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    rest = inspect.Parameter("payload", inspect.Parameter.VAR_KEYWORD)
    run.__name__ = type
    run.__signature__ = inspect.Signature([*parameters, rest])  # type: ignore[attr-defined]
    return run


def _external_stub(type: str) -> Callable[..., object]:
    def run(**payload: object) -> object:
        raise OutlastError(f"{type!r} is run by workers of another program.")

    run.__name__ = type
    return run
