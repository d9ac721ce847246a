"""Durable steps: what a handler remembers over its attempts, and how it waits without a worker.

A handler that is tried again runs from its first line; each step that was finished before gives
back what it gave then, and is not run. A wait ends the attempt: `Suspended` passes through the
handler, the worker parks the task (on a time, a signal, or its children), and when that is over
the handler runs again, up to the line where it waited.

Every part has a key, unique in its task: the name of a step as it is; sleeps, waits, calls and
changes behind a colon, which no name may begin with. Those without a name are numbered, each branch
of `gather` for itself, so that it makes no difference which branch is faster. What was stored and
is not asked for again shows that the code is another than the one that stored it: an error.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from outlast.core.codec import Signature, dumps, loads
from outlast.core.durations import Duration, show_ms, to_ms
from outlast.core.errors import BadInput, Permanent, TaskCancelled, TaskDead
from outlast.core.ids import id_for
from outlast.core.model import Json, Lease, NewEvent, NewTask, Step, Task, TaskId
from outlast.core.redact import hidden_by
from outlast.core.secret import Path
from outlast.core.states import FINAL, Ms
from outlast.dataflow import result_in
from outlast.origin import origin_of

if TYPE_CHECKING:
    from outlast.handler import Call

T = TypeVar("T")

SYSTEM: Final = "outlast"
"""The queue of Outlast's own types; every worker serves it."""
MAX_BUDGET: Final = 1_000_000
UNDO: Final = "undo"
"""The tag of tasks that undo, and the signal that those of steps are held by."""
UNDO_TYPE: Final = "outlast.undo"
ANSWER: Final = "answer:"
"""Signals that answer a question begin with it."""
NOTHING: Final = object()
MAX_NAME: Final = 200
MAX_STEPS: Final = 10_000
END: Final = ":end"
"""Behind the key of a wait or a call: how it ended."""

SECRET: Final = "$secret"  # noqa: S105  # the name of a field

_branch: ContextVar[str] = ContextVar("outlast_branch", default="")
"""The branch of `gather` that this code is in: `2.0.` is the first one of the second `gather`."""
# What is kept of ends may be a little larger than the result that it holds: not `dumps`, `loads`.
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
_MARK: Final = SECRET.encode()


class Wait(Struct, frozen=True, kw_only=True):
    """What an attempt that suspends itself leaves behind."""

    until: Ms | None = None
    signal: str | None = None
    awaits: int = 1
    """How many signals of that name must have come in all."""
    after: tuple[TaskId, ...] = ()
    steps: tuple[Step, ...] = ()
    spawn: tuple[NewTask, ...] = ()
    limits: tuple[dict[str, object], ...] = ()
    """Definitions that the limits of those to spawn bring along."""
    events: tuple[NewEvent, ...] = ()
    asks: tuple[Json, ...] = ()
    """What people are asked from now on."""
    asked: tuple[Json, ...] = ()
    """All that people are asked now: of these, whoever looks at the task sees the first."""


class _Kept(Struct, frozen=True, forbid_unknown_fields=True):
    """What a step gave that has secrets, and where they are: whoever shows it knows no handler."""

    paths: tuple[Path, ...] = msgspec.field(name=SECRET)
    value: Raw


def kept(data: Json, secret: tuple[Path, ...]) -> Json:
    """What is stored of what a step gave."""
    if not secret and _MARK not in data:
        return data
    return _encode(_Kept(secret, Raw(data)))


def given(stored: Json) -> tuple[Json, tuple[Path, ...]]:
    """What a step gave, and where its secrets are."""
    if _MARK not in stored:
        return stored, ()
    try:
        told = _decode_kept(stored)
    except msgspec.ValidationError:  # stored before secrets were told, and only looks like it
        return stored, ()
    return bytes(told.value), told.paths


_decode_kept: Final = msgspec.json.Decoder(_Kept).decode


class Suspended(BaseException):
    """The attempt ends here and the task waits. Let it pass; not an error, hence no Exception."""

    def __init__(self, wait: Wait) -> None:
        super().__init__("the task waits")
        self.wait = wait


class StepsChanged(Permanent):
    """The handler no longer takes the steps that an earlier attempt has stored."""

    code = "steps_changed"


class StepsUndone(Permanent):
    """The task had died or was cancelled, and what it had done was undone: it cannot go on."""

    code = "undone"


class SignalTimeout(TimeoutError):
    """No signal came in time. It is remembered: a later attempt sees the same."""


class Line(Protocol):
    """What durable parts ask of whoever runs the attempt."""

    @property
    def now(self) -> Ms: ...

    def record(self, steps: tuple[Step, ...], spawn: tuple[NewTask, ...] = ()) -> Awaitable[None]:
        """Store it; done when it is stored, `LeaseLost` when the attempt is not the current one."""

    @property
    def home(self) -> asyncio.Task[Any] | None:
        """The task of the event loop that the handler runs in; None where there is no loop."""

    def look(self, task_id: TaskId) -> Awaitable[Task | None]:
        """The record of another task, if there is one."""

    def aside(self, fn: Callable[[], T]) -> Awaitable[T]:
        """Run plain code where it blocks nobody."""


class Steps:
    """The durable parts of one attempt. All coroutines; in a thread `at_once` drives them."""

    def __init__(self, lease: Lease, line: Line) -> None:
        self._lease = lease
        self._line = line
        origin = origin_of(lease.meta)
        kept = lease.steps if origin is None else (*origin.carried, *lease.steps)
        self._stored = {step.key: step.value for step in kept}
        self._unseen = dict.fromkeys(self._stored)
        self._used: set[str] = set()
        self._count: Counter[str] = Counter()
        self._taken = _taken(self._stored)
        self._with_undo = any(key.startswith(":undo:") for key in self._stored)
        self._busy = 0

    async def step(
        self,
        name: str,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        undo: Callable[[], Call[Any]] | None = None,
    ) -> Any:
        key = await self._begin(_checked(name))
        codec = _codec(fn)
        intended = self._recall(f":undo:{name}")
        if (found := self._recall(key)) is None:
            await self._unchanged(f"the step {name!r}")
            if undo is not None and intended is None:
                await self._intend(name, undo().task)
            self._busy += 1
            try:
                result = await self._call(fn, args, kwargs)
            finally:
                self._busy -= 1
            found = kept(codec.encode_result(result, f"the step {name!r}"), codec.returned_secrets)
            await self._line.record((Step(key, found),))
        # Also what was just made is read back: a later attempt gets the very same.
        return codec.decode_result(given(found)[0])

    async def _intend(self, name: str, undo: NewTask) -> None:
        """Before a step with an undo: enqueue the undo, held, and the task that decides about it.

        So a step that was begun and not finished, because the process died, is undone too.
        """
        lease = self._lease
        held = replace(
            self._child(undo),
            hold=UNDO,
            tags=(*undo.tags, UNDO),
            # It is this step's and no other's, and may have to wait for as long as the task does.
            **dict.fromkeys(("unique_key", "unique_for_ms", "max_age_ms", "overdue_after_ms")),
        )
        end = NewTask(
            id=self._decider,
            type=UNDO_TYPE,
            payload=dumps({"task": lease.id}),
            queue=SYSTEM,
            after=(lease.id,),
            needs="any",
            max_losses=MAX_BUDGET,
        )
        told = Step(f":undo:{name}", dumps(held.id))
        await self._line.record((told,), (held, self._child(end)))

    async def sleep(self, span: Duration) -> None:
        key = await self._begin(self._numbered("sleep"))
        if (found := self._recall(key)) is not None:
            until: Ms = loads(found)
            if self._line.now < until:
                raise Suspended(Wait(until=until))
            return
        await self._unchanged(f"a sleep of {show_ms(to_ms(span))}")
        until = self._line.now + to_ms(span)
        raise Suspended(Wait(until=until, steps=(Step(key, dumps(until)),)))

    async def ask(
        self,
        question: str,
        action: object,
        timeout: Duration | None,  # noqa: ASYNC109
        default: Any,
    ) -> Any:
        signal = f"{ANSWER}{self._next('ask')}"
        about = {"question": question, "action": action, "signal": signal}
        try:
            return await self.wait_for(signal, timeout, about)
        except SignalTimeout:
            if default is NOTHING:
                raise
            return default

    async def wait_for(
        self,
        signal: str,
        timeout: Duration | None,  # noqa: ASYNC109
        about: Mapping[str, object] | None = None,
    ) -> Any:
        key = await self._begin(self._numbered(f"wait:{_checked(signal)}"))
        begun, ended = self._recall(key), self._recall(key + END)
        if ended is not None:
            return _received(signal, ended)
        now = self._line.now
        until: Ms | None
        if begun is None:
            await self._unchanged(f"the wait for {signal!r}")
            until = None if timeout is None else now + to_ms(timeout)
        else:
            until = loads(begun)
        came = [told for told in self._lease.inbox if told.name == signal]
        taken = self._taken.setdefault(signal, set())
        for n, told in enumerate(came):
            # Each signal is for one wait, and which one is stored: it is so in every attempt.
            if n not in taken and (until is None or told.at <= until):
                taken.add(n)
                return await self._end_wait(key, signal, _encode({"n": n, "data": Raw(told.data)}))
        if begun is not None and until is not None and now >= until:
            return await self._end_wait(key, signal, b"null")
        asked = () if about is None else (dumps({**about, "deadline": until}, "question"),)
        raise Suspended(
            Wait(
                until=until,
                signal=signal,
                awaits=len(came) + 1,
                steps=(Step(key, dumps(until)),) if begun is None else (),
                asks=asked if begun is None else (),
                asked=asked,
            )
        )

    async def _end_wait(self, key: str, signal: str, end: Json) -> Any:
        await self._line.record((Step(key + END, end),))
        return _received(signal, end)

    async def call(self, make: Callable[[], Call[Any]], type: str, codec: Signature) -> Any:
        key = await self._begin(self._numbered(f"call:{type}"))
        begun, ended = self._recall(key), self._recall(key + END)
        if ended is not None:
            return _outcome(_decode(given(ended)[0]), codec)
        if begun is None:
            await self._unchanged(f"the call of {type}")
            made = make()
            if made.task.unique_key is not None:
                raise BadInput(
                    f"ctx.call({type}): a unique_key would give it a task of somebody else. What is"
                    " called is a task of its own, made once: leave it out.",
                    field="unique_key",
                )
            child = self._child(made.task)
            raise Suspended(
                Wait(
                    after=(child.id,),
                    steps=(Step(key, dumps(child.id)),),
                    spawn=(child,),
                    limits=tuple(limit.to_json() for limit in made.limits),
                )
            )
        child_id: TaskId = loads(begun)
        task = await self._line.look(child_id)
        if task is None:
            raise Permanent(
                f"The task {child_id} of type {type}, which {self._lease.type} has called, was"
                " deleted before its result was read: keep ended tasks for longer, or do not delete"
                " what others wait for."
            )
        if task.state not in FINAL:
            raise Suspended(Wait(after=(child_id,)))
        told = {"id": task.id, "state": task.state, "reason": task.reason}
        told |= {"result": result_in(task)} if task.state == "completed" else {}
        told |= {"error": loads(task.error)} if task.state == "dead" and task.error else {}
        secret = tuple(("result", *path) for path in hidden_by(task.meta).result)
        await self._line.record((Step(key + END, kept(_encode(told), secret)),))
        return _outcome(told, codec)

    async def gather(self, parts: Iterable[Awaitable[Any] | Callable[[], Any]]) -> list[Any]:
        """All of them; when some wait, the task waits for all that do at once."""
        here = self._next("gather")
        self._busy += 1
        try:
            branches = (_caught(part, f"{here}.{n}.") for n, part in enumerate(parts))
            ends = await asyncio.gather(*branches)
        finally:
            self._busy -= 1
        return _together(ends)

    def gather_at_once(self, parts: Iterable[Callable[[], Any]]) -> list[Any]:
        """The same in a thread: one after the other, but they wait together."""
        here = self._next("gather")
        self._busy += 1
        try:
            branches = (_caught(part, f"{here}.{n}.") for n, part in enumerate(parts))
            return _together([at_once(branch) for branch in branches])
        finally:
            self._busy -= 1

    def suspend_once(self, name: str, wait: Wait, value: object = True) -> None:
        """Suspend when an attempt comes here for the first time; go on when one comes again."""
        key = self._use(f":{name}")
        if self._recall(key) is None:
            raise Suspended(replace(wait, steps=(Step(key, _encode(value)), *wait.steps)))

    def remembered(self, name: str) -> Any:
        """The value that an earlier attempt suspended itself with; None if none has."""
        found = self._stored.get(f":{name}")
        return None if found is None else _decode(found)

    def suspended_before(self, name: str) -> bool:
        """Has an earlier attempt suspended itself under this name?"""
        return self._recall(f":{name}") is not None

    async def changed(self, name: str) -> bool:
        key = await self._begin(f":changed:{_checked(name)}")
        if (found := self._recall(key)) is None:
            # Either answer is stored: what is unseen now may be seen by then.
            found = b"false" if self._unseen else b"true"
            await self._line.record((Step(key, found),))
        return found == b"true"

    def retired(self, names: Iterable[str]) -> None:
        for name in names:
            for key in (name, f":undo:{name}", f":changed:{name}"):
                self._unseen.pop(key, None)

    # in detail -----------------------------------------------------------------------------------

    async def _begin(self, key: str) -> str:
        """A part begins, of a task whose steps were not undone."""
        if self._with_undo:
            self._with_undo = False  # looked at once in an attempt
            decider = await self._line.look(self._decider)
            if decider is None or decider.number:
                raise StepsUndone(
                    f"The steps of this {self._lease.type} were undone when it had ended; what they"
                    " gave is no longer so. Enqueue a new task, or rerun this one."
                )
        return self._use(key)

    @property
    def _decider(self) -> TaskId:
        """The task that decides, when this one is over, whether its steps are to be undone. It is
        claimed only then, so its first claim tells that it may have."""
        return id_for(self._lease.created_at, f"{self._lease.id} undo")

    def _use(self, key: str) -> str:
        if key in self._used:
            raise Permanent(
                f"The step {key!r} is there twice in one attempt at {self._lease.type}. A step is"
                " remembered by its name: give each its own, in a loop for example f'page {n}'."
            )
        if len(self._used) >= MAX_STEPS:
            raise Permanent(
                f"{self._lease.type} takes more than {MAX_STEPS:,} steps. Each attempt gets all of"
                " them back: do several things in one step, or call other tasks."
            )
        self._used.add(key)
        return key

    def _next(self, kind: str) -> str:
        """The number of the next part of a kind, in this branch."""
        branch = _branch.get()
        self._count[branch + kind] += 1
        return f"{branch}{self._count[branch + kind]}"

    def _numbered(self, kind: str) -> str:
        return f":{kind}:{self._next(kind)}"

    def _recall(self, key: str) -> Json | None:
        self._unseen.pop(key, None)
        return self._stored.get(key)

    async def _unchanged(self, what: str) -> None:
        """Something new begins: what was stored must have been asked for, or the code changed.

        Parts that run side by side may come in another order than before. So while one of them is
        at work nothing is said, nor by what the handler has put into tasks of the loop.
        """
        for _ in range(3):
            if self._busy or not self._unseen or self._is_beside():
                return
            await asyncio.sleep(0)
        if self._busy or not self._unseen:
            return
        raise StepsChanged(
            f"{self._lease.type} began {what}, but an earlier attempt has stored"
            f" {', '.join(map(repr, list(self._unseen)[:3]))}, which this one has not asked for."
            " The code was changed while the task was under way: keep the old order and names,"
            " branch with `await ctx.changed('name')`, or name what is gone with ctx.retired(…)."
        )

    def _is_beside(self) -> bool:
        try:
            return asyncio.current_task() is not self._line.home
        except RuntimeError:  # a thread: there is no other
            return False

    async def _call(
        self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        fn = getattr(fn, "fn", fn)  # of a handler, its plain function
        if inspect.iscoroutinefunction(_inner(fn)):
            return await fn(*args, **kwargs)
        result = await self._line.aside(partial(fn, *args, **kwargs))
        return await result if inspect.isawaitable(result) else result

    def _child(self, task: NewTask) -> NewTask:
        """It belongs to whom we belong to, and is as urgent as we are."""
        lease = self._lease
        return replace(
            task,
            parent_id=lease.id,
            workflow_id=task.workflow_id or lease.workflow_id,
            session_id=task.session_id or lease.session_id,
            user_id=task.user_id or lease.user_id,
            priority=min(task.priority, lease.priority),
        )


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine that never really waits, without an event loop."""
    try:
        while True:
            work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        work.close()


async def _caught(part: Awaitable[Any] | Callable[[], Any], branch: str) -> Any:
    """What it gives, or the `Suspended` or error that it ends with."""
    before = _branch.set(branch)
    try:
        value = part() if callable(part) else part
        return await value if inspect.isawaitable(value) else value
    except (Exception, Suspended) as end:
        return _End(end)
    finally:
        _branch.reset(before)


class _End(Struct):
    error: Exception | Suspended


def _together(ends: Sequence[Any]) -> list[Any]:
    errors = [end.error for end in ends if isinstance(end, _End)]
    for error in errors:
        if not isinstance(error, Suspended):
            raise error
    waits = [error.wait for error in errors if isinstance(error, Suspended)]
    if waits:
        raise Suspended(_all_of(waits))
    return list(ends)


def _all_of(waits: Sequence[Wait]) -> Wait:
    """A task waits for one thing at a time: for its children first, then for a signal, at most for
    as long as all the others allow. Whatever else is awaited is looked at again after that."""
    after = tuple(dict.fromkeys(id for wait in waits for id in wait.after))
    until = min((wait.until for wait in waits if wait.until is not None), default=None)
    # A person's first: whoever looks at the task sees what is asked, and that is what wakes it.
    signals = sorted((wait for wait in waits if wait.signal), key=lambda wait: not wait.asked)
    if after:
        chosen = Wait(after=after)
    else:
        chosen = replace(signals[0] if signals else waits[0], until=until)
    return replace(
        chosen,
        steps=tuple(step for wait in waits for step in wait.steps),
        spawn=tuple(task for wait in waits for task in wait.spawn),
        limits=tuple(limit for wait in waits for limit in wait.limits),
        asks=tuple(question for wait in waits for question in wait.asks),
        asked=tuple(question for wait in waits for question in wait.asked),
    )


def _taken(stored: Mapping[str, Json]) -> dict[str, set[int]]:
    """Which signals of the inbox, by name and number, earlier waits have had."""
    found: dict[str, set[int]] = {}
    for key, value in stored.items():
        if key.startswith(":wait:") and key.endswith(END):
            signal = key[len(":wait:") : -len(END)].rpartition(":")[0]
            if (told := _decode(value)) is not None:
                found.setdefault(signal, set()).add(told["n"])
    return found


def _received(signal: str, end: Json) -> Any:
    """The data of the signal that ended a wait."""
    told = _decode(end)
    if told is None:
        raise SignalTimeout(f"No signal {signal!r} came in time.")
    return told["data"]


def _outcome(told: Mapping[str, Any], codec: Signature) -> Any:
    if told["state"] == "dead":
        raise TaskDead(told["id"], told["reason"], told.get("error"))
    if told["state"] == "cancelled":
        raise TaskCancelled(told["id"], told["reason"])
    return codec.decode_result(_encode(told["result"]))


def _checked(name: str) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or name.startswith(":"):
        raise BadInput(
            f"{name!r} is no name for a step or signal: text of up to {MAX_NAME} letters that does"
            " not begin with a colon."
        )
    return name


def _inner(fn: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(fn, partial):
        fn = fn.func
    return fn


def _codec(fn: Callable[..., Any]) -> Signature:
    """How the result of a function becomes JSON and back, by its annotation."""
    fn = _inner(getattr(fn, "fn", fn))
    try:
        wanted = get_type_hints(fn, include_extras=True).get("return", Any)
    except (NameError, TypeError, AttributeError):
        wanted = Any
    if not inspect.iscoroutinefunction(fn) and _is_awaitable(wanted):
        wanted = (get_args(wanted) or (Any,))[-1]
    try:
        return _codec_of(wanted)
    except TypeError:  # an annotation that cannot be hashed
        return _codec_of.__wrapped__(wanted)


def _is_awaitable(annotation: Any) -> bool:
    origin = getattr(annotation, "__origin__", annotation)
    return isinstance(origin, type) and issubclass(origin, Awaitable)


@lru_cache(maxsize=1_000)
def _codec_of(annotation: Any) -> Signature:
    def step() -> NoReturn:
        raise NotImplementedError

    step.__annotations__ = {"return": annotation}
    return Signature.of(step)
