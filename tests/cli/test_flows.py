"""Workflows, schedules and approvals from the command line, on an engine and on a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest
from tests.http.site import serving
from tests.http.site import until as until_async

from outlast import Conflict, Context, NotFound
from outlast import Outlast as OutlastApp
from outlast.cli.operations import Here, Operations, There

from .conftest import Outlast, until

APP = """
from outlast import Context, Outlast, Permanent

app = Outlast()

@app.task
async def shout(text: str) -> str:
    if text == "no":
        raise Permanent("not that")
    return text.upper()

@app.task
async def clean(ctx: Context, folder: str) -> str:
    return str(await ctx.ask(f"Delete {folder}?", action={"delete": folder}))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outlast]:
    """A folder whose app is served, with a worker."""
    outlast = Outlast(tmp_path_factory.mktemp("home"))
    outlast.write_app(text=APP)
    with outlast.worker(), outlast.running("serve", "--port", "0"):
        until(lambda: "Serving" in outlast.log("serve"), lambda: outlast.log("serve"))
        outlast.address = outlast.log("serve").partition("Serving ")[2].split()[0]
        yield outlast


@pytest.fixture
def far(home: Outlast, tmp_path_factory: pytest.TempPathFactory) -> Outlast:
    """A folder elsewhere, from which the server is asked."""
    far = Outlast(tmp_path_factory.mktemp("far"))
    far.env["OUTLAST_SERVER"] = home.address
    return far


GRAPH: Final = {
    "name": "story",
    "nodes": [
        {"name": "one", "type": "shout", "payload": {"text": "a"}},
        {"name": "two", "type": "shout", "payload": {"text": {"$from": "one"}}},
    ],
    "tags": ["mine"],
}


def test_workflows(far: Outlast) -> None:
    (far.folder / "graph.json").write_text(json.dumps(GRAPH))
    ran = far("workflows", "enqueue", "@graph.json")
    assert ran.code == 0, ran.err
    id = ran.out.strip()
    far("tasks", "watch", id, "--timeout", "30s")
    shown = far("workflows", "show", id).out
    assert "completed" in shown
    assert "one" in shown and "two" in shown
    assert id in far("workflows", "ls", "--status", "completed", "--tag", "mine").out
    assert far.json("workflows", "retry", id, "--from", "two")["origin"] == id
    assert far("workflows", "cancel", id).code == 2
    assert far("workflows", "show", id[:-4] + "0000").code == 3


def test_schedules_and_workflows_are_listed_without_a_command(home: Outlast) -> None:
    for group in ("schedules", "workflows"):
        assert home.json(group) == home.json(group, "ls")
        assert "Usage" not in home(group).out


def test_schedules(home: Outlast) -> None:
    ran = home("schedules", "add", "nightly", "shout", '{"text": "x"}', "--every", "0 3 * * *",
               "--tz", "Europe/Berlin")  # fmt: skip
    assert (ran.code, "nightly fires next at" in ran.out) == (0, True), ran.err
    assert "Europe/Berlin" in home("schedules", "ls").out
    assert home("schedules", "pause", "nightly").out == "nightly is paused.\n"
    assert home.json("schedules", "run", "nightly")["tags"] == ["schedule:nightly"]
    assert home("schedules", "rm", "nightly").code == 0
    assert home("schedules", "show", "nightly").code == 3


def test_approvals_and_signals(far: Outlast) -> None:
    ids = [far.id_of("clean", '{"folder": "old"}') for _ in range(2)]
    until(lambda: len(far.json("approvals", "ls")["items"]) == 2, seconds=30)  # type: ignore[arg-type]
    assert "Delete old?" in far("approvals", "ls").out
    assert far("approvals", "answer", ids[0], "yes").code == 0
    assert far("tasks", "signal", ids[1], "answer:1", '"no"').code == 0
    for id, said in zip(ids, ("yes", "no"), strict=True):
        ran = far("tasks", "watch", id, "--timeout", "30s", "--json")
        assert ran.json()["result"] == said


# The same on an engine as on a server ------------------------------------------------------------


def make_app() -> OutlastApp:
    app = OutlastApp("memory://")

    @app.task
    async def shout(text: str) -> str:
        return text.upper()

    @app.task
    async def clean(ctx: Context) -> str:
        return str(await ctx.ask("Delete it?"))

    return app


async def _asks(side: Operations) -> bool:
    return bool((await side.approval_page()).items)


async def test_both_say_the_same() -> None:
    app = make_app()
    async with serving(app, working=True) as site, There(site.address) as there:
        here = Here(app)
        made = await here.enqueue_workflow("story", GRAPH["nodes"], session_id="s-1")  # type: ignore[arg-type]
        await there.wait(made.id, "30s")
        assert await here.workflow(made.id) == await there.workflow(made.id)
        assert await here.workflow_page(status="completed") == await there.workflow_page(limit=5)
        again = await here.retry_workflow(made.id, node="two")
        assert again.origin == made.id
        await there.wait(again.id, "30s")
        for side in (here, there):
            with pytest.raises(Conflict):
                await side.retry_workflow(made.id)
            with pytest.raises(Conflict):
                await side.cancel_workflow(made.id, node="one")

        for side in (here, there):
            saved = await side.save_schedule("s", "shout", {"text": "x"}, every="@daily")
            assert saved == await here.schedule("s") == await there.schedule("s")
            assert [one.name for one in await side.schedules()] == ["s"]
            assert (await side.pause_schedule("s")).paused
            assert not (await side.resume_schedule("s")).paused
            assert (await side.run_schedule("s")).tags == ["schedule:s"]
            once = await side.save_schedule("s", "shout", {"text": "x"}, at="2050-01-01T00:00:00Z")
            assert once.next == ["2050-01-01T00:00:00.000Z"]
            await side.delete_schedule("s")
            with pytest.raises(NotFound):
                await side.schedule("s")

        for side in (here, there):
            task = await side.enqueue("clean", {})
            await until_async(partial(_asks, side))
            assert await side.approval_page() == await here.approval_page(type="clean")
            await side.respond(task.id, "yes")
            assert (await side.wait(task.id, "30s")).result == "yes"
            task = await side.enqueue("clean", {})
            await side.signal(task.id, "answer:1", "early")
            assert (await side.wait(task.id, "30s")).result == "early"
