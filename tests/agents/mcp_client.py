"""The official MCP client with the tasks extension, as a client would write it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import mcp_types as types
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim

from .site import until

TASKS = "io.modelcontextprotocol/tasks"


class Handle(types.Result):
    """What a call answers that became a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None
    status_message: str | None = None


class Detailed(types.Result):
    """What `tasks/get` answers."""

    model_config = types.Result.model_config | {"extra": "allow"}
    result_type: Literal["complete"]
    task_id: str
    status: str
    ttl_ms: int | None
    result: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = None


class _Params(types.RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class _Request(types.Request[_Params, str]):
    name_param: ClassVar[str] = "taskId"
    method: str
    params: _Params


class Tasks(ClientExtension):
    """Waits for tasks by itself, unless it is asked for the handle."""

    identifier = TASKS

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Handle, resolve=self._resolve)]

    async def _resolve(self, handle: Handle, ctx: ClaimContext) -> types.CallToolResult:
        while True:
            params = _Params(task_id=handle.task_id)
            request = _Request(method="tasks/get", params=params)
            found = await ctx.session.send_request(request, Detailed)
            if found.result is not None:
                return types.CallToolResult.model_validate(found.result)
            await asyncio.sleep(0.05)


async def start(client: Client, tool: str, arguments: dict[str, Any]) -> Handle:
    """Call a tool that takes long: the handle of its task."""
    made = await client.session.call_tool(tool, arguments, allow_claimed=True)
    assert isinstance(made, Handle), made
    return made


async def get(client: Client, task_id: str) -> Detailed:
    request = _Request(method="tasks/get", params=_Params(task_id=task_id))
    return await client.session.send_request(request, Detailed)


async def ended(client: Client, task_id: str) -> Detailed:
    """The task once it is over."""

    async def over() -> Detailed | None:
        found = await get(client, task_id)
        return None if found.status in ("working", "input_required") else found

    found: Detailed = await until(over)
    return found


async def cancel(client: Client, task_id: str) -> None:
    request = _Request(method="tasks/cancel", params=_Params(task_id=task_id))
    await client.session.send_request(request, types.EmptyResult)


async def update(client: Client, task_id: str, answers: dict[str, Any]) -> None:
    params = _Params(task_id=task_id, input_responses=answers)
    request = _Request(method="tasks/update", params=params)
    await client.session.send_request(request, types.EmptyResult)
