"""Workers in any language take part in workflows: results are put in, conditions looked at."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from outlast import Outlast

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
