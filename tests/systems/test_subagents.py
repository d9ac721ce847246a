"""Sub-agents: programs at work on prompts; every way in which one can end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outlast import BadInput, Limit, Outlast, Permanent
from outlast.systems.subagents import Agent, SubAgents, TaskTool
from outlast.systems.taskqueue import TaskQueue
from outlast.testing import testing
from outlast.worker import Worker, isolate
from tests.chaos.fleet import alive, until
from tests.http.site import Site, serving
from tests.servers import redis

from .agentsapp import HERE, agents, app

SAID = {"said": "hello", "model": "small", "system": "", "task": True, "mood": "calm",
        "folder": HERE.name}  # fmt: skip


async def test_what_an_agent_prints_is_streamed_and_its_last_word_is_the_result() -> None:
    tool = TaskTool(agents)
    async with testing(app) as t:
        made = await tool.run(
            "say hello", "researcher", persist=True, tags=["night"], user_id="ada", priority=7
        )
        assert made.status == "pending"
        assert made.task_id is not None
        await t.run()
        told = await tool.result(made.task_id, timeout="1s")
        assert (told.status, told.result, told.exit_code) == ("completed", SAID, 0)
        handle = app.handle(made.task_id)
        stored = await t.task(handle)
        assert (stored.type, stored.queue, stored.priority) == ("agent.researcher", "agents", 7)
        assert (stored.user_id, stored.tags) == ("ada", ("night",))
        chunks = [str(e.data["chunk"]) for e in await t.events(handle) if e.kind == "chunk"]
        assert "".join(chunks).splitlines()[0] == "reading the prompt"


async def test_without_persist_the_agent_runs_here_and_nothing_is_kept() -> None:
    tool = TaskTool(agents)
    told = await tool.run("say hello", "researcher", model="large", system_prompt="Be brief.")
    assert told.status == "completed"
    assert told.result == {**SAID, "model": "large", "system": "Be brief."}
    assert told.task_id is None
    told = await tool.run("mistake", "coder")
    assert (told.status, told.exit_code) == ("failed", 1)
    assert "SyntaxError" in str(told.error)
    with pytest.raises(BadInput, match="did you mean 'researcher'"):
        await tool.run("say hello", "reseacher")


async def test_without_persist_an_agent_that_cannot_begin_has_failed_likewise() -> None:
    elsewhere = SubAgents(Outlast("memory://"), {"lost": Agent(["no-such-agent"])})
    told = await TaskTool(elsewhere).run("say hello", "lost")
    assert told.status == "failed"
    assert "no command 'no-such-agent'" in str(told.error)


# The design's table of errors: what happened, its code, whether it is tried again, for how long.
@pytest.mark.parametrize(
    ("kind", "prompt", "code", "status"),
    [
        ("researcher", "crash", "crashed", "retrying"),
        ("researcher", "mistake", "syntax_error", "dead"),
        ("researcher", "refused", "rate_limit", "retrying"),
        ("researcher", "unplugged", "network", "retrying"),
        ("coder", "eat", "out_of_memory", "dead"),
    ],
)
async def test_how_it_ended_decides_what_follows(
    kind: str, prompt: str, code: str, status: str
) -> None:
    async with testing(app) as t:
        handle = await agents.handler(kind).enqueue(prompt)
        await t.run()
        task = await t.task(handle)
        error = json.loads(task.error or b"{}")
        assert (task.status, error["code"]) == (status, code), error
        assert error["details"]["exit_code"] != 0
        alerts = [e.data["code"] for e in await t.events(handle) if e.kind == "alert"]
        assert alerts == (["out_of_memory"] if code == "out_of_memory" else [])


async def test_a_provider_that_refuses_gets_its_rest_from_all_agents_under_its_limit() -> None:
    refused = [sys.executable, "-c", "import sys; sys.exit('429 Too Many Requests')"]
    app = Outlast("memory://", limits=[Limit("provider", slots=1)])
    kinds = {
        "coder": Agent(refused, limits=["provider"]),
        "reviewer": Agent(limits=["provider"]),  # fetched by hand
    }
    limited = SubAgents(app, kinds)
    tool = TaskTool(limited)
    async with testing(app) as t, TaskQueue(limited) as queue:
        coder = (await tool.run("a", "coder", persist=True)).task_id or ""
        await t.run()
        task = await app.handle(coder).refresh()
        assert (task.status, task.attempt) == ("throttled", 0)
        assert json.loads(task.error or b"")["code"] == "rate_limit"
        reviewer = (await tool.run("b", "reviewer", persist=True)).task_id or ""
        assert await queue.dequeue("agent", timeout_ms=0) is None
        assert await app.handle(reviewer).status() == "throttled"


async def test_crashes_are_tried_again_after_powers_of_two() -> None:
    async with testing(app) as t:
        handle = await agents.handler("researcher").enqueue("crash")
        for wait_s in (2, 4, 8):
            await t.run()
            task = await t.task(handle)
            assert 0.8 * wait_s <= (task.run_at - task.updated_at) / 1_000 <= 1.2 * wait_s
            await t.advance("10s")
        await t.run()
        assert await t.status(handle) == "dead"


async def test_after_a_timeout_the_next_attempt_has_twice_the_time(tmp_path: Path) -> None:
    async with testing(app) as t:
        pids = tmp_path / "pids"
        handle = await agents.handler("hasty").enqueue(f"hang {pids}")
        await t.run()
        task = await t.task(handle)
        assert (task.status, task.timeout_ms) == ("retrying", 4_000)
        assert json.loads(task.error or b"{}")["code"] == "timed_out"
        while not pids.exists():  # on a slow machine it has not even begun in 2 s
            await t.advance("5m")
            await t.run()
        await gone(pids)


async def test_cancelling_ends_the_agent_and_whatever_it_had_started(tmp_path: Path) -> None:
    app.use("memory://")
    async with app:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        pids = tmp_path / "pids"
        handle = await agents.handler("researcher").enqueue(f"hang {pids}")
        await until(lambda: pids.exists() and bool(pids.read_text()), within_s=30)
        await handle.cancel()
        await until(lambda: status_is(handle, "cancelled"), within_s=30)
        await gone(pids)
        worker.stop()
        await running


async def status_is(handle: object, status: str) -> bool:
    return await handle.status() == status  # type: ignore[attr-defined]


async def gone(pids: Path) -> None:
    """Until they are: who was killed needs a moment of the processor to die."""
    await until(lambda: not any(map(alive, map(int, pids.read_text().split()))), within_s=30)


async def test_what_an_agent_leaves_behind_does_not_hold_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolate, "KILL_AFTER_S", 0.2)
    tool, pids = TaskTool(agents), tmp_path / "pids"
    told = await tool.run(f"leave {pids}", "researcher")
    assert (told.status, told.result) == ("completed", {"said": "done"})
    agent, left = map(int, pids.read_text().split())
    await until(lambda: not alive(agent) and not alive(left), within_s=30)


async def test_cancelling_ends_what_an_agent_that_is_over_has_left_behind(tmp_path: Path) -> None:
    tool, pids = TaskTool(agents), tmp_path / "pids"
    running = asyncio.create_task(tool.run(f"leave {pids}", "researcher"))
    await until(lambda: pids.exists() and bool(pids.read_text()), within_s=30)
    agent, left = map(int, pids.read_text().split())
    await until(lambda: not alive(agent), within_s=30)
    running.cancel()
    await asyncio.wait({running})
    await until(lambda: not alive(left), within_s=30)


async def test_what_has_left_the_group_holds_nobody_up(tmp_path: Path) -> None:
    tool, pids = TaskTool(agents), tmp_path / "pids"
    running = asyncio.create_task(tool.run(f"escape {pids}", "researcher"))
    await until(lambda: pids.exists() and bool(pids.read_text()), within_s=30)
    agent, escaped = map(int, pids.read_text().split())
    try:
        running.cancel()
        _, open = await asyncio.wait({running}, timeout=30)
        assert not open
        assert not alive(agent)
    finally:
        os.kill(escaped, signal.SIGKILL)


async def test_an_agent_that_never_stops_talking_is_stopped(tmp_path: Path) -> None:
    async with testing(app) as t:
        handle = await agents.handler("researcher").enqueue(f"flood {tmp_path / 'pids'}")
        await t.run()
        task = await t.task(handle)
        assert (task.status, json.loads(task.error or b"{}")["code"]) == ("dead", "too_large")
        await gone(tmp_path / "pids")
    told = await TaskTool(agents).run(f"flood {tmp_path / 'here'}", "researcher")
    assert (told.status, told.exit_code) == ("failed", None)
    assert "wrote more than" in str(told.error)
    await gone(tmp_path / "here")


async def test_an_agent_that_never_stops_complaining_does_not_fill_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = await TaskTool(agents).run("complain", "researcher")
    assert (told.status, told.exit_code) == ("failed", 1)
    assert str(told.error).endswith("my last word")
    shown = capsys.readouterr().err
    assert 500_000 < len(shown) < 1_200_000
    assert "not shown" in shown


async def test_whatever_is_printed_has_a_result(tmp_path: Path) -> None:
    tool = TaskTool(agents)
    nested = await tool.run("nest", "researcher")
    assert (nested.status, str(nested.result)[-3:]) == ("completed", "[[[")
    shut = await tool.run(f"shut {tmp_path / 'last'}", "researcher")
    assert (shut.status, shut.result) == ("completed", "reading the prompt")
    assert (tmp_path / "last").read_text() == "after its last word"


@pytest.mark.parametrize("words", [
    "java.lang.OutOfMemoryError: Java heap space", "memory allocation of 8589934592 bytes failed",
    "sort: memory exhausted", "fork/exec /bin/true: cannot allocate memory",
    "FATAL ERROR: Reached heap limit - JavaScript heap out of memory",
    "[FATAL] failed to allocate memory (NoMemoryError)",
    "RangeError: Array buffer allocation failed\n    at work (agent.js:4:7)\n\nNode.js v20.20.2",
    "#\n# Fatal process OOM in Failed to reserve virtual memory for CodeRange\n#",
    "bash: xrealloc: cannot allocate 134217856 bytes",
    "PHP Fatal error:  Allowed memory size of 134217728 bytes exhausted",
])  # fmt: skip
async def test_programs_in_other_languages_run_out_of_memory_too(words: str) -> None:
    async with testing(app) as t:
        handle = await agents.handler("coder").enqueue(f"ends {words}")
        await t.run()
        task = await t.task(handle)
        assert (task.status, json.loads(task.error or b"{}")["code"]) == ("dead", "out_of_memory")


@pytest.mark.parametrize("more", ["", " {\n  errno: -2,\n  code: 'ENOENT'\n}"])
async def test_of_an_agent_in_node_it_is_told_what_happened(more: str) -> None:
    """Its last line is its version, whatever happened."""
    words = (
        f"agent.js:4\n    work()\n    ^\n\nError: no such source\n    at work (agent.js:4:7){more}"
    )
    told = await TaskTool(agents).run(f"ends {words}\n\nNode.js v20.20.2", "researcher")
    assert str(told.error).endswith("exit code 1: Error: no such source")


@pytest.mark.parametrize("frame", [
    '  File "agent.py", line 429, in work', '  File "rate_limit.py", line 7, in wait',
    "    except (ConnectionError, MemoryError):", "    at work (agent.js:429:7)",
])  # fmt: skip
async def test_the_place_of_a_crash_says_nothing_of_its_kind(frame: str) -> None:
    async with testing(app) as t:
        words = f"Traceback (most recent call last):\n{frame}\nValueError: no such source"
        handle = await agents.handler("researcher").enqueue(f"ends {words}")
        await t.run()
        task = await t.task(handle)
        assert (task.status, json.loads(task.error or b"{}")["code"]) == ("retrying", "crashed")


async def test_an_agent_is_not_told_the_secrets_of_its_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    show = "import json, os; print(json.dumps(sorted(v for v in os.environ if 'OUTLAST' in v)))"
    mine = SubAgents(
        Outlast("memory://"),
        {
            "plain": Agent([sys.executable, "-c", show]),
            "told": Agent([sys.executable, "-c", show], env={"OUTLAST_URL": "http://here"}),
        },
    )
    monkeypatch.setenv("OUTLAST_URL", "postgresql://ada:secret@db/tasks")
    monkeypatch.setenv("OUTLAST_ENCRYPTION_KEYS", "secret")
    assert (await mine.run("plain", "")).result == ["OUTLAST_TASK_ID"]
    assert (await mine.run("told", "")).result == ["OUTLAST_TASK_ID", "OUTLAST_URL"]


async def test_a_command_is_looked_for_where_it_works(tmp_path: Path) -> None:
    script = tmp_path / "agent.sh"
    script.write_text('#!/bin/sh\nprintf %s "$1"\n')
    script.chmod(0o755)
    mine = SubAgents(
        Outlast("memory://"), {"local": Agent(["./agent.sh", "{prompt}"], folder=str(tmp_path))}
    )
    for prompt in ("", "-rf {model}", "two words; $HOME"):
        assert (await mine.run("local", prompt)).result == prompt
    for prompt in ("a\0b", "x" * 200_000):
        with pytest.raises(Permanent, match="standard input"):
            await mine.run("local", prompt)
    lost = SubAgents(
        Outlast("memory://"), {"lost": Agent([sys.executable], folder=str(tmp_path / "gone"))}
    )
    with pytest.raises(Permanent, match=r"the folder '.*gone': No such file"):
        await lost.run("lost", "")


# With real processes, over HTTP, on Redis ---------------------------------------------------------


async def _attempts(site: Site, id: str, n: int) -> bool:
    return len([a for a in (await site.task(id))["attempts"] if a["ended_at"]]) >= n


@asynccontextmanager
async def worker_process(url: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "outlast", "worker", "agentsapp:app", "--engine", url]
    paths = [str(HERE), str(HERE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(  # noqa: ASYNC220, S603
        command, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, cwd=HERE
    )
    try:
        yield process
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 60)


@pytest.mark.timeout(300)  # two cores that others use, too
async def test_agents_outlast_their_workers(tmp_path: Path) -> None:
    server = redis.Server(fsync="always")
    server.run()
    try:
        app.use(server.url)
        async with serving(app) as site:
            pids = tmp_path / "pids"
            async with worker_process(server.url) as first:
                kept = await site.enqueue("agent.researcher", {"prompt": f"hang {pids}"})
                once = await site.enqueue("agent.coder", {"prompt": f"once {tmp_path / 'once'}"})
                fine = await site.enqueue("agent.researcher", {"prompt": "say hello"})
                await until(lambda: pids.exists() and bool(pids.read_text()), within_s=60)
                assert (await site.ended(fine["id"]))["result"]["result"] == SAID
                ended = await site.ended(once["id"])
                assert ended["result"]["result"] == {"said": "better now"}
                assert [a["outcome"] for a in ended["attempts"]] == ["failed", "succeeded"]
                # One runs out of memory, and one hangs: it is stopped, and gets twice the time.
                eats = await site.enqueue("agent.coder", {"prompt": "eat"})
                hangs = await site.enqueue("agent.hasty", {"prompt": f"hang {tmp_path / 'hung'}"})
                ended = await site.ended(eats["id"])
                assert (ended["status"], ended["attempt"]) == ("dead", 1)
                assert ended["error"]["code"] == "out_of_memory"
                alerts = [f for f in await site.frames(eats["id"]) if f.kind == "alert"]
                assert [alert.data["code"] for alert in alerts] == ["out_of_memory"]
                await until(lambda: _attempts(site, hangs["id"], 1), within_s=60)
                shown = await site.task(hangs["id"])
                assert shown["attempts"][0]["outcome"] == "timed_out"
                assert shown["timeout"] >= 4
                assert (await site.post(f"/tasks/{hangs['id']}/cancel")).status_code == 200
                before = pids.read_text()
                first.kill()
            # The agent went with its worker (what it had started itself nobody is left to stop),
            # and the task goes on with another.
            agent, started = map(int, before.split())
            await until(lambda: not alive(agent), within_s=30)
            os.kill(started, signal.SIGKILL)
            async with worker_process(server.url):
                await until(lambda: pids.read_text() not in ("", before), within_s=60)
                shown = await site.task(kept["id"])
                assert (shown["status"], shown["losses"]) == ("running", 1)
                assert (await site.post(f"/tasks/{kept['id']}/cancel")).status_code == 200
                assert (await site.ended(kept["id"]))["status"] == "cancelled"
                await gone(pids)
    finally:
        server.stop()
