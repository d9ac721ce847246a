"""Workflows: tasks enqueued together, with edges.

    async with app.workflow("ingest") as flow:
        page = flow.add(fetch, url)
        text = flow.add(extract, page.out)
        flow.add(publish, text.out, undo=unpublish)
    print(await flow.handle.result())

A result used as an argument makes an edge; `after=` makes one without data. The graph enters whole,
with one more task, of type `outlast.workflow` (`saga.py`), whose id is the workflow's: it waits for
all the others, gives the result of the last ones, and undoes what was done when something died.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from outlast.core.codec import dumps, loads
from outlast.core.durations import to_ms
from outlast.core.errors import BadInput, Conflict, NotFound
from outlast.core.graph import in_order
from outlast.core.ids import check_id, id_for, new_id
from outlast.core.model import NewTask, Redrive, Task, TaskId
from outlast.core.redact import Hidden, hidden_by
from outlast.core.secret import Path
from outlast.dataflow import Condition, Flow, Out, condition_of, ends, referring, with_flow
from outlast.handle import Handle
from outlast.handler import Call, Handler
from outlast.options import Options, name_of
from outlast.stream import find

if TYPE_CHECKING:
    from outlast.app import Outlast
    from outlast.escalation import Escalation

R = TypeVar("R")
T = TypeVar("T")

MAX_NODES: Final = 100_000
TYPE: Final = "outlast.workflow"
MAP: Final = "outlast.map"
GATE: Final = "outlast.gate"
ESCALATION: Final = "outlast.escalation"
BEGIN: Final = "begin"
GATE_AGE: Final = "10m"
PIECE: Final = 1_000
"""So many tasks enter in one step; a larger graph in several."""
Needs = Literal["success", "any"]
_OF_END: Final = frozenset({"priority", "session_id", "user_id", "tags", "followed"})
"""Options of all tasks that the one at the end has, too. It is not what is to be done within some
time or so many attempts: it outlasts the others, and undoes them."""
OF_EACH: Final = frozenset({
    "queue", "priority", "max_attempts", "max_losses", "timeout", "overdue_after", "max_age",
    "tags", "followed",
})  # fmt: skip
"""Options that each task of a map has."""
_OF_ONE: Final = frozenset({"unique_key", "unique_for", "after", "needs", "workflow_id"})


class Node(Generic[R]):
    """One task of a workflow that is being written down."""

    def __init__(self, id: TaskId, name: str) -> None:
        self.id = id
        self.name = name

    @property
    def out(self) -> R:
        """Its result, to be used as an argument, or a part of one, or in a condition."""
        return Out(self.id)  # type: ignore[return-value]  # what it stands for


class _Added(Struct, frozen=True):
    call: Call[Any]
    flow: Flow


class Workflow:
    """A graph being written down; leaving the block enqueues it whole, an error in it nothing.

    Options are those of all its tasks: whose they are, how urgent, their tags. With an `id` all of
    them have ids made from it, so that the same graph again is the same workflow.
    """

    def __init__(
        self, app: Outlast, name: str, options: Options, escalate: Sequence[Escalation] = ()
    ) -> None:
        if own := _OF_ONE & options.keys():
            raise BadInput(
                f"{min(own)}: of one task, not of all tasks of a workflow.", field=min(own)
            )
        self.app = app
        self.name = name_of(name, "name")
        self._options = options.copy()
        given = self._options.pop("id", None)
        self.id = new_id() if given is None else check_id(given)
        self._repeatable = given is not None
        self._added: dict[TaskId, _Added] = {}
        self._parts: dict[TaskId, Part] = {}
        self._escalate = tuple(escalate)
        self._names: dict[str, int] = {}
        self._handlers: dict[Handler[..., Any], Handler[..., Any]] = {}

    @property
    def handle(self) -> Handle[Any]:
        """The workflow as a task: its result is that of the last task, or by name of the last."""
        return Handle(self.app, self.id)

    def add(
        self,
        task: Handler[..., R],
        /,
        *args: Any,
        after: Iterable[Node[Any]] | Node[Any] = (),
        needs: Needs = "success",
        when: object = None,
        undo: Handler[..., Any] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Node[R]:
        """A task with its arguments, which may be results of others.

        It runs when all before it have completed; with `needs="any"` when they are over, however
        they ended (a result that is not there is then None). When `when` does not hold it is
        cancelled as `skipped`. `undo` is run with the same arguments when the workflow fails.
        """
        payload = task.signature.named(*args, **kwargs)
        return self.node(task, payload, after=after, needs=needs, when=when, undo=undo, name=name)

    def node(
        self,
        task: Handler[..., R],
        payload: Mapping[str, Any],
        *,
        after: Iterable[Node[Any]] | Node[Any] = (),
        needs: Needs = "success",
        when: object = None,
        undo: Handler[..., Any] | None = None,
        name: str | None = None,
    ) -> Node[R]:
        """The same, its arguments by name in one mapping."""
        refs: set[TaskId] = set()
        data = _payload(task, payload, refs)
        if undo is not None:
            _check_undo(undo, payload, complete=not refs)
        condition = None if when is None else condition_of(when)
        nodes = (after,) if isinstance(after, Node) else tuple(after)
        edges = {node.id: None for node in nodes} | dict.fromkeys(sorted(refs))
        if condition is not None:
            edges[_told(condition)] = None
        for id in edges:
            if not self._has(id):
                raise BadInput(f"{task.type}: it comes after a task that is not in this workflow.")
        if needs not in ("success", "any"):
            raise BadInput(f"needs={needs!r}: give 'success' or 'any'.", field="needs")
        if len(self._added) >= MAX_NODES:
            raise BadInput(f"A workflow has at most {MAX_NODES:,} tasks; map over a list instead.")
        call = self._optioned(task).prepare(data, complete=not refs)
        if call.task.unique_key is not None:
            raise BadInput(
                f"{task.type}: a unique_key would put a task of somebody else into the workflow.",
                field="unique_key",
            )
        name = self._named(name or task.type)
        id = self._id_of(name) if self._repeatable else call.task.id
        made = replace(call.task, id=id, after=(*call.task.after, *edges), needs=needs)
        flow = Flow(
            refs=tuple(sorted(refs)),
            after=(*call.task.after, *(node.id for node in nodes)),
            when=condition,
            undo=None if undo is None else undo.type,
            node=name,
            hold=made.hold,
        )
        self._added[made.id] = _Added(replace(call, task=made), flow)
        return Node(made.id, name)

    def map(
        self,
        task: Handler[..., R],
        over: Sequence[T],
        /,
        *,
        needs: Needs = "success",
        after: Iterable[Node[Any]] | Node[Any] = (),
        when: object = None,
        name: str | None = None,
        item: str | None = None,
        **fixed: Any,
    ) -> Node[list[R]]:
        """A task for each item of a list that is a result; gives the list of their results.

        The item is the argument named `item`, else the first. With `needs="any"` those that fail
        give None. Each has the options that were chosen for the task, and those of the workflow.
        """
        first = item or task.signature.first
        if first is None or first in fixed:
            raise BadInput(f"{task.type} has no first argument for the items: name one with item=.")
        told = (task.type, over, first, fixed, needs == "any", self.for_each(task))
        mapped: Handler[..., list[R]] = mapping(task, first)
        name = name or f"map {task.type}"
        return self.add(mapped, *told, after=after, when=when, name=name)

    def nest(
        self,
        name: str,
        *,
        after: Iterable[Node[Any]] | Node[Any] = (),
        needs: Needs = "success",
        when: object = None,
        **options: Any,
    ) -> Part:
        """A workflow as a part of this one: with its own result, which is the part's `out`, its own
        condition and its own undoing. Its tasks may use results of this one. When this one is
        cancelled or undone, so is what the part has done."""
        begin = self.node(
            self.app.builtins[GATE], {}, after=after, needs=needs, when=when, name=f"{name} begins"
        )
        part = Part(self, self._named(name), begin, cast(Options, options))
        self._parts[part.id] = part
        return part

    def group(
        self,
        task: Handler[..., R],
        over: Iterable[Any],
        /,
        *,
        after: Iterable[Node[Any]] | Node[Any] = (),
        **fixed: Any,
    ) -> list[Node[R]]:
        """A task for each of what is known now, as its first argument, side by side. (`map` is for
        what is known when the workflow runs.)"""
        after = (after,) if isinstance(after, Node) else tuple(after)
        return [self.add(task, one, after=after, **fixed) for one in over]

    def chord(
        self,
        nodes: Iterable[Node[Any]],
        task: Handler[..., R],
        /,
        *,
        needs: Needs = "success",
        name: str | None = None,
        **fixed: Any,
    ) -> Node[R]:
        """A task that takes the list of the results of others, in their order; with `needs="any"`
        also when some have failed, which gives None in their places."""
        return self.add(task, [node.out for node in nodes], needs=needs, name=name, **fixed)

    def chain(self, first: Node[Any], *rest: Handler[..., Any]) -> Node[Any]:
        """One after the other, each with the result of the one before."""
        node = first
        for task in rest:
            node = self.add(task, node.out)
        return node

    async def __aenter__(self) -> Workflow:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.enqueue()

    async def enqueue(self, calls: Sequence[Call[Any]] = ()) -> Handle[Any]:
        """Hand it over, all or nothing. `calls` are its own, with something put in."""
        from outlast.escalation import check

        await check(self.app, self._escalate)
        calls = calls or self.calls()
        if self._repeatable and (there := await find(self.app.engine, self.id)) is not None:
            return await self._existing(there, len(calls))
        if len(calls) <= PIECE:
            return (await self.app.enqueue(calls))[-1]
        return await self._enqueue_in_pieces(calls)

    async def _existing(self, there: Task, size: int) -> Handle[Any]:
        """It enters last, so all of it is there. What was added to the graph since then is left
        out: nobody would wait for it."""
        if there.type != TYPE:
            raise Conflict(f"Cannot enqueue workflow {self.id}: the id is that of a {there.type}.")
        if size > PIECE:
            await self._begin(self._id_of(GATE))
        return Handle(self.app, self.id, existing=True)

    async def _enqueue_in_pieces(self, calls: Sequence[Call[Any]]) -> Handle[Any]:
        """A large graph enters in several steps, behind one task that is let go when all are there.

        Should we die on the way, that one expires, and everything behind it is cancelled unrun.
        What a small graph would be refused for is looked for before the first step.
        """
        found = {call.task.id: call for call in calls}
        order = in_order([call.task for call in calls])
        await self._check_upstream({up for call in calls for up in call.task.after} - found.keys())
        told: Options = {**self._options, "hold": BEGIN, "max_age": GATE_AGE}
        gate = self.app.builtins[GATE].options(**told).call()
        id = self._id_of(GATE) if self._repeatable else gate.task.id
        gate = replace(gate, task=replace(gate.task, id=id, workflow_id=self.id))
        behind = []
        for call in map(found.__getitem__, order):
            after = call.task.after
            if found.keys().isdisjoint(after):  # of tasks that are over it would not wait for all
                after = (*after, gate.task.id)
            behind.append(replace(call, task=replace(call.task, after=after)))
        [begin] = await self.app.enqueue([gate])
        if begin.existing:  # should it have expired, all that is behind it comes back with it
            await self.app.engine.alter([begin.id], Redrive())
        for start in range(0, len(behind), PIECE):
            *_, last = await self.app.enqueue(behind[start : start + PIECE])
        await self._begin(gate.task.id)
        return last

    async def _check_upstream(self, ids: Collection[TaskId]) -> None:
        """Tasks that are not of this graph, which others of it come after."""
        if gone := set(ids) - (await ends(self.app.engine, ids)).keys():
            raise BadInput(f"after= names a task that does not exist: {min(gone)}", field="after")

    async def _begin(self, gate: TaskId) -> None:
        with suppress(Conflict, NotFound):  # it was let go when the same graph came before
            await Handle[None](self.app, gate).signal(BEGIN)

    def calls(self) -> list[Call[Any]]:
        """Its tasks, and at last the one at the end."""
        calls, end = self._graph()
        return [*calls, *self.looked_after(), end]

    def _graph(self) -> tuple[list[Call[Any]], Call[Any]]:
        """Its tasks and those of its parts; and the one at the end."""
        if not self._added:
            raise BadInput(f"The workflow {self.name!r} has no tasks.")
        calls = [self._finished(added) for added in self._added.values()]
        for part in self._parts.values():
            inside, end = part._graph()
            calls += [*inside, end]
        inner = {id for call in calls for id in call.task.after}
        names = {id: added.flow.node for id, added in self._added.items()}
        names |= {id: part.name for id, part in self._parts.items()}
        last = [(id, name) for id, name in names.items() if id not in inner]
        handler = self.app.builtins[TYPE].under(
            {name: value for name, value in self._options.items() if name in _OF_END}
        )
        call = handler.hiding(_hidden(last, calls)).call(name=self.name, last=last)
        after = tuple(id for id, _ in last if id is not None)
        made = replace(call.task, id=self.id, after=after, needs="any", workflow_id=self.id)
        return calls, replace(call, task=made)

    def _has(self, id: TaskId) -> bool:
        return id in self._added or id in self._parts

    def looked_after(self) -> list[Call[Any]]:
        """The task that keeps the rules of escalation, if there are any. It is no part of it."""
        from outlast.escalation import keeper

        if not self._escalate:
            return []
        owner = {n: v for n, v in self._options.items() if n in ("session_id", "user_id")}
        handler = keeper(self.app, self._escalate).under(owner)
        call = handler.call(workflow=self.id, rules=list(self._escalate))
        id = self._id_of(ESCALATION) if self._repeatable else call.task.id
        return [replace(call, task=replace(call.task, id=id, parent_id=self.id))]

    def _finished(self, added: _Added) -> Call[Any]:
        task: NewTask = added.call.task
        meta = with_flow(task.meta, added.flow)
        return replace(added.call, task=replace(task, workflow_id=self.id, meta=meta))

    def _optioned(self, task: Handler[..., Any]) -> Handler[..., Any]:
        """The task with the options of the workflow, where it has been given none of its own."""
        if task not in self._handlers:
            options = self._options
            if task.type in self.app.builtins:  # which every worker serves, and no other does
                options = cast(Options, {n: v for n, v in options.items() if n != "queue"})
            self._handlers[task] = task.under(options) if options else task
        return self._handlers[task]

    def for_each(self, task: Handler[..., Any]) -> dict[str, object]:
        """The options of the tasks of a map, as JSON."""
        for name in task.chosen.keys() - OF_EACH:
            raise BadInput(f"{name}: not for each task of a map.", field=name)
        # How urgent they are is what the map is then, which somebody may have changed.
        shared = {name: value for name, value in self._options.items() if name != "priority"}
        chosen = {**shared, **task.chosen}
        return {
            name: f"{to_ms(value)}ms" if isinstance(value, timedelta) else value
            for name, value in chosen.items()
            if name in OF_EACH
        }

    def _id_of(self, name: str) -> TaskId:
        """The id of a task with this name, in whatever process the workflow is written down."""
        return id_for(int(self.id.replace("-", "")[:12], 16), f"{self.id} {name}")

    def _named(self, name: str) -> str:
        """A name of its own: the second `fetch` is `fetch 2`."""
        found = name_of(name, "name")
        while found in self._names:
            self._names[name] += 1
            found = f"{name} {self._names[name]}"
        self._names[found] = 1
        return found


class Part(Workflow, Node[Any]):
    """A workflow in another one, of which it is a node."""

    def __init__(self, whole: Workflow, name: str, begin: Node[None], options: Options) -> None:
        chosen: Options = {**whole._options, **options}
        if whole._repeatable:
            chosen["id"] = whole._id_of(name)
        Workflow.__init__(self, whole.app, name, chosen)
        self.begin = begin
        """Behind this all of it waits."""
        self._whole = whole

    def _has(self, id: TaskId) -> bool:
        return super()._has(id) or self._whole._has(id)

    def _graph(self) -> tuple[list[Call[Any]], Call[Any]]:
        calls, end = super()._graph()
        mine = self._added.keys() | self._parts.keys()
        calls = [self._begun(call) if mine.isdisjoint(call.task.after) else call for call in calls]
        payload = dumps({**loads(end.task.payload), "begin": self.begin.id}, "workflow")
        meta = with_flow(end.task.meta, Flow(node=self.name))
        told = replace(end.task, payload=payload, meta=meta, workflow_id=self._whole.id)
        return calls, replace(end, task=told)

    def _begun(self, call: Call[Any]) -> Call[Any]:
        if call.task.workflow_id != self.id:  # that of a part: behind its own beginning
            return call
        return replace(call, task=replace(call.task, after=(self.begin.id, *call.task.after)))

    async def enqueue(self, calls: Sequence[Call[Any]] = ()) -> Handle[Any]:
        """It is handed over with what it is a part of."""
        return self.handle


def mapping(task: Handler[..., Any], item: str) -> Handler[..., Any]:
    """What maps a task: its arguments and results are secret where those of the task are."""
    payload = task.hidden.payload
    items = [path[1:] for path in payload if path[0] in (item, "*")]
    items += [path for path in payload if path[0] == "**"]
    told = (*_each("fixed", payload), *(("over", "*", *path) for path in items))
    return task.app.builtins[MAP].hiding(Hidden(told, _each("*", task.hidden.result)))


def _hidden(last: Sequence[tuple[TaskId, str | None]], calls: Sequence[Call[Any]]) -> Hidden:
    """What is secret in the result of a workflow: what is so in those of its last tasks."""
    metas = {call.task.id: call.task.meta for call in calls}
    found = [(name, hidden_by(metas[id]).result) for id, name in last]
    if len(found) == 1:
        return Hidden(result=found[0][1])
    return Hidden(result=tuple(path for name, paths in found for path in _each(name or "", paths)))


def _each(step: str, paths: Sequence[Path]) -> tuple[Path, ...]:
    return tuple((step, *path) for path in paths)


def _payload(task: Handler[..., Any], names: Mapping[str, Any], refs: set[TaskId]) -> bytes:
    """Checked in full when there are no results in it, else when the task is run."""
    told = referring(names, refs)
    if refs:
        return dumps(told, f"payload of {task.type}", reveal=True)
    return task.signature.bind(**names)


def _check_undo(undo: Handler[..., Any], names: Mapping[str, Any], *, complete: bool) -> None:
    """That it cannot be called would else be seen when something is to be undone."""
    try:
        undo.signature.named(**names)
        if complete:
            undo.signature.bind(**names)
    except BadInput as error:
        told = f"undo: it gets the arguments of its task: {error}"
        raise BadInput(told, field="undo") from error


def _told(condition: Condition) -> TaskId:
    id: TaskId = condition.ref["$out"]
    return id
