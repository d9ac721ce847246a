"""Tools of agents: what a model is told, what a framework takes, and whose tasks they are."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import typing
from typing import Any

import pytest
from pydantic import TypeAdapter, create_model

from outlast import BadInput, Context, Outlast
from outlast.agents import AgentTools
from outlast.agents.desk import Kind
from outlast.agents.services import TOOL_NAMES, declare
from outlast.agents.tools import tools_of
from outlast.testing import testing
from outlast.worker import Worker

REPORT = {"quarter": "Q4", "year": 2024}


def make_app() -> Outlast:
    app = Outlast("memory://")
    declare(app)

    @app.task
    async def hello(ctx: Context, name: str, times: int = 2) -> str:
        """Say hello.

        As often as you like.
        """
        await ctx.progress(25, "breathing in")
        return f"hello {name} " * times

    @app.task(max_attempts=1)
    async def fail(why: str) -> None:
        raise ValueError(why)

    return app


def test_the_four_tools_of_the_pattern() -> None:
    tools = AgentTools(make_app(), "s", names=TOOL_NAMES)
    names = [tool.name for tool in tools.tools]
    assert names == [
        "hello",
        "fail",
        "generate_report_tool",
        "analyze_data_tool",
        "process_document_tool",
        "export_data_tool",
        "get_task_result_tool",
        "list_user_tasks_tool",
        "cancel_task_tool",
    ]


def test_tool_json_for_openai_and_anthropic() -> None:
    tools = AgentTools(make_app(), "s", types=["hello"])
    [told, *about] = tools.openai()
    assert told["type"] == "function"
    assert told["function"]["name"] == "hello"
    assert "Say hello" in told["function"]["description"]
    assert "task id" in told["function"]["description"]
    parameters = told["function"]["parameters"]
    assert parameters["properties"]["name"] == {"type": "string"}
    assert parameters["required"] == ["name"]
    assert parameters["additionalProperties"] is False
    assert "$schema" not in parameters
    assert len(about) == 3
    same = tools.anthropic()[0]
    assert set(same) == {"name", "description", "input_schema"}
    assert same["input_schema"] == parameters


@pytest.mark.parametrize("form", ["openai", "anthropic"])
def test_every_tool_has_a_name_that_providers_take(form: str) -> None:
    app = make_app()
    app.external("very/long:" + "name." * 30)
    app.external("report_generate")
    app.external("get_task_result_tool")
    made = getattr(AgentTools(app, "s"), form)()
    names = [tool.get("name") or tool["function"]["name"] for tool in made]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)


def test_names_do_not_meet_those_of_mcp() -> None:
    [tool] = tools_of([Kind("cancel_task", "x", {})])
    assert tool.name != "cancel_task"
    assert tool.name.startswith("cancel_task_")


def test_functions_are_what_frameworks_take() -> None:
    """They build a model of the parameters from name, docstring, signature and annotations."""
    for function in AgentTools(make_app(), "s", names=TOOL_NAMES).functions():
        assert inspect.iscoroutinefunction(function)
        assert function.__doc__
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", function.__name__)
        hints = typing.get_type_hints(function)
        parameters = inspect.signature(function).parameters
        assert hints.keys() == {*parameters, "return"}
        fields: dict[str, Any] = {
            name: (hints[name], ... if p.default is p.empty else p.default)
            for name, p in parameters.items()
        }
        model = create_model(function.__name__, **fields)
        assert TypeAdapter(model).json_schema()["type"] == "object"


def test_parameters_are_those_of_the_handler() -> None:
    tools = AgentTools(make_app(), "s", names=TOOL_NAMES)
    signature = inspect.signature(tools.function("hello"))
    assert list(signature.parameters) == ["name", "times"]  # and no context
    assert signature.parameters["times"].default == 2
    report = inspect.signature(tools.function("report.generate"))
    assert list(report.parameters) == ["quarter", "year", "format"]
    assert report.parameters["year"].annotation is int
    assert report.parameters["format"].default == "pdf"


async def test_a_tool_answers_at_once_and_the_result_is_fetched_later() -> None:
    async with testing(make_app()) as t:
        tools = AgentTools(t.app, "user-123", user_id="ada", priority="high")
        told = await tools.function("hello")("bob", times=1)
        assert told["status"] == "pending"
        assert f"Show task status for {told['task_id']}" in told["message"]
        record = await t.app.handle(told["task_id"]).refresh()
        assert (record.session_id, record.user_id, record.priority) == ("user-123", "ada", 1)
        waiting = await tools.get_task_result_tool(told["task_id"])
        assert (waiting["status"], waiting["queue_position"]) == ("pending", 1)
        await t.run()
        done = await tools.get_task_result_tool(told["task_id"])
        assert (done["status"], done["result"]) == ("completed", "hello bob ")


async def test_the_priority_of_a_type_counts_more_than_that_of_the_session() -> None:
    app = make_app()

    @app.task(priority="low")
    async def calm() -> None: ...

    async with testing(app) as t:
        tools = AgentTools(t.app, "s", priority="high")
        ids = [(await tools.call(name, given))["task_id"]
               for name, given in (("calm", {}), ("hello", {"name": "bob"}))]  # fmt: skip
        assert [(await t.app.handle(id).refresh()).priority for id in ids] == [3, 1]


async def test_what_a_model_does_wrong_is_told_and_changes_nothing() -> None:
    async with testing(make_app()) as t:
        tools = AgentTools(t.app, "s", names=TOOL_NAMES)
        wrong = [
            await tools.call("hello", '{"nam": "bob"}'),
            await tools.call("hello", "not JSON"),
            await tools.call("hello", "[1]"),
            await tools.call("helo"),
            await tools.call("generate_report_tool", {"quarter": "Q9", "year": 2024}),
            await tools.call("get_task_result_tool", {"id": "x"}),
            await tools.call("list_user_tasks_tool", {"status_filter": "broken"}),
            await tools.call("list_user_tasks_tool", {"limit": 1_000}),
            await tools.function("hello")(),
            await tools.get_task_result_tool("x"),
        ]
        assert all(told["status"] == "rejected" and told["error"]["message"] for told in wrong)
        assert "did you mean 'hello'" in wrong[3]["error"]["message"]
        assert (await tools.list_user_tasks_tool())["tasks"] == []
        with pytest.raises(BadInput, match="did you mean 'hello'"):
            AgentTools(t.app, "s", types=["helo"])


async def test_a_model_may_leave_out_all_arguments() -> None:
    async with testing(make_app()) as t:
        tools = AgentTools(t.app, "s")
        for nothing in ("", " ", "{}", {}):  # some models' providers give no object then
            assert (await tools.call("list_user_tasks_tool", nothing))["tasks"] == []


async def test_a_service_has_one_tool_for_all_its_types() -> None:
    async with testing(make_app()) as t:
        tools = AgentTools(t.app, "s")
        tool = tools.service("report")
        assert tool.__name__ == "report_task_tool"
        told = await tool("report.generate", REPORT)
        assert told["task_type"] == "report.generate"
        assert (await tool("data.export", {}))["status"] == "rejected"
        with pytest.raises(BadInput, match="no such service"):
            tools.service("weather")


async def test_what_a_framework_fills_in_is_as_if_left_out() -> None:
    async with testing(make_app()) as t:
        tools = AgentTools(t.app, "s")
        told = await tools.function("data.analyze")(source="sales", question=None)
        record = await t.app.handle(told["task_id"]).refresh()
        assert json.loads(record.payload) == {"source": "sales"}


async def test_a_type_that_takes_anything_has_one_parameter() -> None:
    app = make_app()
    app.external("anything")
    async with testing(app) as t:
        tool = AgentTools(t.app, "s").function("anything")
        assert list(inspect.signature(tool).parameters) == ["parameters"]
        told = await tool(parameters={"a": [1]})
        record = await t.app.handle(told["task_id"]).refresh()
        assert json.loads(record.payload) == {"a": [1]}


@pytest.mark.parametrize("name", ["from", "reply-to", "_id"])
async def test_what_is_named_as_no_parameter_can_be_is_given_in_one(name: str) -> None:
    app = make_app()
    app.external("mail", schema={
        "type": "object",
        "properties": {name: {"type": "string"}, "parameters": {"type": "object"}},
        "required": [name],
    })  # fmt: skip
    async with testing(app) as t:
        tools = AgentTools(t.app, "s")
        assert len(tools.functions()) == len(tools.tools)
        tool = tools.function("mail")
        assert list(inspect.signature(tool).parameters) == ["parameters"]
        assert f"parameters: an object with {name}, parameters" in (tool.__doc__ or "")
        told = await tool(parameters={name: "ada", "parameters": {}})
        record = await t.app.handle(told["task_id"]).refresh()
        assert json.loads(record.payload) == {name: "ada", "parameters": {}}
        assert (await tool(parameters={}))["status"] == "rejected"


async def test_only_the_own_session_sees_a_task() -> None:
    async with testing(make_app()) as t:
        mine, other = AgentTools(t.app, "mine"), AgentTools(t.app, "other")
        told = await mine.function("hello")("bob")
        foreign = await other.get_task_result_tool(told["task_id"])
        nobodys = await other.get_task_result_tool(told["task_id"][:-4] + "0000")
        assert foreign["error"]["code"] == nobodys["error"]["code"] == "not_found"
        assert (await other.cancel_task_tool(told["task_id"]))["error"]["code"] == "not_found"
        assert (await other.list_user_tasks_tool())["tasks"] == []
        assert len((await mine.list_user_tasks_tool())["tasks"]) == 1
        assert (await mine.cancel_task_tool(told["task_id"]))["status"] == "cancelled"
        again = await mine.cancel_task_tool(told["task_id"])
        assert again["error"]["code"] == "conflict"


async def test_tasks_are_listed_by_status() -> None:
    async with testing(make_app()) as t:
        tools = AgentTools(t.app, "s")
        await tools.function("fail")(why="no paper")
        await tools.function("hello")("bob")
        await t.run()
        await tools.function("report.generate")(**REPORT)
        listed = {
            wanted: [
                one["task_type"] for one in (await tools.list_user_tasks_tool(wanted))["tasks"]
            ]
            for wanted in ("all", "pending", "processing", "completed", "failed", "cancelled")
        }
        assert listed == {
            "all": ["report.generate", "hello", "fail"],
            "pending": ["report.generate"],
            "processing": [],
            "completed": ["hello"],
            "failed": ["fail"],
            "cancelled": [],
        }
        [failed] = (await tools.list_user_tasks_tool("failed"))["tasks"]
        assert failed["summary"] == "no paper"
        told = await tools.get_task_result_tool(failed["task_id"])
        assert told["error"]["message"] == "no paper"


async def test_what_is_worked_on_is_listed_also_behind_many_that_wait() -> None:
    app, gate, begun = make_app(), asyncio.Event(), asyncio.Event()

    @app.task
    async def slow() -> None:
        begun.set()
        await gate.wait()

    async with testing(app) as t:
        tools = AgentTools(t.app, "s")
        first = (await tools.function("slow")())["task_id"]
        work = asyncio.create_task(Worker(t.app).drain())
        await begun.wait()
        later = slow.options(session_id="s", after=[first])  # blocked, as what services have is
        await t.app.enqueue([later.call() for _ in range(120)])
        [told] = (await tools.list_user_tasks_tool("processing"))["tasks"]
        assert told["task_id"] == first
        waiting = await tools.call("list_user_tasks_tool", {"status_filter": "pending"})
        assert len(waiting["tasks"]) == 20
        gate.set()
        await work


async def test_how_far_it_is_and_how_long_it_may_take() -> None:
    app, gate, begun = make_app(), asyncio.Event(), asyncio.Event()

    @app.task(overdue_after="5m")
    async def slow(ctx: Context) -> None:
        await asyncio.sleep(0.02)  # so that time has passed when it tells
        await ctx.progress(50, "half way")
        begun.set()
        await gate.wait()

    async with testing(app) as t:
        tools = AgentTools(t.app, "s")
        task_id = (await tools.function("slow")())["task_id"]
        work = asyncio.create_task(Worker(t.app).drain())
        await begun.wait()
        told = await tools.get_task_result_tool(task_id)
        while told.get("progress") is None:  # it is stored in the worker's next turn
            told = await tools.get_task_result_tool(task_id)
        assert told["status"] == "processing"
        assert (told["progress"]["percent"], told["progress"]["message"]) == (50, "half way")
        assert told["progress"]["eta_seconds"] >= 0
        [listed] = (await tools.list_user_tasks_tool("processing"))["tasks"]
        assert listed["summary"] == "50 % half way"
        gate.set()
        await work


async def test_whoever_cancels_what_runs_is_told_that_it_will_end() -> None:
    app, gate, begun = make_app(), asyncio.Event(), asyncio.Event()

    @app.task
    async def slow() -> None:
        begun.set()
        try:
            await gate.wait()
        finally:
            await gate.wait()  # it clears up first

    async with testing(app) as t:
        tools = AgentTools(t.app, "s")
        task_id = (await tools.function("slow")())["task_id"]
        work = asyncio.create_task(Worker(t.app).drain())
        await begun.wait()
        told = await tools.cancel_task_tool(task_id)
        assert told["status"] == "processing"
        assert told["message"] == "It is being cancelled: cancelled by the agent."
        gate.set()
        await work


async def test_the_message_of_one_that_takes_longer() -> None:
    async with testing(make_app()) as t:
        tools = AgentTools(t.app, "s")
        task_id = (await tools.function("report.generate")(**REPORT))["task_id"]
        await t.advance("301s")
        told = await tools.get_task_result_tool(task_id)
    assert told["message"] == (
        "Your report.generate is taking longer than expected.\nThe task is still running. I'll"
        " notify you when it completes,\nor you can check status with: 'Show task status for"
        f" {task_id}'"
    )
