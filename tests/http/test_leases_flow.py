"""Workers in any language take part in workflows: results are put in, conditions looked at."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from outlast import Outlast, Secret

from .site import Site, serving


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    app = Outlast("memory://")
    for name in ("first", "second"):
        app.external(name, queue="far", schema={"type": "object"})
    async with serving(app) as site:
        yield site


async def test_results_are_in_what_they_take(site: Site) -> None:
    nodes = [
        {"name": "a", "type": "first", "payload": {"n": 1}},
        {"name": "b", "type": "second", "payload": {"of": {"$from": "a", "path": "x.1"}}},
        {"name": "c", "type": "second", "when": {"$from": "a", "path": "go"}},
        {"name": "d", "type": "second", "after": "c", "needs": "any"},
    ]
    flow = (await site.post("/workflows", {"name": "far", "nodes": nodes})).json()
    ask = {"worker": "w", "queues": ["far"], "max": 5}
    [item] = (await site.post("/leases", ask)).json()["items"]
    result = {"result": {"x": [1, {"y": 2}], "go": False}}
    assert (await site.post(f"/leases/{item['lease']}/complete", result)).status_code == 200
    ask |= {"token": "t-1"}  # the reply is lost, and asked for again
    for _ in range(2):
        [item] = (await site.post("/leases", ask)).json()["items"]
        assert item["task"]["payload"] == {"of": {"y": 2}}
    assert (await site.post(f"/leases/{item['lease']}/complete", {})).status_code == 200
    drawn = (await site.get(f"/workflows/{flow['id']}")).json()
    assert {n["name"]: n["reason"] for n in drawn["nodes"]}["c"] == "skipped"
    [item] = (await site.post("/leases", {**ask, "token": None})).json()["items"]
    assert item["task"]["id"] == next(n["id"] for n in drawn["nodes"] if n["name"] == "d")


async def test_what_is_secret_in_results_that_they_take_is_taken_out_of_what_they_say() -> None:
    canary, app = "canary-5150", Outlast("memory://")

    @app.task(queue="far")
    async def login() -> dict[str, Secret[str]]: ...

    @app.task(queue="far", max_attempts=1)
    async def fetch(token: Secret[str], again: str) -> None: ...

    out = {"$from": "login", "path": "token"}
    nodes = [
        {"name": "login", "type": "login"},
        {"name": "fetch", "type": "fetch", "payload": {"token": out, "again": out}},
    ]
    ask = {"worker": "w", "queues": ["far"]}
    async with serving(app) as site:
        flow = (await site.post("/workflows", {"name": "far", "nodes": nodes})).json()
        [item] = (await site.post("/leases", ask)).json()["items"]
        await site.post(f"/leases/{item['lease']}/complete", {"result": {"token": canary}})
        [item] = (await site.post("/leases", ask)).json()["items"]
        assert item["task"]["payload"] == {"token": canary, "again": canary}
        lease = f"/leases/{item['lease']}"
        await site.post(f"{lease}/progress", {"percent": 5, "message": f"token {canary}"})
        await site.post(f"{lease}/fail", {"error": {"type": "E", "message": f"token {canary}"}})
        task = (await site.get(f"/tasks/{item['task']['id']}")).json()
        seen = [(await site.get(path)).text for path in ("/tasks", f"/workflows/{flow['id']}")]
    assert (task["progress"]["message"], task["error"]["message"]) == ("token ***", "token ***")
    assert canary not in "".join(seen)
