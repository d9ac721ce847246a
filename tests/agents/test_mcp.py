"""`outlast mcp`, looked at by the official client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from outlast import Context, Outlast
from outlast.access import Signer, create_key
from outlast.agents.desk import AppDesk
from outlast.agents.mcp import make_server
from outlast.worker import Worker
from tests.http.site import serving

from .mcp_client import Tasks, cancel, ended, get, start, update
from .site import until

APP = '''
import asyncio
from pathlib import Path
from outlast import Context, Outlast

app = Outlast("sqlite:///tasks.db")

@app.task
async def gated(ctx: Context, name: str) -> str:
    """Runs until somebody writes the file <name>.go."""
    await ctx.progress(50, "half way")
    while not Path(f"{name}.go").exists():
        await asyncio.sleep(0.02)
    return f"opened {name}"

@app.task
async def quick(name: str) -> dict[str, str]:
    """Over at once."""
    return {"hello": name}
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With an app in it; the worker of the test runs what is enqueued there."""
    (tmp_path / "main.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("OUTLAST_")]:
        monkeypatch.delenv(name)
    return tmp_path


@asynccontextmanager
async def working(folder: Path) -> AsyncIterator[Outlast]:
    space: dict[str, Any] = {"__name__": "main"}
    exec((folder / "main.py").read_text(), space)  # noqa: S102  # our own, above
    app: Outlast = space["app"]
    worker = Worker(app, grace_ms=0)
    async with app:
        running = asyncio.create_task(worker.run())
        await worker.ready.wait()
        try:
            yield app
        finally:
            worker.stop_now()
            await running


def at_stdio(*args: str) -> StdioServerParameters:
    # Unlike the client, we want all of the environment: the interpreter's, and that of coverage.
    env = dict(os.environ)
    return StdioServerParameters(
        command=sys.executable, args=["-m", "outlast", "mcp", *args], env=env
    )


@asynccontextmanager
async def over_http(*args: str, **env: str) -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "outlast", "mcp", "--http", "--port", "0", *args,
        env={**os.environ, **env}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        said = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        assert said.startswith("Serving http://"), said
        yield said.split()[1]
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def reached(kind: str) -> AsyncIterator[Any]:
    """A new server process of that kind."""
    if kind == "stdio":
        yield at_stdio()
    else:
        async with over_http() as address:
            yield address


@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_a_long_call_is_a_task_that_outlives_the_server(kind: str, folder: Path) -> None:
    async with working(folder):
        async with reached(kind) as target, Client(target, extensions=[Tasks()]) as client:
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert list(listed) == [
                "gated",
                "quick",
                "get_task_result",
                "list_tasks",
                "cancel_task",
            ]
            assert listed["gated"].input_schema["required"] == ["name"]
            handle = await start(client, "gated", {"name": "a"})
            assert (handle.status, handle.ttl_ms) == ("working", None)
            assert (await get(client, handle.task_id)).status == "working"
            other = await start(client, "gated", {"name": "b"})
            await cancel(client, other.task_id)
            assert (await ended(client, other.task_id)).status == "cancelled"
            await cancel(client, other.task_id)  # too late, and no error
        (folder / "a.go").touch()
        async with reached(kind) as target, AsyncExitStack() as stack:
            client = await stack.enter_async_context(Client(target, extensions=[Tasks()]))
            done = await ended(client, handle.task_id)
            assert done.status == "completed"
            assert done.result is not None
            assert done.result["content"][0]["text"] == "opened a"
            assert done.result["isError"] is False
            assert (await client.call_tool("gated", {"name": "a"})).content[0].text == "opened a"
            if kind == "http":  # one of the old protocol, beside it
                old = await stack.enter_async_context(Client(target, mode="legacy"))
                told = await old.call_tool("get_task_result", {"task_id": handle.task_id})
                assert told.structured_content["result"] == "opened a"


@asynccontextmanager
async def here(
    session: str = "mcp", redact: list[str] | None = None, **options: Any
) -> AsyncIterator[tuple[Outlast, Any, Worker]]:
    """A server in this process, and a worker that has not begun."""
    app = Outlast("memory://", redact=redact)
    gate = asyncio.Event()

    @app.task
    async def gated(name: str) -> str:
        await gate.wait()
        return f"opened {name}"

    @app.task
    async def quick(name: str) -> dict[str, str]:
        gate.set()
        return {"hello": name}

    @app.task(max_attempts=1)
    async def fail() -> None:
        raise ValueError("no paper")

    @app.task
    async def ask(ctx: Context) -> str:
        return f"they said {await ctx.ask('May I?')}"

    async with app:
        desk = AppDesk(app, session)

        async def desk_of(ctx: object) -> AppDesk:
            return desk

        yield app, make_server(desk_of, **options), Worker(app)


@asynccontextmanager
async def at_work(worker: Worker) -> AsyncIterator[None]:
    running = asyncio.create_task(worker.run())
    await worker.ready.wait()
    try:
        yield
    finally:
        worker.stop_now()
        await running


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_without_the_extension_gets_a_handle_and_the_result(mode: str) -> None:
    async with here() as (_, server, worker), Client(server, mode=mode) as client:
        told = await client.call_tool("gated", {"name": "x"})
        assert told.is_error is False
        assert "Show task status for" in told.structured_content["message"]
        task_id = told.structured_content["task_id"]
        waiting = await client.call_tool("get_task_result", {"task_id": task_id})
        assert waiting.structured_content["status"] == "pending"
        assert waiting.structured_content["queue_position"] == 1
        async with at_work(worker):
            await client.call_tool("quick", {"name": "y"})  # opens the gate

            async def over() -> Any:
                told = await client.call_tool("get_task_result", {"task_id": task_id})
                return told.structured_content if "result" in told.structured_content else None

            assert (await until(over))["result"] == "opened x"
        listed = await client.call_tool("list_tasks", {"status_filter": "completed"})
        assert {one["task_type"] for one in listed.structured_content["tasks"]} == {
            "gated",
            "quick",
        }
        third = (await client.call_tool("gated", {"name": "z"})).structured_content["task_id"]
        gone = await client.call_tool("cancel_task", {"task_id": third})
        assert gone.structured_content["status"] == "cancelled"


async def test_a_call_that_is_over_in_time_is_no_task() -> None:
    async with (
        here(wait_s=30) as (_, server, worker),
        at_work(worker),
        Client(server, extensions=[Tasks()]) as client,
    ):
        told = await client.session.call_tool("quick", {"name": "x"}, allow_claimed=True)
        assert isinstance(told, types.CallToolResult)
        assert told.structured_content == {"hello": "x"}
        failed = await client.session.call_tool("fail", {}, allow_claimed=True)
        assert isinstance(failed, types.CallToolResult)
        assert failed.is_error
        assert failed.structured_content["error"]["message"] == "no paper"


async def test_a_tool_that_failed_has_completed_with_an_error() -> None:
    async with (
        here(wait_s=0) as (_, server, worker),
        Client(server, extensions=[Tasks()]) as client,
    ):
        handle = await start(client, "fail", {})
        async with at_work(worker):
            done = await ended(client, handle.task_id)
        assert done.status == "completed"
        assert done.result is not None
        assert done.result["isError"] is True


async def test_a_task_that_asks_a_person_is_answered_by_the_client() -> None:
    async def elicit(*_: Any) -> types.ElicitResult:
        raise AssertionError("questions of tasks come with tasks/get")

    async with (
        here(wait_s=0) as (_, server, worker),
        at_work(worker),
        Client(server, extensions=[Tasks()], elicitation_callback=elicit) as client,
        Client(server, extensions=[Tasks()]) as formless,
    ):
        handle = await start(client, "ask", {})

        async def asked() -> Any:
            return (await get(client, handle.task_id)).input_requests

        [(key, request)] = (await until(asked)).items()
        assert request["method"] == "elicitation/create"
        assert request["params"]["message"] == "May I?"
        assert (await get(formless, handle.task_id)).status == "working"  # has no forms
        await update(client, handle.task_id, {"unknown": {"action": "accept"}})
        answer = {"action": "accept", "content": {"answer": "yes"}}
        await update(client, handle.task_id, {key: answer})
        done = await ended(client, handle.task_id)
        assert done.result is not None
        assert done.result["content"][0]["text"] == "they said yes"


@pytest.mark.parametrize("name", ["data", "question"])
async def test_a_question_that_is_hidden_by_name_can_be_answered(name: str) -> None:
    async def elicit(*_: Any) -> types.ElicitResult:
        raise AssertionError("questions of tasks come with tasks/get")

    async with (
        here(wait_s=0, redact=[name]) as (_, server, worker),
        at_work(worker),
        Client(server, extensions=[Tasks()], elicitation_callback=elicit) as client,
    ):
        handle = await start(client, "ask", {})

        async def asked() -> Any:
            return (await get(client, handle.task_id)).input_requests

        [(key, request)] = (await until(asked)).items()
        assert request["params"]["message"] == "***"
        answer = {"action": "accept", "content": {"answer": "yes"}}
        await update(client, handle.task_id, {key: answer})
        assert (await ended(client, handle.task_id)).status == "completed"


async def test_what_is_wrong_is_told() -> None:
    async with (
        here(wait_s=0) as (_, server, _worker),
        Client(server, extensions=[Tasks()]) as client,
        Client(server) as plain,
    ):
        with pytest.raises(MCPError, match="did you mean 'quick'") as unknown:
            await client.call_tool("quik", {})
        assert unknown.value.code == types.INVALID_PARAMS
        wrong = await client.call_tool("quick", {"nam": "x"})
        assert wrong.is_error
        assert "did you mean 'name'" in wrong.content[0].text
        with pytest.raises(MCPError) as gone:
            await get(client, "018f0000-0000-7000-8000-000000000000")
        assert gone.value.code == types.INVALID_PARAMS
        with pytest.raises(MCPError) as missing:
            await get(plain, "018f0000-0000-7000-8000-000000000000")
        assert missing.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
        assert missing.value.data == {
            "requiredCapabilities": {"extensions": {Tasks.identifier: {}}}
        }


async def test_another_sessions_task_is_not_there() -> None:
    async with here(wait_s=0) as (app, server, _worker):
        foreign = await app.submit("quick", {"name": "x"}, session_id="somebody-else")
        async with Client(server, extensions=[Tasks()]) as client:
            for call in (get, cancel):
                with pytest.raises(MCPError) as hidden:
                    await call(client, foreign.id)
                assert hidden.value.code == types.INVALID_PARAMS
            told = await client.call_tool("get_task_result", {"task_id": foreign.id})
            assert told.structured_content["error"]["code"] == "not_found"
            listed = await client.call_tool("list_tasks", {})
            assert listed.structured_content == {"tasks": []}
        assert await foreign.status() == "ready"


@asynccontextmanager
async def bearing(address: str, text: str) -> AsyncIterator[Client]:
    headers = {"authorization": f"Bearer {text}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        transport = streamable_http_client(address, http_client=http)
        async with Client(transport, extensions=[Tasks()]) as client:
            yield client


async def test_over_http_everybody_has_the_tasks_of_their_key_or_token(folder: Path) -> None:
    async with working(folder) as app:
        ada, _ = await create_key(app.engine, "client", name="ada", rate="1000/s")
        bob, _ = await create_key(app.engine, "client", name="bob")
        looker, _ = await create_key(app.engine, "client", name="looker", read_only=True)
        token = await Signer(app.engine).token("user-123")
        async with over_http() as address, httpx2.AsyncClient() as http:
            nobody = await http.post(address, json={})
            assert nobody.status_code == 401
            stranger = await http.post(address, json={}, headers={"authorization": "Bearer olk_no"})
            assert stranger.status_code == 401
            page = {"authorization": f"Bearer {ada}", "origin": "https://evil.example"}
            assert (await http.post(address, json={}, headers=page)).status_code == 403
            async with bearing(address, ada) as client:
                mine = await start(client, "gated", {"name": "a"})
                assert (await get(client, mine.task_id)).status == "working"
            async with bearing(address, bob) as client:
                with pytest.raises(MCPError):
                    await get(client, mine.task_id)
            async with bearing(address, token) as client:
                assert "gated" in [tool.name for tool in (await client.list_tools()).tools]
                with pytest.raises(MCPError):
                    await get(client, mine.task_id)
                own = await start(client, "gated", {"name": "t"})
                record = await app.handle(own.task_id).refresh()
                assert record.session_id == "user-123"
                told = await client.call_tool("list_tasks", {})
                assert [one["task_id"] for one in told.structured_content["tasks"]] == [own.task_id]
            async with bearing(address, looker) as client:
                refused = await client.call_tool("quick", {"name": "x"})
                assert refused.is_error


async def test_without_keys_other_sites_and_names_are_refused(folder: Path) -> None:
    async with over_http() as address, httpx2.AsyncClient() as http:
        evil = await http.post(address, json={}, headers={"origin": "https://evil.example"})
        assert evil.status_code == 403
        rebound = await http.post(address, json={}, headers={"host": "evil.example"})
        assert rebound.status_code == 421
    refused = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "outlast", "mcp", "--http", "--host", "0.0.0.0",  # noqa: S104  # refused
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await refused.communicate()
    assert refused.returncode == 2
    assert b"Refusing to listen" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_though_nobody_closes_its_input(
    folder: Path, number: signal.Signals
) -> None:
    heed = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # also in the background
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", f"import signal; {heed}; import outlast.cli; outlast.cli.main()",
        "mcp", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        assert b"result" in await asyncio.wait_for(process.stdout.readline(), 60)
        process.send_signal(number)
        assert await asyncio.wait_for(process.wait(), 30) == -number
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_it_may_work_on_a_server(folder: Path) -> None:
    app = Outlast("memory://")

    @app.task
    async def quick(name: str) -> dict[str, str]:
        """Over at once."""
        return {"hello": name}

    async with serving(app, working=True) as site:
        target = at_stdio("--server", site.address, "--session", "s-1", "--wait", "30s")
        async with Client(target, extensions=[Tasks()]) as client:
            assert "quick" in [tool.name for tool in (await client.list_tools()).tools]
            told = await client.call_tool("quick", {"name": "x"})
            assert told.structured_content == {"hello": "x"}
            listed = (await client.call_tool("list_tasks", {})).structured_content["tasks"]
            again = await client.call_tool("get_task_result", {"task_id": listed[0]["task_id"]})
            assert again.structured_content["result"] == {"hello": "x"}
            foreign = await app.submit("quick", {"name": "y"}, session_id="other")
            hidden = await client.call_tool("get_task_result", {"task_id": foreign.id})
            assert hidden.structured_content["error"]["code"] == "not_found"
    assert json.dumps(listed)
