"""Workflows as HTTP, the command line and the dashboard see them: listed, drawn, steered.

A workflow is found by the task at its end (`saga.py`), whose id it has; what is said of it here is
read from that task and from those with its `workflow_id`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any, Final, cast, get_args

import msgspec
from msgspec.structs import replace

from outlast import escalation, saga, steering
from outlast.app import Outlast
from outlast.core.codec import dumps, loads
from outlast.core.errors import BadInput, Conflict, NotFound, suggest
from outlast.core.ids import new_id
from outlast.core.model import NewTask, Task, TaskId, TaskQuery, Term
from outlast.core.redact import Redactor, hidden_by, hiding
from outlast.core.seal import is_sealed, readable
from outlast.core.secret import MASK
from outlast.dataflow import Flow, flow_of, redirected, with_flow
from outlast.handler import Call
from outlast.options import Options
from outlast.query import parse_query
from outlast.saga import LIVING, Status
from outlast.steps import UNDO
from outlast.stream import find
from outlast.views import View, task_view
from outlast.workflow import GATE, MAP, MAX_NODES, TYPE

STATUSES: Final[tuple[str, ...]] = get_args(Status)
MAX_DRAWN: Final = 2_000
"""Nodes that one answer has; of a larger workflow it says so."""
_PAGE: Final = 200
_STATES: Final[Mapping[str, tuple[str, ...]]] = {
    "running": LIVING, "undoing": LIVING, "completed": ("completed",), "cancelled": ("cancelled",),
    "dead": ("dead",), "undone": ("dead",), "undo_failed": ("dead",),
}  # fmt: skip
"""Statuses of the task at the end, by that of the workflow."""


# Looking -----------------------------------------------------------------------------------------


async def query_of(
    app: Outlast, params: Mapping[str, str | int | None]
) -> tuple[TaskQuery, set[str]]:
    """The filters of a list of workflows: a query, and the statuses that are wanted of them."""
    told = dict(params)
    wanted = {name.strip() for name in str(told.pop("status", None) or "").split(",") if name}
    for name in wanted:
        if name not in STATUSES:
            raise BadInput(
                f"There is no status {name[:40]!r} of workflows{suggest(name, STATUSES) or '.'}"
                f" Statuses are: {', '.join(STATUSES)}.",
                field="status",
            )
    query = await parse_query(app.engine, told)
    terms = [Term("type", (TYPE,)), *query.terms]
    if wanted:
        states = dict.fromkeys(state for name in sorted(wanted) for state in _STATES[name])
        terms.append(Term("status", tuple(states)))
    return replace(query, terms=tuple(terms)), wanted


async def page(
    app: Outlast, query: TaskQuery, wanted: set[str], redactor: Redactor | None = None
) -> View:
    """A page of workflows, newest first; it may be short and still have a `next`."""
    found = await app.engine.tasks(query)
    items = await views(app, [end for end in found.items if end.workflow_id == end.id], redactor)
    if wanted:
        items = [item for item in items if item["status"] in wanted]
    return {"items": items, "next": found.next}


async def view(app: Outlast, id: TaskId, redactor: Redactor | None = None) -> View:
    """One workflow, without its nodes."""
    [found] = await views(app, [await _end(app, id)], redactor)
    return found


async def views(app: Outlast, ends: Sequence[Task], redactor: Redactor | None = None) -> list[View]:
    """What is told of workflows in a list: two counts for all of them together. Without another
    `redactor` it is shown as the app shows it."""
    redactor = redactor or app.redactor
    ids = tuple(end.id for end in ends)
    if not ids:
        return []
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for count in await app.engine.count(saga.counted(*ids), by=("workflow_id", "status")):
        counts[str(count.by[0])][str(count.by[1])] = count.n
    living = tuple(end.id for end in ends if end.status in LIVING)
    undoing: set[str] = set()
    if living:
        query = TaskQuery.of(workflow_id=living, tag=saga.UNDOING)
        undoing = {str(c.by[0]) for c in await app.engine.count(query, by=("workflow_id",))}
    return [_view(redactor, end, counts[end.id], end.id in undoing) for end in ends]


def _view(redactor: Redactor, end: Task, counts: dict[str, int], undoing: bool) -> View:
    shown = task_view(end, redactor)
    total = sum(counts.values())
    over = sum(counts.get(status, 0) for status in ("completed", "cancelled", "dead"))
    return {
        "id": end.id,
        "name": _given(end).get("name", MASK),
        "status": saga.status_of(end, undoing=undoing),
        "origin": end.parent_id,
        "within": None if end.workflow_id == end.id else end.workflow_id,
        "percent": round(100 * over / total, 1) if total else 100.0,
        "counts": counts,
        **{name: shown[name] for name in _SHARED},
    }


_SHARED: Final = (
    "result", "error", "reason", "priority", "session_id", "user_id", "tags", "created_at",
    "started_at", "completed_at",
)  # fmt: skip
"""What a workflow has of the task at its end."""


async def drawn(app: Outlast, id: TaskId, redactor: Redactor | None = None) -> View:
    """One workflow with its nodes and their edges, as a graph is drawn, and how it was undone."""
    told = await view(app, id, redactor)
    found, more = await _tasks(app, id, MAX_DRAWN)
    gates = {task.id: task for task in found if task.type == GATE}
    tasks = [task for task in found if task.type != GATE]
    nodes = [_node(app, task, gates) for task in _in_order(tasks, gates)]
    undos = [task for task in tasks if saga.UNDOING in task.tags]
    return {
        **told,
        "nodes": nodes,
        "truncated": more,
        "undo": [task.id for task in sorted(undos, key=_undone_at)],
    }


async def _tasks(app: Outlast, id: TaskId, most: int) -> tuple[list[Task], bool]:
    """Its tasks but for the one at the end, the newest first; are there more?"""
    query, found = TaskQuery.of(workflow_id=id, limit=_PAGE), list[Task]()
    while len(found) <= most:
        page = await app.engine.tasks(query)
        found += [task for task in page.items if task.id != id]
        if page.next is None:
            break
        query = replace(query, cursor=page.next)
    return found[:most], len(found) > most


def _in_order(tasks: Sequence[Task], gates: Mapping[TaskId, Task]) -> list[Task]:
    """Each behind those that it comes after, or that made it; those side by side by their ids."""
    known = {task.id: task for task in sorted(tasks, key=lambda task: task.id)}
    before = {id: (*_edges(task, gates), task.parent_id or "") for id, task in known.items()}
    depths: dict[TaskId, int] = {}
    for id in TopologicalSorter(before).static_order():
        depths[id] = 1 + max((depths[up] for up in before.get(id, ())), default=0)
    return sorted(known.values(), key=lambda task: depths[task.id])


def _node(app: Outlast, task: Task, gates: Mapping[TaskId, Task]) -> View:
    flow = flow_of(task.meta) or Flow()
    shown = task_view(task, app.redactor)
    begin = _begin(task, gates)
    if begin is not None:
        flow = replace(flow, when=(flow_of(begin.meta) or Flow()).when)
    return {
        "id": task.id,
        "name": flow.node or task.type,
        "kind": _kind(task, flow),
        "type": _given(task).get("type", MASK) if task.type == MAP else task.type,
        "status": task.status,
        "after": _edges(task, gates),
        "needs": (begin or task).needs,
        "when": flow.when and {
            "id": flow.when.ref["$out"], "path": flow.when.ref["path"],
            "test": flow.when.test, "value": flow.when.value,
        },
        "undo": flow.undo,
        "error": _in_short(task),
        **{name: shown[name] for name in _OF_NODES},
    }  # fmt: skip


_OF_NODES: Final = (
    "parent_id", "reason", "attempt", "max_attempts", "progress", "priority", "started_at",
    "completed_at", "run_at",
)  # fmt: skip


def _edges(task: Task, gates: Mapping[TaskId, Task]) -> list[TaskId]:
    """What it comes after, as it was written down; of others, what they wait for."""
    flow = flow_of((_begin(task, gates) or task).meta)
    written = flow is not None and flow.node is not None and UNDO not in task.tags
    return [up for up in (flow.edges if flow and written else task.after) if up not in gates]


def _begin(task: Task, gates: Mapping[TaskId, Task]) -> Task | None:
    """Of a part, what waits for that which it comes after: itself it waits for its own tasks."""
    return gates.get(_given(task).get("begin") or "") if task.type == TYPE else None


def _given(task: Task) -> dict[str, Any]:
    """The payload of work of Outlast's own; nothing, if it is encrypted with a key of others."""
    return {} if is_sealed(task.payload) else loads(task.payload)


def _kind(task: Task, flow: Flow) -> str:
    if UNDO in task.tags:
        return "undo"
    if task.type in (MAP, TYPE):
        return "map" if task.type == MAP else "workflow"
    return "node" if flow.node else "child"


def _in_short(task: Task) -> View | None:
    if task.error is None or task.state == "completed":
        return None
    error: dict[str, Any] = msgspec.json.decode(task.error)
    return {name: error.get(name, "") for name in ("code", "type", "message")}


def _undone_at(task: Task) -> tuple[int, str]:
    return task.started_at or task.completed_at or 1 << 62, task.id


# Steering ----------------------------------------------------------------------------------------


async def cancel(app: Outlast, id: TaskId, reason: str, node: str | None = None) -> None:
    """Stop all of it, or one node and what comes after that."""
    if node is None:
        await saga.cancel(app, id, reason)
    else:
        await _end(app, id)
        await steering.cancel(app, _named(await _nodes(app, id), node).id, reason)


async def retry(app: Outlast, id: TaskId, node: str | None = None) -> TaskId:
    """Go on where it died; the id of the workflow that runs. From a node: run that and what comes
    after it as a new workflow, with the results that the others have."""
    if node is None:
        await saga.retry(app, id)
        return id
    end, nodes = await _end(app, id), await _nodes(app, id)
    status = saga.status_of(end, undoing=False)
    if status in ("running", "undone", "undo_failed"):
        raise Conflict(f"Cannot run workflow {id} again from {node[:60]!r}: it is {status}.")
    ids = _behind(nodes, _named(nodes, node).id)
    if part := next((nodes[task] for task in ids if nodes[task].type == TYPE), None):
        told = f"{_name(part)!r} is a workflow in it, which does not run again as a node"
        raise Conflict(f"Cannot run workflow {id} again from {node[:60]!r}: {told}.")
    told = loads(readable(end.payload, f"Workflow {id}"))
    owner = cast(Options, {n: v for n in _OWNER if (v := getattr(end, n)) is not None})
    rules = await escalation.rules_of(app, id)
    flow = app.workflow(told["name"], escalate=rules, **owner)
    calls = [await _again(app, nodes[old], ids, flow.id) for old in ids]
    last = [[ids.get(task, task), name] for task, name in told["last"]]
    made = app.builtins[TYPE].call(name=told["name"], last=last).task
    after = tuple(task for task, _ in last)
    made = replace(_like(end, made, flow.id), id=flow.id, after=after, needs="any", parent_id=id)
    await flow.enqueue([*calls, *flow.looked_after(), Call(made)])
    return flow.id


def _behind(nodes: Mapping[TaskId, Task], first: TaskId) -> dict[TaskId, TaskId]:
    """A node and all that come after it, each with the id of the task that takes its place."""
    followers: dict[TaskId, list[TaskId]] = defaultdict(list)
    for task in nodes.values():
        for up in task.after:
            followers[up].append(task.id)
    ids, open_ = {first: new_id()}, [first]
    while open_:
        for follower in followers[open_.pop()]:
            if follower in nodes and follower not in ids:
                ids[follower] = new_id()
                open_.append(follower)
    return ids


async def _again(
    app: Outlast, task: Task, ids: Mapping[TaskId, TaskId], workflow: TaskId
) -> Call[Any]:
    handler = await app.known(task.type)
    told = loads(readable(task.payload, f"The payload of task {task.id}"))
    payload = dumps(redirected(told, ids), f"payload of {task.type}", reveal=True)
    call: Call[Any] = handler.prepare(payload, complete=False)
    flow = flow_of(task.meta) or Flow()
    when = flow.when and replace(flow.when, ref=redirected(flow.when.ref, ids))
    after = tuple(ids.get(up, up) for up in task.after)
    refs = tuple(ids.get(ref, ref) for ref in flow.refs)
    flow = replace(flow, refs=refs, after=tuple(ids.get(up, up) for up in flow.after), when=when)
    made = _like(task, call.task, workflow)
    meta = with_flow(made.meta, flow)
    made = replace(made, id=ids[task.id], after=after, hold=flow.hold, meta=meta)
    return replace(call, task=made)


def _like(task: Task, made: NewTask, workflow: TaskId) -> NewTask:
    """A new task with what was said of another one."""
    same: Any = {name: getattr(task, name) for name in _SAID}
    meta = hiding(made.meta, hidden_by(task.meta))
    return replace(made, workflow_id=workflow, meta=meta, **same)


_OWNER: Final = ("session_id", "user_id")
_SAID: Final = (
    "queue", "priority", "max_attempts", "max_losses", "timeout_ms", "overdue_after_ms",
    "max_age_ms", "needs", *_OWNER, "tags", "followed",
)  # fmt: skip


async def _nodes(app: Outlast, id: TaskId) -> dict[TaskId, Task]:
    """The nodes as they were written down: no children, and nothing that undoes."""
    tasks, _ = await _tasks(app, id, MAX_NODES)
    gates = {task.id: task for task in tasks if task.type == GATE}
    mine = [task for task in tasks if UNDO not in task.tags and task.type != GATE and _name(task)]
    return {task.id: replace(task, after=tuple(_edges(task, gates))) for task in mine}


def _named(nodes: Mapping[TaskId, Task], node: str) -> Task:
    """The node of that name or id."""
    for task in nodes.values():
        if node in (task.id, _name(task)):
            return task
    hint = suggest(node, filter(None, map(_name, nodes.values())))
    raise BadInput(f"The workflow has no node {node[:60]!r}{hint or '.'}", field="from")


def _name(task: Task) -> str | None:
    flow = flow_of(task.meta)
    return None if flow is None else flow.node


async def _end(app: Outlast, id: TaskId) -> Task:
    """The task at the end of a workflow."""
    end = await find(app.engine, id)
    if end is None or end.type != TYPE:
        raise NotFound(f"There is no workflow {id}.")
    return end
