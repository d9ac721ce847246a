"""Quotas of a key: what it may ask of a server in all, and what others do not feel of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from outlast import BadInput, Outlast
from outlast.access import Quota, Signer, create_key
from outlast.core.model import TaskQuery
from outlast.http.quotas import take

from .site import Site, make_app, serving, until


@dataclass
class Caller:
    """Somebody with a key."""

    site: Site
    headers: dict[str, str]

    async def add(self, n: int = 1, text: str = "") -> httpx2.Response:
        tasks = [{"type": "summarize", "payload": {"content": text}} for _ in range(n)]
        if n == 1:
            return await self.site.post("/tasks", tasks[0], headers=self.headers)
        return await self.site.post("/tasks/batch", {"tasks": tasks}, headers=self.headers)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    app, _ = make_app()
    async with serving(app) as site, app:
        yield site


async def caller(site: Site, **quota: Any) -> Caller:
    text, _ = await create_key(site.app.engine, "client", quota=Quota(**quota) if quota else None)
    return Caller(site, {"authorization": f"Bearer {text}"})


def refused(reply: httpx2.Response, what: str) -> int:
    """After how many seconds to come back."""
    assert (reply.status_code, reply.json()["code"]) == (429, "quota_spent"), reply.text
    assert what in reply.json()["detail"]
    return int(reply.headers["retry-after"])


async def test_a_key_may_enqueue_so_many_tasks_a_day(site: Site) -> None:
    ada, bob = await caller(site, tasks=3), await caller(site)
    assert (await ada.add(2)).status_code == 202
    assert 0 < refused(await ada.add(2), "3 tasks a day, and has 2") <= 86_400
    assert (await ada.add()).status_code == 202
    refused(await ada.add(), "3 tasks a day")
    assert (await bob.add(5)).status_code == 202
    site.app.engine.skew_ms += 86_400_000
    assert (await ada.add(3)).status_code == 202


async def test_a_request_that_is_repeated_costs_nothing(site: Site) -> None:
    """With its Idempotency-Key it is answered, although the quota is used up."""
    ada = await caller(site, tasks=3, bytes=100, living=3)
    one = {"type": "summarize", "payload": {"content": "a" * 15}}
    for path, body in (("/tasks", one), ("/tasks/batch", {"tasks": [one, one]})):
        headers = {**ada.headers, "idempotency-key": "k"}
        first, *again = [await site.post(path, body, headers=headers) for _ in range(4)]
        assert [reply.status_code for reply in (first, *again)] == [202] * 4
        ids = [
            [task["id"] for task in reply.json().get("items", [reply.json()])]
            for reply in (first, *again)
        ]
        assert ids == ids[:1] * 4
    bob = await caller(site, tasks=2)
    flow = {"name": "f", "nodes": [{"name": "a", **one}]}
    headers = {**bob.headers, "idempotency-key": "k"}
    for _ in range(3):
        assert (await site.post("/workflows", flow, headers=headers)).status_code == 202
    refused(await ada.add(), "3 tasks a day")
    refused(await bob.add(), "2 tasks a day")
    site.app.engine.skew_ms += 86_400_001
    repeated = {**ada.headers, "idempotency-key": "k"}
    assert (await site.post("/tasks", one, headers=repeated)).status_code == 429, "a new one"


async def test_a_key_may_enqueue_so_many_bytes_a_day(site: Site) -> None:
    ada = await caller(site, bytes=100)
    assert (await ada.add(text="a" * 60)).status_code == 202
    refused(await ada.add(text="a" * 60), "100 bytes a day")
    assert (await ada.add()).status_code == 202


async def test_a_key_may_have_so_many_tasks_that_are_not_over(site: Site) -> None:
    ada, bob = await caller(site, living=3), await caller(site, living=3)
    ids = [task["id"] for task in (await ada.add(3)).json()["items"]]
    assert refused(await ada.add(), "3 tasks that are not over") <= 5
    assert (await bob.add(3)).status_code == 202
    assert (await site.post(f"/tasks/{ids[0]}/cancel", headers=ada.headers)).status_code == 200
    refused(await ada.add(), "3 tasks")  # it is counted anew once a second
    site.app.engine.skew_ms += 1_000
    assert (await ada.add()).status_code == 202
    site.app.engine.skew_ms += 1_000
    refused(await ada.add(), "3 tasks")


async def test_however_many_ask_at_once_there_are_not_more(site: Site) -> None:
    ada = await caller(site, living=5, tasks=7)
    replies = await asyncio.gather(*(ada.add() for _ in range(20)))
    assert sum(reply.status_code == 202 for reply in replies) == 5
    counts = await site.app.engine.count(TaskQuery())
    assert sum(count.n for count in counts) == 5


async def test_what_is_refused_is_not_counted(site: Site) -> None:
    engine = site.app.engine
    quota = Quota(tasks=5, bytes=100)
    await take(engine, "k", quota, 1, 10)
    for _ in range(3):
        with pytest.raises(Exception, match="bytes"):
            await take(engine, "k", quota, 1, 91)
    await take(engine, "k", quota, 4, 90)
    with pytest.raises(Exception, match="tasks"):
        await take(engine, "k", quota, 1, 0)


async def test_a_key_may_have_so_many_streams_open(site: Site) -> None:
    ada, bob = await caller(site, streams=2), await caller(site)
    async with AsyncExitStack() as open_ones:
        for _ in range(2):
            await open_ones.enter_async_context(_following(site, ada.headers))
        await until(lambda: site.open_streams == 2)
        refused(await site.get("/events", headers=ada.headers), "2 streams")
        task = (await bob.add()).json()["id"]
        waits = {**ada.headers, "prefer": "wait=5"}
        refused(await site.get(f"/tasks/{task}", headers=waits), "2 streams")
        assert (await site.get(f"/tasks/{task}", headers=ada.headers)).status_code == 200
        async with _following(site, bob.headers):
            await until(lambda: site.open_streams == 3)
    await until(lambda: site.open_streams == 0)
    async with _following(site, ada.headers):
        await until(lambda: site.open_streams == 1)


async def test_an_end_user_has_a_bound_without_a_quota(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.http.live.MAX_SESSION", 3)  # the client has no 100 connections
    await caller(site)  # with a key there, others need one
    token = await Signer(site.app.engine).token("s-1")
    headers = {"authorization": f"Bearer {token}"}
    async with AsyncExitStack() as open_ones:
        for _ in range(3):
            await open_ones.enter_async_context(_following(site, headers))
        await until(lambda: site.open_streams == 3)
        refused(await site.get("/events", headers=headers), "3 streams")


async def test_quotas_are_given_and_shown_over_http(site: Site) -> None:
    admin, _ = await create_key(site.app.engine, "admin")
    headers = {"authorization": f"Bearer {admin}"}
    asked = {"role": "client", "quota": {"living": 10}}
    made = await site.post("/keys", asked, headers=headers)
    assert made.status_code == 201
    expected = {"living": 10, "tasks": None, "bytes": None, "streams": None}
    assert made.json()["quota"] == expected
    listed = (await site.get("/keys", headers=headers)).json()["items"]
    assert [key["quota"] for key in listed] == [None, expected]
    for quota in ({"living": 0}, {"tasks": -1}, {"colour": 1}, {"bytes": "many"}):
        body = {"role": "client", "quota": quota}
        assert (await site.post("/keys", body, headers=headers)).status_code == 422, quota


async def test_a_quota_of_nothing_is_refused() -> None:
    app = Outlast("memory://")
    async with app:
        with pytest.raises(BadInput, match=r"quota\.living"):
            await create_key(app.engine, "client", quota=Quota(living=0))


def _following(site: Site, headers: dict[str, str]) -> Any:
    return site.http.stream("GET", "/api/v1/events", headers=headers)
