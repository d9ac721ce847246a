"""Approvals over HTTP: what tasks ask people, who is told of it, and how it is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from outlast import Context, Outlast
from outlast.access import Signer

from .site import Site, serving, until


def make_app(redact: Sequence[str] | None = None) -> Outlast:
    app = Outlast("memory://", redact=redact)

    @app.task
    async def clean_up(ctx: Context, folder: str) -> list[Any]:
        action = {"delete": folder, "password": "s3cret"}
        first = await ctx.ask(f"Delete {folder}?", action=action, timeout="1d")
        return [first, await ctx.ask("Really?")]

    @app.task
    async def waits(ctx: Context) -> Any:
        return await ctx.wait_for("go")

    @app.task
    async def looks(ctx: Context, data: Any) -> Any:
        await ctx.progress(50, "halfway", question=data)
        return await ctx.wait_for("go")

    return app


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving(make_app(), working=True) as site:
        yield site


async def opened(site: Site, n: int, query: str = "") -> list[dict[str, Any]]:
    """The open questions, once there are so many."""
    found: list[dict[str, Any]] = []

    async def there() -> bool:
        found[:] = (await site.get(f"/approvals{query}")).json()["items"]
        return len(found) == n

    await until(there, 30)
    return found


async def test_progress_that_only_looks_like_a_question_is_none(site: Site) -> None:
    for data in ("what?", {"signal": "go"}, [1]):
        task = await site.enqueue("looks", {"data": data})

        async def waiting(id: str = task["id"]) -> bool:
            return (await site.task(id))["parked"] == "signal:go"

        await until(waiting)
        assert (await site.get("/approvals")).json()["items"] == []
        reply = await site.post(f"/approvals/{task['id']}", {"answer": "yes"})
        assert (reply.status_code, reply.json()["code"]) == (409, "conflict")


@pytest.mark.parametrize("hidden", ["question", "data", "*.question"])
async def test_a_question_that_is_hidden_by_name_is_still_open(hidden: str) -> None:
    app = make_app(redact=[hidden])
    async with serving(app, working=True) as site:
        task = await site.enqueue("clean_up", {"folder": "old"})
        [asked] = await opened(site, 1)
        assert (asked["task_id"], asked["question"]) == (task["id"], "***")
        assert asked["signal"] == "answer:1"
        reply = await site.post(f"/approvals/{task['id']}", {"answer": "yes"})
        assert reply.status_code == 200


async def test_a_question_is_listed_and_answered(site: Site) -> None:
    await site.enqueue("waits")  # which is blocked too, but asks nobody
    task = await site.enqueue("clean_up", {"folder": "old"}, session_id="s-1", user_id="ada")
    [asked] = await opened(site, 1)
    assert asked["task_id"] == task["id"]
    assert (asked["question"], asked["signal"]) == ("Delete old?", "answer:1")
    assert asked["action"] == {"delete": "old", "password": "***"}
    assert (asked["session_id"], asked["user_id"]) == ("s-1", "ada")
    assert asked["deadline"] is not None
    assert await opened(site, 1, "?session_id=s-1&type=clean_up") == [asked]
    assert await opened(site, 0, "?session_id=s-2") == []
    reply = await site.post(f"/approvals/{task['id']}", {"answer": {"yes": True}})
    assert reply.status_code == 200, reply.text

    async def second() -> bool:
        items = (await site.get("/approvals")).json()["items"]
        return [item["question"] for item in items] == ["Really?"]

    await until(second, 30)
    reply = await site.post(f"/tasks/{task['id']}/signal/answer:2", "yes")
    assert reply.status_code == 200
    assert (await site.ended(task["id"]))["result"] == [{"yes": True}, "yes"]
    assert await opened(site, 0) == []
    for path in (f"/approvals/{task['id']}", f"/tasks/{task['id']}/signal/answer:3"):
        late = await site.post(path, {"answer": "no"})
        assert (late.status_code, late.json()["code"]) == (409, "conflict")
        assert "completed" in late.json()["detail"]


async def test_the_session_is_told(site: Site) -> None:
    task = await site.enqueue("clean_up", {"folder": "old"}, session_id="s-1")
    await opened(site, 1)
    [notice] = (await site.get("/sessions/s-1/notifications")).json()["items"]
    assert (notice["type"], notice["action"]) == ("task_question", "answer")
    assert (notice["task_id"], notice["task_type"]) == (task["id"], "clean_up")
    assert notice["message"] == "Your clean_up asks: Delete old?"
    wanted = {"types": ["task_completed"]}
    await site.http.put("/api/v1/sessions/s-1/preferences", json=wanted)
    assert (await site.get("/sessions/s-1/notifications")).json()["items"] == []


async def test_others_do_not_see_it(site: Site) -> None:
    signer = Signer(site.app.engine)
    headers = {
        who: {"authorization": f"Bearer {await signer.token(f's-{who}')}"} for who in ("a", "b")
    }
    task = await site.enqueue("clean_up", {"folder": "old"}, session_id="s-a")
    await opened(site, 1)
    mine = await site.get("/approvals", headers=headers["a"])
    assert len(mine.json()["items"]) == 1
    theirs = await site.get("/approvals", headers=headers["b"])
    assert theirs.json()["items"] == []
    path = f"/approvals/{task['id']}"
    assert (await site.post(path, {"answer": 1}, headers=headers["b"])).status_code == 404
    assert (await site.post(path, {"answer": 1}, headers=headers["a"])).status_code == 200


async def test_what_is_wrong_is_told(site: Site) -> None:
    task = await site.enqueue("clean_up", {"folder": "old"})
    for body in ({}, {"answer": 1, "x": 2}, [], None):
        assert (await site.post(f"/approvals/{task['id']}", body)).status_code == 422
    for query in ("status=blocked", "colour=red"):
        assert (await site.get(f"/approvals?{query}")).status_code == 422
