"""Workflows as data: a graph in JSON, as `POST /workflows` takes it, made into a `Workflow`.

    {"name": "ingest", "nodes": [
        {"name": "page", "type": "fetch", "payload": {"url": "https://example.org"}},
        {"name": "text", "type": "extract", "payload": {"page": {"$from": "page"}}},
        {"name": "parts", "type": "embed", "over": {"$from": "text", "path": "chapters"}}]}

`{"$from": node, "path": …}` stands for the result of another node, or the part of it at a path,
wherever a value may stand. Nodes come in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from outlast.core.errors import BadInput, OutlastError, suggest
from outlast.dataflow import Condition, Out, condition_of
from outlast.escalation import Escalation
from outlast.workflow import Node, Part, Workflow, mapping

if TYPE_CHECKING:
    from outlast.app import Outlast
    from outlast.handler import Handler

FROM: Final = "$from"
MAX_NODES: Final = 10_000
MAX_PATH: Final = 50
OF_NODES: Final = (
    "queue", "priority", "max_attempts", "max_losses", "timeout", "overdue_after", "max_age",
    "delay", "run_at", "hold", "tags", "followed",
)  # fmt: skip
"""Options that a node may have of its own."""
OF_ALL: Final = (*(name for name in OF_NODES if name != "hold"), "session_id", "user_id", "id")
"""Options of a workflow, which are those of all its tasks."""

Path = str | list[str | int]


class When(Struct, forbid_unknown_fields=True, kw_only=True):
    """What must hold for a node to run: a result compared with a value, or (`is`) its truth."""

    origin: str = msgspec.field(name=FROM)
    path: Path = []
    test: Literal["is", "==", "!=", "<", "<=", ">", ">="] = "is"
    value: Any = None


class Spec(Struct, forbid_unknown_fields=True, kw_only=True):
    """A node as it is written."""

    name: str
    type: str | None = None
    nodes: list[dict[str, Any]] | None = None
    """Instead of a type: the node is a workflow, whose nodes may refer to those around it."""
    payload: dict[str, Any] = {}
    after: list[str] | str = []
    needs: Literal["success", "any"] = "success"
    when: When | None = None
    undo: str | None = None
    over: Any | UnsetType = UNSET
    """A list, or a reference to one: a task is run for each of its items."""
    item: str | None = None
    """The argument that takes the item; the first one of the type, if it is not given."""
    options: dict[str, Any] = {}

    @property
    def before(self) -> list[str]:
        return [self.after] if isinstance(self.after, str) else self.after


async def workflow_of(
    app: Outlast, name: str, nodes: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
) -> Workflow:
    """The workflow that is written there, checked as far as it can be before it runs."""
    chosen: dict[str, Any] = {**options}
    rules = _rules(chosen.pop("escalate", ()))
    for option in chosen.keys() - OF_ALL:
        raise BadInput(f"{option}: a workflow may have {', '.join(OF_ALL)}.", field=option)
    if (size := _size(nodes)) > MAX_NODES:
        raise BadInput(f"nodes: at most {MAX_NODES:,} nodes, not {size:,}.", field="nodes")
    flow = app.workflow(name, escalate=rules, **chosen)
    await _fill(flow, nodes, {})
    return flow


async def _fill(
    flow: Workflow, nodes: Sequence[Mapping[str, Any]], around: Mapping[str, Node[Any]]
) -> None:
    if not nodes:
        raise BadInput("nodes: a workflow needs one.", field="nodes")
    places: dict[str, int] = {}
    specs: list[Spec] = []
    for place, told in enumerate(nodes):
        spec = _spec(place, told)
        if spec.name in places:
            raise _wrong(place, "name", f"there are two nodes {spec.name!r}; names are unique.")
        places[spec.name] = place
        specs.append(spec)
    made = dict(around)
    for place in _in_order(specs, places, around):
        made[specs[place].name] = await _added(flow, made, place, specs[place])


def _size(nodes: object) -> int:
    if not isinstance(nodes, list | tuple):
        return 0
    inside = (node.get("nodes") for node in nodes if isinstance(node, Mapping))
    return len(nodes) + sum(map(_size, inside))


def _rules(told: object) -> list[Escalation]:
    try:
        return msgspec.convert(told, list[Escalation])
    except msgspec.ValidationError as error:
        raise BadInput(f"escalate: {error}.".replace("`", ""), field="escalate") from error


def _spec(place: int, told: Mapping[str, Any]) -> Spec:
    try:
        return msgspec.convert(told, Spec)
    except msgspec.ValidationError as error:
        raise _wrong(place, None, f"{error}.".replace("`", "")) from error


async def _added(
    flow: Workflow, made: Mapping[str, Node[Any]], place: int, spec: Spec
) -> Node[Any]:
    try:
        after = [made[name] for name in spec.before]
        when = None if spec.when is None else _condition(spec.when, made)
        if spec.nodes is not None:
            return await _nested(flow, made, spec, after, when)
        if spec.type is None:
            raise BadInput("a type is needed, or nodes.", field="type")
        task = await _known(flow.app, spec.type)
        undo = None if spec.undo is None else await _known(flow.app, spec.undo)
        for option in spec.options.keys() - OF_NODES:
            raise BadInput(f"{option}: a node may have {', '.join(OF_NODES)}.", field="options")
        payload = _filled(spec.payload, made)
        if spec.over is UNSET:
            chosen = task.options(**spec.options)
            told = chosen.signature.named(**payload)
            return flow.node(
                chosen, told, after=after, needs=spec.needs, when=when, undo=undo, name=spec.name
            )
        if undo is not None:
            raise BadInput("a node with over takes no undo.", field="over")
        mapped = {
            "type": spec.type, "over": _filled(spec.over, made), "fixed": payload,
            "item": spec.item or task.signature.first, "lenient": spec.needs == "any",
            "options": flow.for_each(task.options(**spec.options)),
        }  # fmt: skip
        if mapped["item"] is None:
            raise BadInput(f"say which argument of {spec.type} takes the item.", field="item")
        over = mapping(task, mapped["item"])
        return flow.node(over, mapped, after=after, when=when, name=spec.name)
    except OutlastError as error:
        field = error.field if isinstance(error, BadInput) else "type"
        raise _wrong(place, field, str(error).removeprefix(f"{field}: ")) from error


async def _nested(
    flow: Workflow,
    made: Mapping[str, Node[Any]],
    spec: Spec,
    after: Sequence[Node[Any]],
    when: Condition | None,
) -> Part:
    told = (spec.type, spec.payload or None, spec.undo, spec.item)
    if any(one is not None for one in told) or spec.over is not UNSET:
        raise BadInput("a workflow takes no type, payload, undo, over or item.", field="nodes")
    for option in spec.options.keys() - OF_ALL[:-1]:
        raise BadInput(f"{option}: a node may have {', '.join(OF_NODES)}.", field="options")
    part = flow.nest(spec.name, after=after, needs=spec.needs, when=when, **spec.options)
    await _fill(part, spec.nodes or (), made)
    return part


async def _known(app: Outlast, type: str) -> Handler[..., Any]:
    if type in app.builtins:
        raise BadInput(f"{type} is Outlast's own and no part of a workflow.", field="type")
    return await app.known(type)


def _condition(when: When, made: Mapping[str, Node[Any]]) -> Condition:
    out = _out({FROM: when.origin, "path": when.path}, made)
    found = condition_of(out)
    return msgspec.structs.replace(found, test=when.test, value=when.value)


def _filled(value: Any, made: Mapping[str, Node[Any]]) -> Any:
    """The value, with what stands for results in the places of references."""
    if isinstance(value, dict):
        if FROM in value:
            return _out(value, made)
        return {key: _filled(part, made) for key, part in value.items()}
    return [_filled(part, made) for part in value] if isinstance(value, list) else value


def _out(ref: Mapping[str, Any], made: Mapping[str, Node[Any]]) -> Out:
    path: Path = ref.get("path", [])
    steps = _steps(path) if isinstance(path, str) else path
    return Out(made[ref[FROM]].id, tuple(steps))


def _steps(path: str) -> list[str | int]:
    """`chapters.0.title`: digits are a place in a list; a list says exactly what is meant."""
    parts = path.split(".") if path else []
    return [int(part) if part.isascii() and part.isdigit() else part for part in parts]


# Their order -------------------------------------------------------------------------------------


def _in_order(
    specs: Sequence[Spec], places: Mapping[str, int], around: Mapping[str, Node[Any]]
) -> Iterator[int]:
    """The places of the nodes, each behind those that it comes after."""
    waits = [set(_upstream(place, spec, places, around)) for place, spec in enumerate(specs)]
    followers: dict[int, list[int]] = {}
    for place, ups in enumerate(waits):
        for up in ups:
            followers.setdefault(up, []).append(place)
    free = [place for place, ups in enumerate(waits) if not ups]
    done = 0
    while done < len(free):
        place = free[done]
        done += 1
        yield place
        for follower in followers.get(place, ()):
            waits[follower].discard(place)
            if not waits[follower]:
                free.append(follower)
    if done < len(specs):
        circle = [specs[place].name for place, ups in enumerate(waits) if ups]
        raise _wrong(
            places[circle[0]],
            "after",
            f"{circle[0]!r} comes after itself: the nodes {', '.join(map(repr, circle[:5]))}"
            f"{' …' if len(circle) > 5 else ''} wait for each other.",
        )


def _upstream(
    place: int, spec: Spec, places: Mapping[str, int], around: Mapping[str, Node[Any]]
) -> Iterator[int]:
    told = [("after", name) for name in spec.before]
    told += [("payload", name) for name in _names(place, "payload", spec.payload)]
    if spec.over is not UNSET:
        told += [("over", name) for name in _names(place, "over", spec.over)]
    if spec.when is not None:
        ref = {FROM: spec.when.origin, "path": spec.when.path}
        told += [("when", name) for name in _names(place, "when", ref)]
    if spec.nodes is not None:
        told += [("nodes", name) for name in _foreign(place, spec.nodes) if name in places]
    for field, name in told:
        if name in around and name not in places:
            continue
        if name not in places:
            raise _wrong(place, field, f"there is no node {name[:60]!r}{suggest(name, places)}.")
        yield places[name]


def _foreign(place: int, nodes: Sequence[Mapping[str, Any]]) -> set[str]:
    """What the nodes of a nested workflow refer to, as far as it is not among them."""
    found: set[str] = set()
    for told in nodes:
        spec = _spec(place, told)
        inside = [*spec.before, *_names(place, "nodes", [spec.payload, [spec.over]])]
        inside += [] if spec.when is None else [spec.when.origin]
        found |= {*inside, *_foreign(place, spec.nodes or ())}
    return found - {str(told.get("name")) for told in nodes}


def _names(place: int, field: str, value: Any) -> Iterator[str]:
    """The nodes that a value refers to."""
    if isinstance(value, dict) and FROM in value:
        name, path = value[FROM], value.get("path", [])
        if not isinstance(name, str) or value.keys() - {FROM, "path"} or not _is_path(path):
            raise _wrong(
                place, field, 'a reference is {"$from": "node", "path": "words.0"}, path optional.'
            )
        yield name
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _names(place, field, part)


def _is_path(path: object) -> bool:
    if isinstance(path, str):
        return path.count(".") < MAX_PATH and all(len(part) < 200 for part in path.split("."))
    return (
        isinstance(path, list)
        and len(path) <= MAX_PATH
        and all(isinstance(step, str | int) and not isinstance(step, bool) for step in path)
    )


def _wrong(place: int, field: str | None, what: str) -> BadInput:
    where = f"nodes[{place}]" + (f".{field.removeprefix('$.')}" if field else "")
    return BadInput(f"{where}: {what}", field=where)
