"""Time travel: tasks run again from a step, edited, and exported as a test."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from outlast import (
    BadInput,
    Conflict,
    Context,
    Outlast,
    Permanent,
    Secret,
    SignalTimeout,
    SyncContext,
    Transient,
    ops,
    saga,
    travel,
)
from outlast.core.seal import new_key
from outlast.handle import Handle
from outlast.testing import testing
from outlast.views import task_view, to_json

from .site import API, Site, serving

ran: Counter[str] = Counter()
broken: set[str] = set()


def make_app(**how: Any) -> Outlast:
    app = Outlast("memory://", **how)

    async def do(name: str, gives: object = None) -> Any:
        ran[name] += 1
        if name in broken:
            raise Permanent(f"{name} is broken")
        return gives or name.upper()

    @app.task
    async def hush(name: str, gives: object = None) -> None:
        ran[f"hush {name}"] += 1

    @app.task
    async def double(n: int) -> int:
        ran["double"] += 1
        return 2 * n

    @app.task
    async def agent(ctx: Context, to: str, key: Secret[str] | None = None) -> list[object]:
        """Waits for `go` before and behind its step `log in`."""
        first = await ctx.wait_for("go")
        asked = await ctx.step("ask", do, "ask", {"to": to, "password": "hunter2"})
        await ctx.sleep("1h")
        logged = await ctx.step("log in", do, "log in", undo=hush)
        second = await ctx.wait_for("go")
        called = await ctx.call(double, 21)
        return [first, asked["to"], logged, second, called, await ctx.step("last", do, "last")]

    @app.task
    async def late(ctx: Context) -> str:
        try:
            await ctx.wait_for("never", timeout="1h")
        except SignalTimeout:
            return await ctx.step("after", do, "after")
        return "?"

    @app.task
    async def keys(ctx: Context) -> Any:
        found = await ctx.step("keys", do, "keys", [{"password": "one"}, {"password": "two"}])
        return await ctx.step("wait", do, "wait", found)

    @app.task
    async def beside(ctx: Context) -> list[object]:
        async def later() -> Any:
            await ctx.sleep("1h")
            return await ctx.step("beside", do, "beside")

        return await ctx.gather(ctx.wait_for("go"), later())

    @app.task
    def plain(ctx: SyncContext, n: int) -> list[object]:
        one, two = ctx.gather(lambda: ctx.call(double, n), lambda: ctx.wait_for("go"))
        return [one, two, ctx.step("sum", len, "abc")]

    return app


@pytest.fixture(params=["plain", "sealed"])
def app(request: pytest.FixtureRequest) -> Outlast:
    ran.clear()
    broken.clear()
    return make_app(**({"encryption_keys": new_key()} if request.param == "sealed" else {}))


@pytest.fixture
async def t(app: Outlast) -> AsyncIterator[testing]:
    async with testing(app) as t:
        yield t


async def finished(t: testing, **payload: object) -> Handle[Any]:
    """An agent that has come to its end."""
    handle: Handle[Any] = await t.app.submit("agent", {"to": "ada", **payload})
    await handle.signal("go", 1)
    await t.run()
    await t.advance("2h")
    await t.run()
    await handle.signal("go", 2)
    await t.run()
    return handle


ALL = [1, "ada", "LOG IN", 2, 42, "LAST"]


async def named(app: Outlast, handle: Handle[Any]) -> dict[str, Any]:
    told: Any = await travel.steps(app, handle.id)
    return {item["name"]: item["value"] for item in told["items"]}


async def test_what_a_task_remembers_is_listed(app: Outlast, t: testing) -> None:
    handle = await finished(t)
    assert await handle.result(timeout=0) == ALL
    told: Any = await travel.steps(app, handle.id)
    assert [(item["name"], item["kind"]) for item in told["items"]] == [
        (":wait:go:1", "wait"), ("ask", "step"), (":sleep:1", "sleep"), ("log in", "step"),
        (":wait:go:2", "wait"), (":call:double:1", "call"), ("last", "step"),
    ]  # fmt: skip
    assert all(item["done"] and not item["carried"] for item in told["items"])
    assert [signal["data"] for signal in told["signals"]] == [1, 2]
    values = await named(app, handle)
    assert values["ask"] == {"to": "ada", "password": "***"}
    assert (values[":wait:go:2"], values[":call:double:1"]["result"]) == (2, 42)


async def test_a_rerun_begins_at_its_step_and_waits_anew(app: Outlast, t: testing) -> None:
    """The signal that the origin had behind the step is not the new one's."""
    origin = await finished(t)
    ran.clear()
    again = await origin.rerun(from_step="log in")
    await t.run()
    task = await t.task(again)
    assert (task.status, task.parked) == ("blocked", "signal:go")
    assert ran == {"log in": 1}
    await again.signal("go", "new")
    await t.run()
    assert await again.result(timeout=0) == [1, "ada", "LOG IN", "new", 42, "LAST"]
    assert ran == {"log in": 1, "double": 1, "last": 1}
    assert await origin.result(timeout=0) == ALL
    items: Any = (await travel.steps(app, again.id))["items"]
    assert [item["name"] for item in items if item["carried"]] == [":wait:go:1", "ask", ":sleep:1"]


async def test_from_its_first_line(app: Outlast, t: testing) -> None:
    origin = await finished(t)
    again = await origin.rerun(payload={"to": "bob"})
    await t.run()
    assert (await t.task(again)).parked == "signal:go"
    assert await named(app, again) == {":wait:go:1": None}


async def test_a_dead_task_from_the_step_that_failed(app: Outlast, t: testing) -> None:
    broken.add("last")
    origin = await finished(t)
    assert await t.status(origin) == "dead"
    broken.clear()
    ran.clear()
    again = await origin.rerun(from_step="last")
    await t.run()
    assert await again.result(timeout=0) == ALL
    assert ran == {"last": 1}  # and nothing of the origin's was undone a second time


async def test_undos_stay_with_whoever_did_the_work(app: Outlast, t: testing) -> None:
    broken.add("last")
    origin = await finished(t)
    assert ran["hush log in"] == 1
    again = await origin.rerun(from_step=":wait:go:2")
    await again.signal("go", 2)
    await t.run()
    assert await t.status(again) == "dead"
    assert ran["hush log in"] == 1
    own = await origin.rerun(from_step="log in")
    await own.signal("go", 2)
    await t.run()
    assert ran["hush log in"] == 2


async def test_results_of_steps_and_waits_can_be_edited(app: Outlast, t: testing) -> None:
    origin = await finished(t)
    again = await origin.rerun(
        from_step="last",
        steps={
            "ask": {"to": "bob", "password": "***"},
            ":wait:go:2": "edited",
            ":call:double:1": {"id": "x", "state": "completed", "reason": None, "result": 7},
        },
    )
    await t.run()
    assert await again.result(timeout=0) == [1, "bob", "LOG IN", "edited", 7, "LAST"]
    twice = await again.rerun(from_step="last")
    await t.run()
    assert await twice.result(timeout=0) == [1, "bob", "LOG IN", "edited", 7, "LAST"]
    assert b"hunter2" in (await t.task(twice)).meta  # what was shown as *** stayed what it was


async def test_secrets_stay_what_they_were(app: Outlast, t: testing) -> None:
    origin = await finished(t, key="s3cret-key")
    again = await origin.rerun(from_step="last", payload={"to": "eve", "key": "***"})
    payload = json.loads((await t.task(again)).payload)
    assert payload == {"to": "eve", "key": "s3cret-key"}


async def test_a_mask_that_is_nobodys_is_refused(app: Outlast, t: testing) -> None:
    origin = await app.handlers["keys"].enqueue()
    await t.run()
    assert (await named(app, origin))["keys"] == [{"password": "***"}, {"password": "***"}]
    with pytest.raises(BadInput, match="had 2 items"):
        await origin.rerun(from_step="wait", steps={"keys": [{"password": "***"}]})
    again = await origin.rerun(from_step="wait", steps={"keys": [{"password": "new"}]})
    await t.run()
    assert await again.result(timeout=0) == [{"password": "new"}]


async def test_what_another_branch_had_only_begun_comes_anew(app: Outlast, t: testing) -> None:
    """It ended behind the step, so its signal is not the new task's."""
    origin = await app.handlers["beside"].enqueue()
    await t.run()
    await t.advance("2h")
    await t.run()
    await origin.signal("go", "old")
    await t.run()
    assert await origin.result(timeout=0) == ["old", "BESIDE"]
    ran.clear()
    again = await origin.rerun(from_step="beside")
    await t.run()
    assert (await t.task(again)).parked == "signal:go"
    await again.signal("go", "new")
    await t.run()
    assert await again.result(timeout=0) == ["new", "BESIDE"]
    assert ran == {"beside": 1}


async def test_a_wait_that_nothing_came_for(app: Outlast, t: testing) -> None:
    origin: Handle[Any] = await app.submit("late", {})
    await t.run()
    await t.advance("2h")
    await t.run()
    [wait, _] = (await travel.steps(app, origin.id))["items"]  # type: ignore[misc]
    assert wait["late"]
    again = await origin.rerun(from_step="after")
    await again.signal("never")
    await t.run()
    assert await again.result(timeout=0) == "AFTER"


async def test_branches_in_a_thread(app: Outlast, t: testing) -> None:
    origin: Handle[Any] = await app.submit("plain", {"n": 4})
    await origin.signal("go", "went")
    await t.run()
    assert await origin.result(timeout=0) == [8, "went", 3]
    again = await origin.rerun(from_step="sum", payload={"n": 5})
    await t.run()
    assert await again.result(timeout=0) == [8, "went", 3]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"steps": {"ask": 1}}, "without from_step the task begins at its first line"),
        ({"from_step": "log on"}, "no such step; did you mean 'log in'"),
        ({"from_step": "log in", "steps": {"last": 1}}, "'last' is no step before 'log in'"),
        ({"payload": {"to": 5}}, "Expected str"),
    ],
)
async def test_what_cannot_be_is_refused(
    app: Outlast, t: testing, how: dict[str, Any], words: str
) -> None:
    origin = await finished(t)
    with pytest.raises(BadInput, match=words):
        await origin.rerun(**how)


async def test_only_what_is_over_is_run_again(app: Outlast, t: testing) -> None:
    waiting: Handle[Any] = await app.submit("agent", {"to": "ada"})
    for _ in range(2):
        with pytest.raises(Conflict, match="Cancel it, or wait"):
            await waiting.rerun()
        await t.run()
    async with app.workflow("w") as flow:
        flow.add(app.handlers["double"], 1)
    await t.run()
    with pytest.raises(Conflict, match="Outlast's own"):
        await flow.handle.rerun()


async def test_a_node_of_a_workflow_gets_its_results_again(app: Outlast, t: testing) -> None:
    double = app.handlers["double"]
    async with app.workflow("w") as flow:
        first = flow.add(double, 1)
        second = flow.add(double, first.out)
    await t.run()
    again = await ops.rerun(app, second.id)
    await t.run()
    assert await Handle[int](app, again.id).result(timeout=0) == 4
    assert again.workflow_id is None
    assert (await saga.view(app, flow.id)).counts == {"completed": 2}


# over HTTP ---------------------------------------------------------------------------------------


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    ran.clear()
    broken.clear()
    app = make_app()

    @app.task(retry="1ms")
    async def order(ctx: Context, item: str) -> str:
        async def pick(item: str) -> str:
            return item

        picked = await ctx.step("pick", pick, item)
        if ctx.attempt == 1:
            raise Transient("once more")
        return picked + await ctx.step("pack", pick, "!")

    async with serving(app, working=True) as site:
        yield site


async def test_over_http(site: Site) -> None:
    first = await site.ended((await site.enqueue("order", {"item": "pen"}))["id"])
    assert (first["result"], first["origin_id"]) == ("pen!", None)
    told = (await site.http.get(f"{API}/tasks/{first['id']}/steps")).json()
    assert [(item["name"], item["value"]) for item in told["items"]] == [
        ("pick", "pen"), ("pack", "!"),
    ]  # fmt: skip
    body = {"from_step": "pack", "steps": {"pick": "ink"}}
    answer = await site.http.post(f"{API}/tasks/{first['id']}/rerun", json=body)
    assert answer.status_code == 202
    again = await site.ended(answer.json()["id"])
    assert (again["result"], again["origin_id"]) == ("ink!", first["id"])
    for wrong, status in (
        ({"from_step": "park"}, 422), ({"from_step": 5}, 422), ({"steps": []}, 422),
        ({"other": 1}, 422), ({"payload": {"item": 5}}, 422),
    ):  # fmt: skip
        answer = await site.http.post(f"{API}/tasks/{first['id']}/rerun", json=wrong)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"


# as a test ---------------------------------------------------------------------------------------

PROGRAM = """
from outlast import Context, Outlast, Secret, SignalTimeout

app = Outlast("memory://")
def never(*args):
    raise AssertionError("a step that was stored is not run again")

@app.task
async def agent(ctx: Context, to: str, key: Secret[str]) -> list:
    try:
        await ctx.wait_for("never", timeout="1h")
    except SignalTimeout:
        pass
    await ctx.sleep("1h")
    got = await ctx.wait_for("go")
    return [await ctx.step("ask", never, to), got, {"deep": [True, None, 1.5]}]
"""


async def test_an_export_replays_it(tmp_path: Path) -> None:
    (tmp_path / "theapp.py").write_text(PROGRAM)
    app = Outlast("memory://")

    async def ask(to: str, key: str) -> str:
        return f"hello {to}, {key}"

    @app.task
    async def agent(ctx: Context, to: str, key: Secret[str]) -> list[object]:
        with suppress(SignalTimeout):
            await ctx.wait_for("never", timeout="1h")
        await ctx.sleep("1h")
        got = await ctx.wait_for("go")
        said = await ctx.step("ask", ask, to, key.reveal())
        return [said.partition(",")[0] + ", ***", got, {"deep": [True, None, 1.5]}]

    async with testing(app) as t:
        handle = await agent.enqueue("a'd\"a", Secret("s3cret-key"))
        for _ in range(4):
            await t.run()
            await t.advance("2h")
        await handle.signal("go", {"x": [1, None]})
        await t.run()
        task = json.loads(to_json(task_view(await t.task(handle), app.redactor)))
        told = await travel.steps(app, handle.id)
    source = travel.pytest_of(task, told, "theapp:app")
    assert "s3cret" not in source
    (tmp_path / "test_it.py").write_text(source)
    done = subprocess.run(  # noqa: ASYNC221
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


async def test_what_no_attempt_has_done_is_not_exported(app: Outlast, t: testing) -> None:
    handle = await app.handlers["late"].options(max_age="1s").enqueue()
    await t.advance("5s")
    task = json.loads(to_json(task_view(await t.task(handle), app.redactor)))
    told = await travel.steps(app, handle.id)
    with pytest.raises(Conflict, match=r"dead \(expired\), but no attempt at it has failed"):
        travel.pytest_of(task, told, "theapp:app")
