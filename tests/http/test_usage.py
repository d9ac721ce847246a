"""Usage and budgets over HTTP, from Python's attempts and from workers elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from outlast import Context, Outlast

from .site import Site, serving


@pytest.fixture
async def here() -> AsyncIterator[Site]:
    app = Outlast("memory://")

    @app.task(retry="1ms")
    async def ask(ctx: Context, tokens: int, fails: int = 0) -> str:
        await ctx.usage(tokens=tokens, cost="0.01", model="small")
        if ctx.attempt <= fails:
            raise ConnectionError("again")
        return "said"

    app.external("elsewhere", queue="ts")
    async with serving(app, working=True) as site:
        yield site


async def claimed(site: Site, **options: Any) -> str:
    """The lease of a task of another language's worker."""
    await site.enqueue("elsewhere", **options)
    reply = await site.post("/leases", {"worker": "w", "queues": ["ts"]})
    [item] = reply.json()["items"]
    lease: str = item["lease"]
    return lease


async def test_a_task_shows_what_it_used_in_all_and_in_each_attempt(here: Site) -> None:
    task = await here.ended((await here.enqueue("ask", {"tokens": 5, "fails": 1}))["id"])
    assert [attempt["usage"]["tokens"] for attempt in task["attempts"]] == [5, 5]
    assert task["usage"] == {
        "reports": 2,
        "tokens": 10,
        "input_tokens": 0,
        "output_tokens": 0,
        "cost": 0.02,
        "more": {},
    }
    frames = [f for f in await here.frames(task["id"]) if f.kind == "usage"]
    assert [(f.data["tokens"], f.data["model"], f.data["attempt"]) for f in frames] == [
        (5, "small", 1),
        (5, "small", 2),
    ]


async def test_a_task_that_told_of_nothing_used_nothing(here: Site) -> None:
    task = await here.enqueue("elsewhere")
    assert "usage" not in await here.task(task["id"])


async def test_workers_elsewhere_tell_what_they_used(here: Site) -> None:
    lease = await claimed(here, user_id="ada", session_id="s-1")
    kept = await here.post(f"/leases/{lease}/usage", {"input_tokens": 3, "output_tokens": 4})
    assert kept.status_code == 200 and "until" in kept.json()
    told = {"percent": 50, "usage": {"tokens": 10, "cost": 0.5, "more": {"pictures": 1}}}
    assert (await here.post(f"/leases/{lease}/progress", told)).status_code == 200
    end = {"result": 1, "usage": {"tokens": 100, "model": "large"}}
    for _ in range(2):  # the reply was lost
        assert (await here.post(f"/leases/{lease}/complete", end)).status_code == 200
    told = (await here.get("/usage?by=user")).json()
    assert [(item["user"], item["tokens"], item["cost"]) for item in told["items"]] == [
        ("ada", 117, 0.5)
    ]
    assert told["total"]["more"] == {"pictures": 1}


async def test_a_failure_elsewhere_has_cost_money_too(here: Site) -> None:
    lease = await claimed(here)
    failed = {"error": {"message": "no"}, "retry": False, "usage": {"cost": "0.25"}}
    assert (await here.post(f"/leases/{lease}/fail", failed)).status_code == 200
    assert (await here.get("/usage")).json()["total"]["cost"] == 0.25
    late = await here.post(f"/leases/{lease}/usage", {"tokens": 1})
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")


@pytest.mark.parametrize("usage", [{}, {"tokens": -1}, {"cost": "much"}, {"colour": 1}])
async def test_nonsense_about_usage_is_refused(here: Site, usage: dict[str, Any]) -> None:
    lease = await claimed(here)
    for verb, body in (("usage", usage), ("complete", {"result": 1, "usage": usage})):
        assert (await here.post(f"/leases/{lease}/{verb}", body)).status_code == 422
    assert (await here.post(f"/leases/{lease}/complete", {})).status_code == 200


async def test_usage_is_asked_for_by_property_and_days(here: Site) -> None:
    for user in ("ada", "bob"):
        await here.ended((await here.enqueue("ask", {"tokens": 5}, user_id=user))["id"])
    told = (await here.get("/usage?by=model&user_id=ada")).json()
    assert [(item["model"], item["tokens"]) for item in told["items"]] == [("small", 5)]
    assert (told["by"], told["next"]) == ("model", None)
    before = (await here.get("/usage?from=2020-01-01&to=2020-02-01")).json()
    assert before["items"] == []
    for query in ("by=colour", "from=soon", "from=2026-02-02&to=2026-01-01", "colour=red"):
        assert (await here.get(f"/usage?{query}")).status_code == 422, query


async def test_a_budget_is_set_seen_hit_raised_and_deleted(here: Site) -> None:
    key = "/api/v1/budgets/user:*"
    made = await here.http.put(key, json={"tokens": "10/day", "then": "refuse"})
    assert made.status_code == 200
    assert made.json() == {
        "key": "user:*",
        "cost": None,
        "tokens": "10/day",
        "then": "refuse",
        "source": "people",
    }
    await here.ended((await here.enqueue("ask", {"tokens": 12}, user_id="ada"))["id"])
    body = {"type": "ask", "payload": {"tokens": 1}, "user_id": "ada"}
    no = await here.post("/tasks", body)
    assert (no.status_code, no.json()["code"]) == (429, "budget_spent")
    assert 0 < int(no.headers["retry-after"]) <= 86_400
    assert "begins anew" in no.json()["detail"]
    assert (await here.post("/tasks/batch", {"tasks": [body]})).status_code == 429
    [shown] = (await here.get("/budgets")).json()["items"]
    [used] = shown["used"]
    assert (used["key"], used["used"], used["amount"], used["span"]) == ("user:ada", 12, 10, "day")
    assert used["resets_at"].endswith("T00:00:00.000Z")
    await here.http.put(key, json={"tokens": "13/day", "then": "refuse"})
    assert (await here.post("/tasks", body)).status_code == 202
    assert (await here.http.delete(key)).status_code == 204
    assert (await here.http.delete(key)).status_code == 404
    assert (await here.get("/budgets")).json()["items"] == []


async def test_why_names_the_budget(here: Site) -> None:
    await here.http.put("/api/v1/budgets/global", json={"cost": "0.01"})
    await here.ended((await here.enqueue("ask", {"tokens": 1}))["id"])
    held = await here.enqueue("ask", {"tokens": 1})
    why = (await here.get(f"/tasks/{held['id']}/why")).json()
    while why["waits_for"] != "budget":  # until a worker has looked at it
        why = (await here.get(f"/tasks/{held['id']}/why")).json()
    assert "'global' is used up: 0.01 of 0.01 (cost)" in why["text"]
    await here.http.put("/api/v1/budgets/global", json={"cost": "1"})
    assert (await here.ended(held["id"]))["status"] == "completed"


@pytest.mark.parametrize(
    ("key", "body"),
    [
        ("user:*", {}),
        ("tenant:x", {"cost": "1"}),
        ("global", {"cost": 5}),
        ("global", {"cost": "5/week"}),
        ("global", {"cost": "5", "colour": "red"}),
    ],
)
async def test_a_bad_budget_is_refused(here: Site, key: str, body: dict[str, Any]) -> None:
    reply = await here.http.put(f"/api/v1/budgets/{key}", json=body)
    assert (reply.status_code, reply.json()["code"]) == (422, "bad_input")
    assert (await here.get("/budgets")).json()["items"] == []
