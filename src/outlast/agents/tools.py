"""Every task type as a tool for agents.

`AgentTools(app, session_id)` gives the same tools in each form that agents take: plain async
functions with name, docstring and annotations, tool JSON for OpenAI and for Anthropic, and `call`
for what a model asked. A tool of a type hands the task over and answers at once; two more tell
about the session's tasks, and one cancels them. Nothing raises for what a model did wrong: it is
told, so that it can do better.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from keyword import iskeyword
from typing import Any, Final, Optional

import msgspec
from msgspec import Struct

from outlast.agents import words
from outlast.agents.desk import AppDesk, Desk, Kind, Seen
from outlast.agents.words import FILTERS, StatusFilter, Told
from outlast.app import Outlast
from outlast.core.codec import loads
from outlast.core.errors import BadInput, OutlastError, suggest
from outlast.handler import Handler

AgentFunction = Callable[..., Awaitable[Told]]

MAX_LISTED: Final = 100
MAX_TOOL_NAME: Final = 64  # the least of what models' providers take
AT_ONCE: Final = (
    "It runs in the background: the answer is a task id, at once. Go on with the user, and fetch"
    " the result later."
)
FREE: Final = "parameters"
RESULT_NAME: Final = "get_task_result_tool"
LIST_NAME: Final = "list_user_tasks_tool"
CANCEL_NAME: Final = "cancel_task_tool"


class Tool(Struct, frozen=True):
    """One tool: what a model is told of it."""

    name: str
    description: str
    schema: Mapping[str, object]
    type: str | None = None
    """The task type that it hands over; None for those that tell about tasks."""

    @property
    def openai(self) -> Told:
        function = {"name": self.name, "description": self.description, "parameters": self._plain}
        return {"type": "function", "function": function}

    @property
    def anthropic(self) -> Told:
        return {"name": self.name, "description": self.description, "input_schema": self._plain}

    @property
    def _plain(self) -> Mapping[str, object]:
        """The schema without what only readers of documents need."""
        return {k: v for k, v in self.schema.items() if k not in ("$schema", "title")}


class AgentTools:
    """The tools of one session of an app; only its own tasks exist for them.

    `types` chooses among the app's types, `names` gives tools other names than their type's. Where
    tasks should be enqueued with the session's priority, give it.
    """

    def __init__(
        self,
        app: Outlast,
        session_id: str,
        *,
        user_id: str | None = None,
        priority: int | str | None = None,
        types: Iterable[str] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._desk: Desk = AppDesk(app, session_id, user_id=user_id, priority=priority)
        known = {**app.handlers, **app.externals}
        chosen = list(known) if types is None else list(types)
        for type in [*chosen, *(names or {})]:
            if type not in known:
                raise BadInput(f"There is no type {type!r} in the app{suggest(type, known)}.")
        self._handlers = {type: known[type] for type in chosen}
        kinds = [_kind(handler) for handler in self._handlers.values()]
        self.tools = (*tools_of(kinds, names or {}), *ABOUT_TASKS)
        self._by_name = {tool.name: tool for tool in self.tools}

    def openai(self) -> list[Told]:
        """For `tools=` of chat completions and what is compatible with them."""
        return [tool.openai for tool in self.tools]

    def anthropic(self) -> list[Told]:
        """For `tools=` of Anthropic's messages."""
        return [tool.anthropic for tool in self.tools]

    def functions(self) -> list[AgentFunction]:
        """Plain async functions, which agent frameworks take as they are."""
        made = [self.function(tool.type) for tool in self.tools if tool.type is not None]
        return [*made, self.get_task_result_tool, self.list_user_tasks_tool, self.cancel_task_tool]

    def function(self, type: str) -> AgentFunction:
        """The tool of one type, with the parameters of its handler."""
        tool = next((tool for tool in self.tools if tool.type == type), None)
        if tool is None:
            raise BadInput(f"There is no tool for {type!r}{suggest(type, self._handlers)}.")
        return _function(tool, self._handlers[type], self._start)

    def service(self, name: str) -> AgentFunction:
        """One tool for all types of a service, `{name}_task_tool(task_type, parameters)`: the types
        that begin with its name and a dot."""
        mine = tuple(type for type in self._handlers if type.startswith(f"{name}."))
        if not mine:
            raise BadInput(f"No type begins with {name!r} and a dot: there is no such service.")

        async def run(task_type: str, parameters: dict[str, Any]) -> Told:
            if task_type not in mine:
                known = ", ".join(mine)
                return words.refusal(BadInput(f"{task_type!r} is none of {name!r}: give {known}."))
            return await self._start(task_type, parameters)

        run.__name__ = run.__qualname__ = f"{name}_task_tool"
        run.__doc__ = f"Start a task of the {name} service: {', '.join(mine)}. {AT_ONCE}"
        run.__annotations__ = {"task_type": str, "parameters": dict[str, Any], "return": Told}
        return run

    async def call(self, name: str, arguments: Mapping[str, Any] | str = "{}") -> Told:
        """What a model asked for: the name of a tool, and its arguments as they came."""
        if name not in self._by_name:
            return words.refusal(
                BadInput(f"There is no tool {name!r}{suggest(name, self._by_name) or '.'}")
            )
        try:
            if isinstance(arguments, str):
                told = loads(arguments.strip().encode() or b"{}")
            else:
                told = dict(arguments)
            if not isinstance(told, dict):
                raise BadInput("The arguments of a tool are an object with their names.")
            type = self._by_name[name].type
            if type is not None:
                return await self._start(type, told)
            return await about_tasks(self._desk, name, told)
        except OutlastError as problem:
            return words.refusal(problem)

    async def get_task_result_tool(self, task_id: str) -> Told:
        """Get the result of a task, its error, how far it is, or its place in the queue."""
        return await self.call(RESULT_NAME, {"task_id": task_id})

    async def list_user_tasks_tool(self, status_filter: StatusFilter = "all") -> Told:
        """List the user's tasks, newest first: all, or those of one status."""
        return await self.call(LIST_NAME, {"status_filter": status_filter})

    async def cancel_task_tool(self, task_id: str) -> Told:
        """Cancel a task that waits or runs."""
        return await self.call(CANCEL_NAME, {"task_id": task_id})

    async def _start(self, type: str, arguments: Mapping[str, Any]) -> Told:
        try:
            return words.acknowledgement(await self._desk.enqueue(type, arguments))
        except OutlastError as problem:
            return words.refusal(problem)


# What a model is told ----------------------------------------------------------------------------


def tools_of(kinds: Iterable[Kind], names: Mapping[str, str] = {}) -> list[Tool]:  # read only
    """A tool for each type; names that models' providers take, each of them once."""
    taken = {tool.name for tool in ABOUT_TASKS} | {RESULT, LIST, CANCEL}
    made: list[Tool] = []
    for kind in kinds:
        name = _tool_name(names.get(kind.type, kind.type), taken)
        taken.add(name)
        description = f"{kind.description.rstrip('.')}. {AT_ONCE}"
        made.append(Tool(name, description, kind.schema, kind.type))
    return made


def _tool_name(type: str, taken: set[str]) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", type)
    if len(name) <= MAX_TOOL_NAME and name not in taken:
        return name
    mark = hashlib.sha256(type.encode()).hexdigest()[:8]
    return f"{name[: MAX_TOOL_NAME - 9]}_{mark}"


def _task_id(what: str) -> Mapping[str, object]:
    about = {"type": "string", "description": f"The id of the task {what}."}
    return _object({"task_id": about}, "task_id")


def _object(properties: Mapping[str, object], *required: str) -> Mapping[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


RESULT: Final = "get_task_result"
LIST: Final = "list_tasks"
CANCEL: Final = "cancel_task"
_LISTED: Final = _object({
    "status_filter": {"type": "string", "enum": list(FILTERS), "default": "all"},
    "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LISTED, "default": 20},
})  # fmt: skip
_ABOUT: Final = (
    (RESULT, RESULT_NAME, "Get the result of a task, its error, how far it is, or its place in the"
     " queue.", _task_id("to tell about")),
    (LIST, LIST_NAME, "List the user's tasks, newest first: all, or those of one status.", _LISTED),
    (CANCEL, CANCEL_NAME, "Cancel a task that waits or runs.", _task_id("to cancel")),
)  # fmt: skip
ABOUT_TASKS: Final = tuple(Tool(tool, text, schema) for _, tool, text, schema in _ABOUT)
"""The tools that tell about tasks, under the pattern's names."""
SHORT_NAMES: Final = tuple(Tool(short, text, schema) for short, _, text, schema in _ABOUT)
"""The same, as MCP names them."""


class _One(Struct, forbid_unknown_fields=True):
    task_id: str


class _Many(Struct, forbid_unknown_fields=True):
    status_filter: StatusFilter = "all"
    limit: int = 20


async def about_tasks(desk: Desk, name: str, arguments: Mapping[str, Any]) -> Told:
    """What the tools that tell about tasks do, under either of their names."""
    try:
        if name in (LIST, LIST_NAME):
            return await _list(desk, msgspec.convert(arguments, _Many))
        task_id = msgspec.convert(arguments, _One).task_id
    except msgspec.ValidationError as problem:
        raise BadInput(f"{name}: {problem}.") from problem
    if name in (CANCEL, CANCEL_NAME):
        await desk.cancel(task_id)
        return words.result_of(await desk.find(task_id), None)
    return await result_of(desk, await desk.find(task_id))


async def result_of(desk: Desk, seen: Seen) -> Told:
    """All about one task; one that waits is told its place."""
    waits = words.word_of(seen) == "pending"
    return words.result_of(seen, await desk.place(seen.id) if waits else None)


async def _list(desk: Desk, asked: _Many) -> Told:
    if not 1 <= asked.limit <= MAX_LISTED:
        raise BadInput(f"limit: 1 to {MAX_LISTED}, not {asked.limit}.", field="limit")
    wanted = asked.status_filter
    fits = {"all": None, "failed": ("failed", "timeout")}.get(wanted, (wanted,))
    listed: list[Told] = []
    async with aclosing(desk.tasks(words.statuses_of(wanted))) as found:
        async for seen in found:
            if fits is None or words.word_of(seen) in fits:
                listed.append(words.summary(seen))
            if len(listed) == asked.limit:
                break
    return {"tasks": listed}


# Functions ---------------------------------------------------------------------------------------


def _kind(handler: Handler[..., Any]) -> Kind:
    text = inspect.getdoc(handler.fn) or str(handler.schema.get("description") or "")
    return Kind(handler.type, text or f"Runs {handler.type}.", handler.schema)


def _function(
    tool: Tool,
    handler: Handler[..., Any],
    start: Callable[[str, Mapping[str, Any]], Awaitable[Told]],
) -> AgentFunction:
    """An async function with the name of the tool and the parameters of the handler."""
    signature = _signature(handler)
    known: Mapping[str, object] = tool.schema.get("properties") or {}  # type: ignore[assignment]  # a mapping
    is_free = list(signature.parameters) == [FREE] != list(known)

    async def run(*args: Any, **kwargs: Any) -> Told:
        try:
            told = signature.bind(*args, **kwargs).arguments
        except TypeError as problem:
            return words.refusal(BadInput(f"{tool.name}: {problem}."))
        if is_free:
            return await start(handler.type, told[FREE])
        # Frameworks fill in what a model left out: that is as if it was not given.
        left_out = {n for n, p in signature.parameters.items() if p.default is None}
        given = {n: v for n, v in told.items() if v is not None or n not in left_out}
        return await start(handler.type, given)

    run.__name__ = run.__qualname__ = tool.name
    run.__module__ = handler.fn.__module__
    run.__doc__ = tool.description
    if is_free and known:
        run.__doc__ += f"\n\n{FREE}: an object with {', '.join(known)}"
    hints = {name: p.annotation for name, p in signature.parameters.items()}
    run.__annotations__ = {**hints, "return": Told}
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


def _signature(handler: Handler[..., Any]) -> inspect.Signature:
    """From the function that runs; from the schema, for types that have no function of their own.
    One that takes whatever it is given, or what is named as no parameter can be (`from`), has the
    one parameter `parameters`."""
    given = list(inspect.signature(handler.fn).parameters.values())
    if handler.signature.takes_context:
        del given[0]
    if any(p.kind is p.VAR_KEYWORD for p in given):
        parameters = _from_schema(handler.schema)
    else:
        hints = typing.get_type_hints(handler.fn, include_extras=True)
        parameters = [p.replace(annotation=hints.get(p.name, Any)) for p in given]
    return inspect.Signature(parameters, return_annotation=Told)


_TYPES: Final[Mapping[object, Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list[Any],
    "object": dict[str, Any],
}


def _from_schema(schema: Mapping[str, Any]) -> list[inspect.Parameter]:
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties") or {}
    required = set(schema.get("required") or ())
    keyword = inspect.Parameter.KEYWORD_ONLY
    takes_anything = not properties and schema.get("additionalProperties", True)
    if takes_anything or not all(map(_can_be_parameter, properties)):
        return [inspect.Parameter(FREE, keyword, annotation=dict[str, Any])]
    made: list[inspect.Parameter] = []
    for name, told in properties.items():
        kind = told.get("type")
        wanted = _TYPES.get(kind, Any) if isinstance(kind, str) else Any
        if name in required:
            made.append(inspect.Parameter(name, keyword, annotation=wanted))
        else:
            made.append(
                inspect.Parameter(
                    name,
                    keyword,
                    default=told.get("default"),
                    annotation=Optional[wanted],  # noqa: UP045  # of a value
                )
            )
    return made


def _can_be_parameter(name: str) -> bool:
    """Of a function; and of the models that frameworks make of functions."""
    return name.isidentifier() and not iskeyword(name) and not name.startswith("_")
