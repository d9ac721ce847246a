"""An MCP server over task types: each is a tool, and a call that takes long becomes a task.

For clients that declare the tasks extension (`io.modelcontextprotocol/tasks`) a call answers with
the handle of a task, which they poll, answer and cancel; its id is Outlast's, so that it outlives
this server. Other clients get the id as text, with three tools that tell about tasks. Which desk
serves a request is for the caller to say: one for stdio, that of whoever asks over HTTP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    RequestParams,
    TextContent,
)
from mcp_types import Tool as McpTool
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from outlast import __version__
from outlast.agents import words
from outlast.agents.desk import Desk, Seen
from outlast.agents.tools import SHORT_NAMES, Tool, about_tasks, tools_of
from outlast.agents.words import Told
from outlast.core.errors import BadInput, Conflict, NotFound, OutlastError, suggest
from outlast.core.secret import MASK
from outlast.steps import ANSWER

P = ParamSpec("P")
R = TypeVar("R")

Context = ServerRequestContext[Any, Any]
DeskOf = Callable[[Context], Awaitable[Desk]]

TASKS: Final = "io.modelcontextprotocol/tasks"
POLL_MS: Final = 1_000
WAIT_S: Final = 0.15
"""How long a call waits for its result before it becomes a task; agents answer within 200 ms."""
MAX_WAIT_S: Final = 60.0
INSTRUCTIONS: Final = (
    "Tools run durable tasks. One that takes long answers with a task id: go on, and ask for the"
    " result later. Tasks outlive this connection and this server."
)
_MINE: Final = {tool.name for tool in SHORT_NAMES}


class _TaskParams(RequestParams):
    task_id: str = Field(alias="taskId")


class _UpdateParams(_TaskParams):
    input_responses: dict[str, Any] = Field(alias="inputResponses", default_factory=dict)


def make_server(desk_of: DeskOf, *, wait_s: float = WAIT_S) -> Server[Any]:
    """A server for `run_stdio`, or for `streamable_http_app`."""
    if not 0 <= wait_s <= MAX_WAIT_S:
        raise BadInput(f"A call may wait 0 to {MAX_WAIT_S:g} s, not {wait_s:g}.", field="wait")
    face = _Face(desk_of, wait_s)
    server: Server[Any] = Server(
        "outlast",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=face.list_tools,
    )
    server.extensions[TASKS] = {}
    server.add_request_handler("tools/call", CallToolRequestParams, face.call_tool)
    server.add_request_handler("tasks/get", _TaskParams, face.get_task)
    server.add_request_handler("tasks/update", _UpdateParams, face.update_task)
    server.add_request_handler("tasks/cancel", _TaskParams, face.cancel_task)
    return server


async def run_stdio(server: Server[Any]) -> None:
    """Serve the one client at standard input and output, until it closes them."""
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def _told(
    method: Callable[Concatenate[_Face, P], Awaitable[R]],
) -> Callable[Concatenate[_Face, P], Coroutine[Any, Any, R]]:
    """What goes wrong is told as an error of the protocol."""

    @wraps(method)
    async def run(face: _Face, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await method(face, *args, **kwargs)
        except (BadInput, NotFound) as problem:
            raise MCPError(INVALID_PARAMS, str(problem)) from problem
        except OutlastError as problem:
            raise MCPError(INTERNAL_ERROR, str(problem)) from problem

    return run


class _Face:
    """The methods, each for the desk of whoever calls."""

    def __init__(self, desk_of: DeskOf, wait_s: float) -> None:
        self._desk_of = desk_of
        self._wait_s = wait_s

    @_told
    async def list_tools(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        desk = await self._desk_of(ctx)
        tools = [*await _tools(desk), *SHORT_NAMES]
        return ListToolsResult(tools=[_listed(tool) for tool in tools])

    @_told
    async def call_tool(
        self, ctx: Context, params: CallToolRequestParams
    ) -> CallToolResult | dict[str, Any]:
        """A result; or, if it takes longer, a task, or text that says how to ask for it."""
        desk = await self._desk_of(ctx)
        arguments = params.arguments or {}
        try:
            if params.name in _MINE:
                return _result(await about_tasks(desk, params.name, arguments))
            seen = await desk.enqueue(await _type_of(desk, params.name), arguments)
        except OutlastError as problem:
            return _result(words.refusal(problem), is_error=True)
        if self._wait_s:
            seen = await desk.wait(seen.id, self._wait_s)
        if seen.is_over:
            return _ended(seen)
        if _knows_tasks(ctx):
            return {"resultType": "task", **_task(seen)}
        return _result(words.acknowledgement(seen))

    @_told
    async def get_task(self, ctx: Context, params: _TaskParams) -> dict[str, Any]:
        desk = await self._desk_for_tasks(ctx)
        seen = await desk.find(params.task_id)
        told = {"resultType": "complete", **_task(seen)}
        question = _question(seen)
        if seen.status in ("completed", "dead"):
            told["result"] = _ended(seen).model_dump(by_alias=True, mode="json", exclude_none=True)
        elif question is not None and _knows_forms(ctx):
            told |= {"status": "input_required", "inputRequests": question}
        return told

    @_told
    async def update_task(self, ctx: Context, params: _UpdateParams) -> dict[str, Any]:
        """Answers to what was asked; others are ignored."""
        desk = await self._desk_for_tasks(ctx)
        seen = await desk.find(params.task_id)
        for key in _question(seen) or {}:
            if key in params.input_responses:
                await desk.signal(seen.id, key, _answer(params.input_responses[key]))
        return {}

    @_told
    async def cancel_task(self, ctx: Context, params: _TaskParams) -> dict[str, Any]:
        desk = await self._desk_for_tasks(ctx)
        seen = await desk.find(params.task_id)
        with suppress(Conflict):  # it is over: a cancel that comes too late is acknowledged, too
            await desk.cancel(seen.id)
        return {}

    async def _desk_for_tasks(self, ctx: Context) -> Desk:
        if not _knows_tasks(ctx):
            needed: Told = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            raise MCPError(
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"Declare the extension {TASKS!r} in this request to use its methods.",
                needed,
            )
        return await self._desk_of(ctx)


def _knows_tasks(ctx: Context) -> bool:
    """Was the extension declared? Since 2026-07-28 that is said in every request."""
    told = ctx.session.client_capabilities
    modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    return modern and told is not None and TASKS in (told.extensions or {})


def _knows_forms(ctx: Context) -> bool:
    told = ctx.session.client_capabilities
    return told is not None and told.elicitation is not None


# Tools -------------------------------------------------------------------------------------------


async def _tools(desk: Desk) -> list[Tool]:
    return tools_of(await desk.kinds())


async def _type_of(desk: Desk, name: str) -> str:
    tools = await _tools(desk)
    for tool in tools:
        if tool.name == name and tool.type is not None:
            return tool.type
    known = [*(tool.name for tool in tools), *_MINE]
    raise MCPError(INVALID_PARAMS, f"There is no tool {name!r}{suggest(name, known) or '.'}")


def _listed(tool: Tool) -> McpTool:
    schema = {name: part for name, part in tool.schema.items() if name != "title"}
    return McpTool(name=tool.name, description=tool.description, input_schema=schema)


# Tasks -------------------------------------------------------------------------------------------


def _task(seen: Seen) -> Told:
    """The fields that every task has."""
    told: Told = {
        "taskId": seen.id,
        "status": _STATUS.get(seen.status, "working"),
        "createdAt": seen.created_at,
        "lastUpdatedAt": seen.updated_at,
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }
    message = _message(seen)
    return told | ({"statusMessage": message} if message else {})


# `failed` is for errors of the protocol: a tool that failed has completed, with an error.
_STATUS: Final[Mapping[str, str]] = {
    "completed": "completed",
    "dead": "completed",
    "cancelled": "cancelled",
}


def _message(seen: Seen) -> str:
    if seen.late:
        return words.late(seen)
    if seen.status == "cancelled":
        return seen.reason or ""
    if seen.progress is not None and not seen.is_over:
        return f"{seen.progress['percent']:g} % {seen.progress['message']}".strip()
    return seen.status


def _ended(seen: Seen) -> CallToolResult:
    if seen.status == "completed":
        return _result(seen.result)
    return _result(words.result_of(seen, None), is_error=True)


def _result(value: object, *, is_error: bool = False) -> CallToolResult:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=value if isinstance(value, dict) else None,
        is_error=is_error,
    )


def _question(seen: Seen) -> dict[str, Any] | None:
    """What a person is asked, as a request to the client; its key is the signal that answers."""
    signal = (seen.parked or "").removeprefix("signal:")
    if not signal.startswith(ANSWER):
        return None
    data = (seen.progress or {}).get("data")
    asked = data.get("question") if isinstance(data, dict) else None
    message = asked.get("question", MASK) if isinstance(asked, dict) else MASK  # hidden by name
    answer = {"type": "string", "title": "Answer"}
    form = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    told = {"mode": "form", "message": str(message), "requestedSchema": form}
    return {signal: {"method": "elicitation/create", "params": told}}


def _answer(told: Any) -> object:
    """Of a person who declined or closed the form there is none."""
    if not isinstance(told, Mapping) or told.get("action") != "accept":
        return None
    content = told.get("content")
    return content.get("answer") if isinstance(content, Mapping) else None
