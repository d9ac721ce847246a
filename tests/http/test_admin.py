"""Operating over HTTP: queues, the dead, workers, limits, types, health."""

from __future__ import annotations

from outlast import Limit, Outlast, Trip
from outlast.core.ids import new_fence
from outlast.core.model import Charge, Outcome, Turn, Want, WorkerInfo
from outlast.core.states import STATUSES

from .site import API, Site, make_app, serving, until


async def test_the_status_of_queues_has_its_known_shape(site: Site) -> None:
    await site.enqueue("add", {"a": 1})
    await site.enqueue("add", {"a": 1}, queue="other", delay=60)
    status = (await site.get("/queues/status")).json()
    assert status["queues"] == {"primary": 1, "retry": 0, "scheduled": 1, "dlq": 0}
    assert set(status["states"]) == set(STATUSES)
    assert (status["retry_ratio"], status["pressure"]) == (0.3, "normal")
    assert set(status["by_queue"]) == {"default", "other"}
    other = status["by_queue"]["other"]
    assert (other["scheduled"], other["paused"], other["oldest_seconds"]) == (1, False, 0)


async def test_a_paused_queue_is_served_when_it_is_resumed(busy: Site) -> None:
    for name in ("default", "odd/name with spaces"):
        reply = await busy.post(f"/queues/{name}/pause")
        assert reply.json() == {"queue": name, "paused": True}
    status = (await busy.get("/queues/status")).json()["by_queue"]
    assert status["default"]["paused"] and status["odd/name with spaces"]["paused"]
    id = (await busy.enqueue("add", {"a": 1}))["id"]
    assert (await busy.get(f"/tasks/{id}/why")).json()["waits_for"] == "queue_paused"
    assert (await busy.post("/queues/default/resume")).json()["paused"] is False
    assert (await busy.ended(id))["status"] == "completed"


async def test_the_dead_are_listed_filtered_and_grouped(busy: Site) -> None:
    for n in range(3):
        await busy.ended((await busy.enqueue("doomed", tags=[f"t{n}"]))["id"])
    await busy.ended((await busy.enqueue("add", {"a": 1}))["id"])
    page = (await busy.get("/queues/dlq", params={"limit": 2})).json()
    assert [task["tags"] for task in page["items"]] == [["t2"], ["t1"]]
    rest = (await busy.get("/queues/dlq", params={"cursor": page["next"]})).json()
    assert ([task["tags"] for task in rest["items"]], rest["next"]) == ([["t0"]], None)
    assert len((await busy.get("/queues/dlq?tag=t1")).json()["items"]) == 1
    [group] = (await busy.get("/queues/dlq?group_by=fingerprint")).json()["items"]
    assert (group["count"], group["type"], group["message"]) == (3, "doomed", "it cannot be")
    for query in ("group_by=type", "group_by=fingerprint&tag=t1", "status=ready"):
        assert (await busy.get(f"/queues/dlq?{query}")).status_code == 422, query


async def test_workers_are_listed(busy: Site) -> None:
    [worker] = (await busy.get("/workers")).json()["items"]
    assert worker["alive"] and "add" in worker["types"]
    assert worker["queues"] == ["default", "outlast"]


async def test_a_worker_is_asked_to_drain(busy: Site) -> None:
    [worker] = (await busy.get("/workers")).json()["items"]
    reply = await busy.post(f"/workers/{worker['id']}/drain")
    assert (reply.status_code, reply.json()["draining"]) == (200, True)

    async def is_gone() -> bool:
        return (await busy.get("/workers")).json()["items"] == []

    await until(is_gone)
    assert (await busy.post(f"/workers/{worker['id']}/drain")).status_code == 404


async def test_types_come_with_the_schema_of_their_payload(busy: Site) -> None:
    page = (await busy.get("/types")).json()
    types = {one["type"]: one for one in page["items"]}
    assert page["next"] is None
    assert set(types) == {"add", "summarize", "tell", "wait", "doomed", "elsewhere"}
    assert types["add"]["description"] == "The sum of two numbers."
    assert types["add"]["schema"]["properties"]["a"]["type"] == "integer"
    assert types["add"]["result_schema"]["type"] == "integer"
    assert (types["add"]["workers"], types["elsewhere"]["workers"]) == (1, 0)


# Limits ------------------------------------------------------------------------------------------


async def test_a_limit_is_set_seen_and_deleted(site: Site) -> None:
    body = {"slots": 2, "rate": "60/min", "trip": {"rate": 0.25, "volume": 4, "open": "2m"}}
    reply = await site.http.put(f"{API}/limits/provider:x/y", json=body)
    assert (reply.status_code, reply.json()["key"]) == (200, "provider:x/y")
    assert reply.json()["trip"] == {"rate": 0.25, "volume": 4, "window": 60, "open": 120}
    page = (await site.get("/limits")).json()
    sources = {limit["key"]: limit["source"] for limit in page["items"]}
    assert sources == {"pool": "code", "provider:x/y": "people"}
    assert (await site.http.delete(f"{API}/limits/provider:x/y")).status_code == 204
    assert (await site.http.delete(f"{API}/limits/provider:x/y")).status_code == 404


async def test_a_limit_that_makes_no_sense_is_refused(site: Site) -> None:
    for key, body in (
        ("pool", {}),
        ("pool", {"slots": -1}),
        ("pool", {"slots": "2"}),
        ("pool", {"rate": "often"}),
        ("pool", {"slots": 1, "color": "red"}),
        ("pool", {"trip": {"rate": 2}}),
        ("a*b", {"slots": 1}),
        ("k" * 1000, {"slots": 1}),
    ):
        reply = await site.http.put(f"{API}/limits/{key}", json=body)
        assert (reply.status_code, reply.json()["code"]) == (422, "bad_input"), (key, body)
    [pool] = (await site.get("/limits")).json()["items"]
    assert pool["slots"] == 1


async def test_a_limit_is_reset(site: Site) -> None:
    await site.http.put(f"{API}/limits/a:x/y", json={"trip": {"rate": 0.5}})
    for key in ("a:x/y", "pool"):
        reply = await site.post(f"/limits/{key}/reset")
        assert (reply.status_code, reply.json()["key"]) == (200, key)
    assert (await site.post("/limits/nothing/reset")).status_code == 404
    sources = {one["key"]: one["source"] for one in (await site.get("/limits")).json()["items"]}
    assert sources == {"pool": "code", "a:x/y": "people"}


async def test_a_raised_limit_lets_the_next_one_in(busy: Site) -> None:
    first = (await busy.enqueue("wait", {"gate": "a"}))["id"]
    await until(lambda: "a" in busy.gates)
    second = (await busy.enqueue("wait", {"gate": "b"}))["id"]

    async def is_throttled() -> bool:
        return bool((await busy.task(second))["status"] == "throttled")

    await until(is_throttled)
    told = (await busy.get(f"/tasks/{second}/why")).json()
    assert (told["waits_for"], told["holders"]) == ("slots", [first])
    gauge = next(g for g in (await busy.get("/limits")).json()["gauges"] if g["key"] == "pool")
    assert (gauge["used"], gauge["waiting"], gauge["holders"]) == (1, 1, [first])
    await busy.http.put(f"{API}/limits/pool", json={"slots": 2})
    await until(lambda: "b" in busy.gates)
    for gate in busy.gates.values():
        gate.set()


# Health ------------------------------------------------------------------------------------------


async def test_health_is_degraded_without_a_worker_and_healthy_with_one() -> None:
    app, _ = make_app()
    async with serving(app) as site:
        for path in ("/health", f"{API}/health", "/health/"):
            reply = await site.http.get(path)
            assert (reply.status_code, reply.json()["status"]) == (200, "degraded"), path
        assert set(reply.json()["components"]) == {"engine", "workers", "circuit_breaker"}
        assert reply.json()["timestamp"].endswith("Z")
    app, _ = make_app()
    async with serving(app, working=True) as site:
        assert (await site.http.get("/health")).json()["status"] == "healthy"
        assert (await site.http.get("/livez")).json() == {"status": "alive"}
        assert (await site.http.get("/readyz")).json() == {"status": "ready"}


async def test_health_is_degraded_while_a_circuit_is_open() -> None:
    app = Outlast("memory://", limits=[Limit("api", trip=Trip(rate=0.5, volume=1))])
    app.external("call", limits=["api"])
    async with serving(app) as site:
        await site.enqueue("call")
        info = WorkerInfo(host="h", pid=1, queues=("default",), types=("call",))
        want = (Want("default", "primary", 1),)
        turn = Turn(token=new_fence(), worker="w", info=info, wants=want, room=1)
        [lease] = (await app.engine.exchange(turn)).leases
        assert (await site.http.get("/health")).json()["status"] == "healthy"
        failed = Outcome(
            id=lease.id, fence=lease.fence, state="pending", verdict="failed", lane="retry",
            charges=(Charge("api", ok=False),),
        )  # fmt: skip
        await app.engine.exchange(Turn(token=new_fence(), worker="w", outcomes=(failed,)))
        health = (await site.http.get("/health")).json()
        assert health["status"] == "degraded"
        assert health["components"]["circuit_breaker"]["status"] == "open"
