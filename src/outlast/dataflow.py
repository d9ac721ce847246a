"""Data flow between tasks: an argument, or a condition, that is another task's result.

`node.out` stands for the result of a task that has not run yet; `node.out.words` or
`node.out["words"]` for a part of it, `node.out.words > 100` for a condition. In a payload such a
reference is `{"$out": <id>, "path": […]}`; which tasks a payload refers to, and what must hold for
it to run, is in the task's `meta`. The worker that takes the task puts the values in.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from outlast.core.codec import MAX_BYTES, dumps, loads
from outlast.core.errors import Permanent
from outlast.core.model import Json, Lease, Task, TaskId, TaskQuery
from outlast.core.redact import Hidden, hidden_by, hiding, places_below
from outlast.core.seal import readable
from outlast.core.secret import Path
from outlast.engine import Engine

OUT: Final = "$out"
SKIPPED: Final = "skipped"
"""The reason of a task that was cancelled because its condition did not hold."""
MAX_FILLED: Final = 8 * MAX_BYTES
"""What the arguments of a task may amount to once results are put in."""
_PAGE: Final = 500

_TESTS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Skipped(BaseException):
    """A task has nothing to do, since its condition does not hold: it is cancelled as such."""

    def __init__(self, reason: str = SKIPPED) -> None:
        super().__init__(reason)
        self.reason = reason


class Condition(Struct, frozen=True):
    """What must hold for a task to run: a reference compared to a value, or (`is`) its truth."""

    ref: dict[str, Any]
    test: str = "is"
    value: Any = None

    def holds(self, found: object) -> bool:
        if self.test == "is":
            return bool(found)
        try:
            return bool(_TESTS[self.test](found, self.value))
        except TypeError:  # such as a text compared with a number, or with nothing
            return False


class Out:
    """The result of a task to come, or a part of it. (Type checkers see the result's type.)"""

    __slots__ = ("_path", "_task")

    def __init__(self, task: TaskId, path: tuple[str | int, ...] = ()) -> None:
        self._task = task
        self._path = path

    def __getattr__(self, name: str) -> Out:
        if name.startswith("__"):  # what Python itself asks for
            raise AttributeError(name)
        return Out(self._task, (*self._path, name))

    def __getitem__(self, key: str | int) -> Out:
        return Out(self._task, (*self._path, key))

    def __bool__(self) -> bool:
        raise TypeError("A result that is not there yet is neither true nor false: use when=.")

    def __iter__(self) -> Any:
        raise TypeError("A result that is not there yet cannot be gone through: use flow.map(…).")

    def __hash__(self) -> int:
        return hash((self._task, self._path))

    def __eq__(self, other: object) -> Condition:  # type: ignore[override]
        return Condition(_ref(self), "==", other)

    def __ne__(self, other: object) -> Condition:  # type: ignore[override]
        return Condition(_ref(self), "!=", other)

    def __lt__(self, other: object) -> Condition:
        return Condition(_ref(self), "<", other)

    def __le__(self, other: object) -> Condition:
        return Condition(_ref(self), "<=", other)

    def __gt__(self, other: object) -> Condition:
        return Condition(_ref(self), ">", other)

    def __ge__(self, other: object) -> Condition:
        return Condition(_ref(self), ">=", other)


def condition_of(when: object) -> Condition:
    """What was given as `when=`: a comparison, or a result that must be true."""
    if isinstance(when, Condition):
        if isinstance(when.value, Out):
            raise TypeError("when= compares a result with a value that is known, not with another.")
        return when
    if isinstance(when, Out):
        return Condition(_ref(when))
    raise TypeError("when= takes a result of the workflow, or a comparison with one.")


def _ref(out: Out) -> dict[str, Any]:
    return {OUT: out._task, "path": list(out._path)}


def referring(value: object, found: set[TaskId]) -> object:
    """The value with references in place of results to come, whose tasks are put into `found`."""
    if isinstance(value, Out):
        found.add(value._task)
        return _ref(value)
    if isinstance(value, Mapping):
        return {key: referring(part, found) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [referring(part, found) for part in value]
    return value


def redirected(value: Any, ids: Mapping[TaskId, TaskId]) -> Any:
    """The value with its references to some tasks made references to others."""
    if isinstance(value, dict):
        if value.keys() == {OUT, "path"}:
            return {**value, OUT: ids.get(value[OUT], value[OUT])}
        return {key: redirected(part, ids) for key, part in value.items()}
    return [redirected(part, ids) for part in value] if isinstance(value, list) else value


# Putting values in -------------------------------------------------------------------------------


class Flow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a task's `meta` says of its place in a workflow."""

    refs: tuple[TaskId, ...] = ()
    after: tuple[TaskId, ...] = ()
    """What it comes after without data. (The record says what it waits for now.)"""
    when: Condition | None = None
    undo: str | None = None
    """The type of the task that undoes it."""
    node: str | None = None
    """Its name in the workflow."""

    @property
    def edges(self) -> tuple[TaskId, ...]:
        """All that it was written down to come after."""
        return tuple(dict.fromkeys((*self.after, *self.reads)))

    @property
    def reads(self) -> tuple[TaskId, ...]:
        """The tasks whose results it takes or is judged by."""
        return self.refs if self.when is None else (*self.refs, self.when.ref[OUT])

    hold: str | None = None
    """The signal that it is held by, for whoever makes it anew."""


def flow_of(meta: Json) -> Flow | None:
    """None for the many that have none, at the price of one look."""
    if b'"flow"' not in meta:
        return None
    told = msgspec.json.decode(meta)
    return msgspec.convert(told["flow"], Flow) if "flow" in told else None


Ended = Mapping[TaskId, Task]


class Results:
    """Records of ended tasks; what is asked for in one turn of the loop is read in one query."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._wanted: dict[TaskId, None] = {}
        self._reading: asyncio.Task[Ended] | None = None

    def of(self, lease: Lease) -> asyncio.Task[Ended] | None:
        """What the lease refers to; None when it refers to nothing."""
        flow = flow_of(lease.meta)
        if flow is None or not flow.reads:
            return None
        self._wanted |= dict.fromkeys(flow.reads)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        return self._reading

    async def _read(self) -> Ended:
        wanted, self._wanted, self._reading = self._wanted, {}, None
        return await ends(self._engine, wanted)


def filled(lease: Lease, ended: Ended) -> Lease:
    """The lease with results in the places of references; `Skipped` if its condition fails."""
    flow = flow_of(lease.meta) or Flow()
    refs = set(flow.refs)
    if gone := (refs | ({flow.when.ref[OUT]} if flow.when else set())) - ended.keys():
        raise Permanent(
            f"{lease.type} is to get the result of task {min(gone)}, which was deleted before it"
            " ran: keep ended tasks for longer, or do not delete those of a living workflow."
        )
    if flow.when and not flow.when.holds(_condition(flow.when.ref, ended)):
        raise Skipped
    told = loads(lease.payload, "payload")
    given = {id: ended[id] for id in refs}
    payload = msgspec.json.encode(_put_in(told, given))
    if len(payload) > MAX_FILLED:
        raise Permanent(
            f"The arguments of {lease.type} have {len(payload):,} bytes with the results put in;"
            f" the most is {MAX_FILLED:,}. Have the tasks before it give references."
        )
    meta = lease.meta
    if any(hidden_by(task.meta).result for task in given.values()):
        meta = hiding(meta, Hidden(payload=tuple(_secrets(told, given))))
    return replace(lease, payload=payload, meta=meta)


async def ends(engine: Engine, ids: Iterable[TaskId]) -> dict[TaskId, Task]:
    """The records of these tasks."""
    wanted = list(ids)
    found: dict[TaskId, Task] = {}
    for start in range(0, len(wanted), _PAGE):
        query = TaskQuery.of(id=tuple(wanted[start : start + _PAGE]), limit=_PAGE)
        while True:
            page = await engine.tasks(query)
            found |= {task.id: task for task in page.items}
            if page.next is None:
                break
            query = replace(query, cursor=page.next)
    return found


def result_in(task: Task | None) -> Any:
    """Its result; None when it has none, because it did not complete."""
    if task is None or task.state != "completed":
        return None
    return loads(readable(task.result or b"null", f"The result of task {task.id}"))


def _put_in(value: Any, ended: Ended) -> Any:
    """With results in place of references to these tasks; what only looks like one stays."""
    if isinstance(value, dict):
        if value.keys() == {OUT, "path"} and value[OUT] in ended:
            return _argument(value, ended[value[OUT]])
        return {key: _put_in(part, ended) for key, part in value.items()}
    return [_put_in(part, ended) for part in value] if isinstance(value, list) else value


def _secrets(value: Any, ended: Ended, at: Path = ()) -> Iterator[Path]:
    """Where results put secrets into the value, whatever the task itself says of these places."""
    if isinstance(value, dict):
        if value.keys() == {OUT, "path"} and value[OUT] in ended:
            task = ended[value[OUT]]
            hidden = hidden_by(task.meta).result if task.state == "completed" else ()
            if hidden:
                found = task.result or b"null"
                steps = _steps(loads(found), value["path"])
                yield from ((*at, *place) for place in places_below(found, hidden, steps))
            return
        for key, part in value.items():
            yield from _secrets(part, ended, (*at, key))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from _secrets(part, ended, (*at, str(place)))


def _steps(value: Any, path: Iterable[str | int]) -> list[str]:
    """The path as the document has it: counted from the beginning."""
    found: list[str] = []
    for step in path:
        found.append(str(range(len(value))[step] if isinstance(step, int) else step))
        value = value[step]
    return found


def _argument(ref: Mapping[str, Any], task: Task) -> Any:
    """What a reference stands for; None when the task did not complete, which is borne then."""
    if task.state != "completed":
        return None
    try:
        return _part(result_in(task), ref["path"])
    except (KeyError, IndexError, TypeError):
        path = "".join(f"[{step!r}]" for step in ref["path"])
        raise Permanent(
            f"The result of {task.type} {task.id} has no {path}, which is an argument here."
        ) from None


def _condition(ref: Mapping[str, Any], ended: Ended) -> Any:
    """The same for a condition, to which what is not there is None."""
    try:
        return _part(result_in(ended[ref[OUT]]), ref["path"])
    except (KeyError, IndexError, TypeError):
        return None


def _part(value: Any, path: Iterable[str | int]) -> Any:
    for step in path:
        value = value[step]
    return value


def with_flow(meta: Json, flow: Flow) -> Json:
    return dumps({**loads(meta), "flow": msgspec.to_builtins(flow)})
