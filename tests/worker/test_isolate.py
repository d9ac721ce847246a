"""Attempts in processes of their own: fresh interpreters and command lines."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path

import pytest

from outlast.app import Outlast
from outlast.core.errors import Permanent
from outlast.core.model import Cancel, EventQuery, Task
from outlast.handle import Handle
from outlast.worker import Worker
from outlast.worker.isolate import fill

from .conftest import until, working


@pytest.fixture
async def app(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Outlast]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    app: Outlast = import_module("isolated").app
    app.use("memory://")
    async with app:
        yield app
    gc.collect()  # a pipe that was left open is told here, and not in some later test


async def run(app: Outlast, type: str, **payload: object) -> Task:
    """The record after one attempt."""
    handle = await app.submit(type, payload)
    await asyncio.wait_for(Worker(app).drain(), 60)
    return await handle.refresh()


def said(task: Task) -> dict[str, object]:
    assert task.error is not None
    error: dict[str, object] = json.loads(task.error)
    return error


def gone(pid: int) -> bool:
    """Dead, or a zombie that nobody has buried yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # it went while we read
        return True


# a fresh interpreter -----------------------------------------------------------------------------


async def test_it_runs_in_another_process_and_session(app: Outlast) -> None:
    task = await run(app, "where", n=5)
    assert task.result is not None
    n, pid, session = json.loads(task.result)
    assert n == 5
    assert pid != os.getpid()
    assert session == pid


async def test_progress_and_chunks_come_through_and_prints_do_not_disturb(app: Outlast) -> None:
    task = await run(app, "talks")
    assert json.loads(task.result or b"") == f"{task.id}/1"
    assert json.loads(task.progress or b"")["percent"] == 40
    page = await app.engine.events(EventQuery(task_id=task.id))
    chunks = [json.loads(event.data)["chunk"] for event in page.items if event.kind == "chunk"]
    assert chunks == ["one", "two"]


async def test_again_comes_through(app: Outlast) -> None:
    task = await run(app, "later")
    assert (task.status, task.attempt) == ("scheduled", 0)


async def test_its_errors_are_classified_as_at_home(app: Outlast) -> None:
    task = await run(app, "refuses")
    assert (task.status, task.reason) == ("dead", "permanent")
    assert said(task)["type"] == "Permanent"
    assert said(task)["details"] == {"why": "because"}
    assert "not like this" in str(said(task)["traceback"])


@pytest.mark.parametrize(("how", "code"), [("exit", 42), ("kill", -9)])
async def test_a_crash_is_a_failure_with_the_last_words(app: Outlast, how: str, code: int) -> None:
    task = await run(app, "dies", how=how)
    error = said(task)
    assert (task.status, error["code"]) == ("dead", "crashed")
    assert isinstance(error["details"], dict)
    assert error["details"]["exit_code"] == code
    assert "famous last words" in error["details"]["stderr"]


async def test_half_a_result_is_none(app: Outlast) -> None:
    task = await run(app, "breaks_off")
    assert (task.status, task.result) == ("dead", None)
    assert said(task)["code"] == "crashed"


async def test_the_memory_cap_kills_the_task_and_alerts(app: Outlast) -> None:
    task = await run(app, "eats")
    assert (task.status, task.reason) == ("dead", "out_of_memory")
    page = await app.engine.events(EventQuery(task_id=task.id))
    assert "alert" in [event.kind for event in page.items]


async def test_a_timeout_is_hard(app: Outlast) -> None:
    task = await run(app, "too_long")
    assert (task.status, task.reason) == ("dead", "timeout")


@pytest.mark.parametrize("stubborn", [False, True])
async def test_cancelling_ends_the_whole_group(
    app: Outlast, tmp_path: Path, stubborn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.worker.isolate.KILL_AFTER_S", 0.5)
    async with working(Worker(app)):
        handle: Handle[object] = await app.submit(
            "hangs", {"folder": str(tmp_path), "stubborn": stubborn}
        )
        await until((tmp_path / "pids").exists)
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        assert not any(map(gone, pids))
        await app.engine.alter([handle.id], Cancel("enough"))
        await until(lambda: all(map(gone, pids)))
        await until(lambda: _is_cancelled(handle))
    assert (tmp_path / "cleaned").exists() != stubborn  # SIGTERM lets `finally` run


async def _is_cancelled(handle: Handle[object]) -> bool:
    return await handle.status() == "cancelled"


async def test_an_app_that_no_other_process_can_import_is_explained() -> None:
    app = Outlast("memory://")

    @app.task(isolate=True)
    def local() -> None: ...

    async with app:
        task = await run(app, "local")
    assert task.status == "dead"
    assert "app.target" in str(said(task)["message"])


# a command line ----------------------------------------------------------------------------------


async def test_a_command_reads_the_payload_and_its_output_is_the_result(app: Outlast) -> None:
    task = await run(app, "shout", word="hi")
    result = json.loads(task.result or b"")
    assert result == {
        "exit_code": 0,
        "stdout": '{"WORD":"HI"}',
        "stderr": "",
        "json": {"WORD": "HI"},
    }


async def test_fields_are_filled_in_as_one_word_and_no_shell_reads_them(app: Outlast) -> None:
    task = await run(app, "give", text="a b; echo $HOME")
    assert json.loads(task.result or b"")["stdout"] == "a b; echo $HOME\n"


async def test_an_exit_code_other_than_zero_is_a_failure(app: Outlast) -> None:
    error = said(await run(app, "broken"))
    assert error["code"] == "command_failed"
    assert error["message"] == "sh: exit code 3: oh no"
    assert error["details"] == {"exit_code": 3, "stdout": "partial\n", "stderr": "oh no"}


async def test_a_command_that_is_not_there_kills_with_a_clear_error(app: Outlast) -> None:
    task = await run(app, "missing")
    assert task.status == "dead"
    assert "PATH" in str(said(task)["message"])


async def test_an_output_that_is_too_large_kills_with_a_clear_error(app: Outlast) -> None:
    task = await run(app, "chatty")
    assert (task.status, said(task)["code"]) == ("dead", "too_large")


async def test_a_command_knows_its_task(app: Outlast) -> None:
    task = await run(app, "named")
    assert json.loads(task.result or b"")["stdout"] == f"{task.id} 1\n"


def test_templates_take_paths_and_say_what_is_missing() -> None:
    assert fill(("x", "{a.b}-{n}"), {"a": {"b": "q"}, "n": 3}) == ["x", "q-3"]
    with pytest.raises(Permanent, match="nobody"):
        fill(("{nobody}",), {})


def test_a_script_without_a_main_guard_is_told_and_does_not_multiply(tmp_path: Path) -> None:
    script = tmp_path / "careless.py"
    script.write_text(
        """
import asyncio
from outlast import Outlast
from outlast.worker import Worker

app = Outlast(f"sqlite:///{__file__}.db")
open(__file__ + ".runs", "a").write("x")

@app.task(isolate=True, max_attempts=1)
def work() -> None: ...

async def main() -> None:
    async with app:
        handle = await work.enqueue()
        await Worker(app).drain()
        print((await handle.refresh()).error.decode())

asyncio.run(main())
"""
    )
    ran = subprocess.run(  # noqa: S603  # our own script
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60
    )
    assert "if __name__ == " in ran.stdout, ran.stderr
    assert (tmp_path / "careless.py.runs").read_text() == "xx"  # the script, and its one child


# durable steps -----------------------------------------------------------------------------------


async def later(app: Outlast, handle: Handle[object], span_ms: int) -> Task:
    app.engine.skew_ms += span_ms
    await asyncio.wait_for(Worker(app).drain(), 60)
    return await handle.refresh()


async def test_an_isolated_handler_has_steps_too(app: Outlast, tmp_path: Path) -> None:
    handle = await app.submit("remembers", {"folder": str(tmp_path)})
    await asyncio.wait_for(Worker(app).drain(), 60)
    assert (await handle.refresh()).status == "retrying"
    await later(app, handle, 600_000)
    assert (await handle.refresh()).parked == "signal:go"
    await handle.signal("go", "went")
    assert (await later(app, handle, 0)).result == b'["page",42,"went"]'
    assert (tmp_path / "effects").read_text() == "x"


async def test_an_isolated_async_handler_sleeps(app: Outlast, tmp_path: Path) -> None:
    handle = await app.submit("remembers_too", {"folder": str(tmp_path)})
    await asyncio.wait_for(Worker(app).drain(), 60)
    assert (await handle.refresh()).status == "scheduled"
    assert (await later(app, handle, 60_000)).result == b'"page"'
    assert (tmp_path / "effects").read_text() == "x"


async def test_an_isolated_handler_closes_a_limit(app: Outlast) -> None:
    assert (await run(app, "rests")).status == "completed"
    [gauge] = await app.engine.gauges(["service"])
    assert (gauge.paused_until or 0) > await app.engine.now()
