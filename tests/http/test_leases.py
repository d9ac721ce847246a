"""Workers in any language: leases over HTTP, as a client sees them."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from outlast import Limit, Outlast, Queue, Retry
from outlast.access import create_key
from outlast.core.ids import new_fence
from outlast.core.model import Turn, Want, WorkerInfo
from outlast.worker.remote import LEASE_MS, MAX_CLAIM
from outlast.worker.worker import Worker
from tests.conformance.servers import url_for

from .site import API, Site, serving, until

Item = dict[str, Any]
T1 = "a random text"


def make_app(url: str = "memory://") -> Outlast:
    app = Outlast(url, limits=[Limit("one", slots=1)])
    app.external("job", retry=Retry("1s"), queue="jobs")
    app.external("other", queue="jobs")
    app.external("gated", limits=["one"], queue="jobs")
    app.external("short", timeout="5s", retry=Retry("1s", timeout_factor=2), queue="jobs")

    @app.task
    async def add(a: int) -> int:
        return a + 1

    return app


@pytest.fixture(params=os.environ.get("OUTLAST_TEST_ENGINES", "memory").split(","))
async def here(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    async with serving(make_app(url_for(request.param, tmp_path))) as site:
        yield site


async def claim(site: Site, **ask: Any) -> list[Item]:
    reply = await site.post("/leases", {"worker": "w1", "queues": ["jobs"], **ask})
    assert reply.status_code == 200, reply.text
    items: list[Item] = reply.json()["items"]
    return items


async def say(site: Site, item: Item, verb: str, body: object = None, status: int = 200) -> Item:
    reply = await site.post(f"/leases/{item['lease']}/{verb}", body)
    assert reply.status_code == status, reply.text
    told: Item = reply.json()
    if status == 409:
        assert told["code"] == "lease_lost"
    return told


async def pass_time(site: Site, ms: int) -> None:
    site.app.engine.skew_ms += ms
    await site.app.engine.sweep()


async def outcomes_of(site: Site, id: str) -> list[str]:
    return [attempt["outcome"] for attempt in (await site.task(id))["attempts"]]


# From a claim to the end -------------------------------------------------------------------------


async def test_a_task_from_claim_to_result(here: Site) -> None:
    made = await here.enqueue("job", {"n": 1}, session_id="s1")
    [item] = await claim(here, types=["job"])
    task = item["task"]
    assert (task["id"], task["payload"], task["status"]) == (made["id"], {"n": 1}, "running")
    assert (task["attempt"], task["worker"].partition("#")[0]) == (1, "anybody/w1")
    assert item["until"] == task["lease_until"]
    assert (item["deadline"], item["steps"], item["signals"]) == (None, {}, [])
    assert await claim(here, types=["job"]) == []
    kept = await say(here, item, "progress", {"percent": 40, "message": "m", "data": {"n": 3}})
    assert kept["cancel"] is None
    assert kept["until"] >= item["until"]
    await say(here, item, "emit", {"chunk": {"text": "a"}})
    await say(here, item, "emit", {"chunk": "b"})
    ended = await say(here, item, "complete", {"result": [1, {"x": None}]})
    assert ended == {"task_id": made["id"], "outcome": "succeeded"}
    record = await here.task(made["id"])
    assert (record["status"], record["result"]) == ("completed", [1, {"x": None}])
    assert (record["progress"]["percent"], record["progress"]["data"]) == (40, {"n": 3})
    frames = await here.frames(made["id"])
    assert [f.data["chunk"] for f in frames if f.kind == "chunk"] == [{"text": "a"}, "b"]
    assert [worker["id"] for worker in (await here.get("/workers")).json()["items"]] == [
        "anybody/w1"
    ]


async def test_a_signal_comes_with_the_lease(here: Site) -> None:
    made = await here.enqueue("job", hold="go")
    assert await claim(here) == []
    await here.post(f"/tasks/{made['id']}/signal/go", {"by": "ada"})
    [item] = await claim(here)
    [signal] = item["signals"]
    assert (signal["name"], signal["data"]) == ("go", {"by": "ada"})


async def test_an_end_can_be_repeated_and_not_be_changed(here: Site) -> None:
    for verb, body in (("complete", {"result": 1}), ("fail", {}), ("release", None)):
        await here.enqueue("job")
        [item] = await claim(here)
        first = await say(here, item, verb, body)
        assert await say(here, item, verb, body) == first
        others = {"complete", "fail", "release", "heartbeat"} - {verb}
        for other in others:
            await say(here, item, other, status=409)
        if verb != "complete":
            await here.post(f"/tasks/{item['task']['id']}/cancel")


async def test_what_was_ended_under_an_older_lease_is_known_while_a_newer_one_runs(
    here: Site,
) -> None:
    await here.enqueue("job")
    [first] = await claim(here)
    await say(here, first, "fail", {"retry": 1})
    await pass_time(here, 1_001)
    [second] = await claim(here, worker="w2")
    assert (await say(here, first, "fail", {"retry": 1}))["outcome"] == "failed"
    await say(here, first, "complete", status=409)
    assert (await say(here, second, "complete"))["outcome"] == "succeeded"
    assert await outcomes_of(here, second["task"]["id"]) == ["failed", "succeeded"]


# Waiting -----------------------------------------------------------------------------------------


async def test_a_waiting_claim_is_answered_when_a_task_comes(here: Site) -> None:
    waiting = asyncio.create_task(claim(here, wait=30))
    await until(lambda: here.open_streams == 1)
    made = await here.enqueue("job")
    [item] = await asyncio.wait_for(waiting, 30)
    assert item["task"]["id"] == made["id"]
    assert here.open_streams == 0


async def test_a_waiting_claim_is_answered_when_a_task_comes_due(here: Site) -> None:
    made = await here.enqueue("job", delay=0.3)
    [item] = await claim(here, wait=30)
    assert item["task"]["id"] == made["id"]


async def test_a_wait_ends_with_nothing(here: Site) -> None:
    assert await claim(here, wait=0.05) == []


async def test_a_claim_ends_with_its_client_and_takes_nothing(here: Site) -> None:
    waiting = asyncio.create_task(claim(here, wait=30))
    await until(lambda: here.open_streams == 1)
    waiting.cancel()
    await until(lambda: here.open_streams == 0)
    made = await here.enqueue("job")
    assert (await here.task(made["id"]))["status"] == "ready"


async def test_a_claim_ends_with_its_server() -> None:
    async with serving(make_app()) as site:
        waiting = asyncio.create_task(claim(site, wait=30))
        await until(lambda: site.open_streams == 1)
        site.server.should_exit = True
        assert await asyncio.wait_for(waiting, 30) == []


# Whose lease it is -------------------------------------------------------------------------------


async def test_a_worker_that_stops_calling_loses_its_tasks_to_others(here: Site) -> None:
    await here.enqueue("job")
    [stale] = await claim(here)
    await pass_time(here, LEASE_MS + 1)
    [fresh] = await claim(here, worker="w2", wait=5)
    for verb in ("heartbeat", "complete", "fail", "release", "heartbeat"):
        await say(here, stale, verb, status=409)
    await say(here, stale, "progress", {"percent": 1}, status=409)
    await say(here, stale, "emit", {"chunk": 1}, status=409)
    await say(here, fresh, "complete", {"result": "fresh"})
    record = await here.task(fresh["task"]["id"])
    assert (record["result"], record["losses"]) == ("fresh", 1)
    assert await outcomes_of(here, record["id"]) == ["stalled", "succeeded"]


async def test_a_heartbeat_keeps_what_was_claimed_together(here: Site) -> None:
    for _ in range(3):
        await here.enqueue("job")
    first, second, third = await claim(here, max=3)
    for _ in range(3):
        await pass_time(here, LEASE_MS - 1_000)
        await say(here, first, "heartbeat")
    for item in (second, first):
        await say(here, item, "complete")
    await pass_time(here, LEASE_MS - 1_000)
    await say(here, third, "complete")
    workers = (await here.get("/workers")).json()["items"]
    assert not [worker for worker in workers if "#" in worker["id"]]


async def test_a_name_that_comes_again_keeps_nothing_alive(here: Site) -> None:
    """Restarted, or started twice, or its reply was lost: whoever goes on does not own that."""
    made = await here.enqueue("job")
    [lost] = await claim(here)
    await here.enqueue("job")
    [item] = await claim(here)
    for _ in range(2):
        await pass_time(here, LEASE_MS - 1_000)
        await say(here, item, "heartbeat")
        assert await claim(here, types=["other"]) == []
    assert (await here.task(made["id"]))["status"] in ("ready", "retrying")
    await say(here, lost, "complete", status=409)
    await say(here, item, "complete")


async def test_the_same_token_gives_the_same_leases(here: Site) -> None:
    for _ in range(3):
        await here.enqueue("job")
    first = await claim(here, max=2, token=T1)
    again = await claim(here, max=2, token=T1)
    assert [item["lease"] for item in first] == [item["lease"] for item in again]
    assert len(await claim(here, max=2, token=T1, worker="w2")) == 1
    await say(here, first[0], "complete")
    [left] = await claim(here, max=2, token=T1)
    assert left["task"]["id"] == first[1]["task"]["id"]
    await say(here, left, "complete")
    assert await claim(here, max=2, token=T1) == []


async def test_a_token_that_comes_again_later_gets_leases_of_its_own(here: Site) -> None:
    await here.enqueue("job")
    [old] = await claim(here, token=T1)
    await pass_time(here, LEASE_MS + 1)
    [new] = await claim(here, token=T1, wait=5)
    assert new["task"]["id"] == old["task"]["id"]
    await say(here, old, "complete", status=409)
    await say(here, new, "complete")


async def test_a_lease_is_for_the_key_that_took_it_and_cannot_be_forged() -> None:
    app = make_app()
    async with serving(app) as site:
        keys = [(await create_key(app.engine, "worker"))[0] for _ in range(2)]
        admin = (await create_key(app.engine, "admin"))[0]
        headers = [{"authorization": f"Bearer {key}"} for key in (*keys, admin)]
        await app.submit("job", {})
        ask = {"worker": "w1", "queues": ["jobs"]}
        items = (await site.post("/leases", ask, headers=headers[0])).json()["items"]
        lease = items[0]["lease"]
        forged = ("A" if lease[0] != "A" else "B") + lease[1:]
        for text, who in ((lease, 1), (lease, 2), (forged, 0), ("x", 0), ("x.y", 0), ("é", 0)):
            reply = await site.post(f"/leases/{text}/complete", headers=headers[who])
            assert (reply.status_code, reply.json()["code"]) == (404, "not_found"), (text, who)
        as_token = {"authorization": f"Bearer olt_{lease}"}
        assert (await site.post("/leases", ask, headers=as_token)).status_code == 401
        reply = await site.post(f"/leases/{lease}/complete", headers=headers[0])
        assert reply.status_code == 200


async def test_another_server_on_the_same_engine_knows_the_lease(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with serving(make_app(url)) as one, serving(make_app(url)) as two:
        await one.enqueue("job")
        [item] = await claim(one, token=T1)
        assert [again["lease"] for again in await claim(two, token=T1)] == [item["lease"]]
        await say(two, item, "heartbeat")
        await say(two, item, "complete", {"result": 1})
        await say(one, item, "complete", {"result": 1})
        await say(one, item, "heartbeat", status=409)


async def test_a_scoped_key_takes_what_is_in_its_scope() -> None:
    app = make_app()
    async with serving(app) as site:
        text, _ = await create_key(app.engine, "worker", queues=["jobs"], types=["job"])
        headers = {"authorization": f"Bearer {text}"}
        await app.submit("job", {})
        for ask in ({"queues": ["default"]}, {"types": ["other"]}, {"types": ["job", "other"]}):
            reply = await site.post("/leases", {"worker": "w", **ask}, headers=headers)
            assert reply.status_code == 403, reply.text
        reply = await site.post("/leases", {"worker": "w"}, headers=headers)
        [item] = reply.json()["items"]
        assert item["task"]["type"] == "job"


# Cancelled, late, failed -------------------------------------------------------------------------


async def test_a_cancelled_task_is_told_with_every_answer(here: Site) -> None:
    made = await here.enqueue("job")
    [item] = await claim(here)
    await here.post(f"/tasks/{made['id']}/cancel", {"reason": "enough"})
    assert (await say(here, item, "heartbeat"))["cancel"] == "enough"
    assert (await say(here, item, "progress", {"percent": 1}))["cancel"] == "enough"
    await say(here, item, "release")
    record = await here.task(made["id"])
    assert (record["status"], record["reason"]) == ("cancelled", "enough")


@pytest.mark.parametrize("verb", ["complete", "heartbeat"])
async def test_a_late_attempt_has_timed_out(here: Site, verb: str) -> None:
    made = await here.enqueue("short")
    [item] = await claim(here)
    assert item["deadline"] is not None
    await pass_time(here, 3_000)
    await say(here, item, "heartbeat")
    here.app.engine.skew_ms += 2_001
    await say(here, item, verb, status=409)
    await say(here, item, verb, status=409)
    record = await here.task(made["id"])
    assert (record["status"], record["timeout"]) == ("retrying", 10)
    assert record["error"]["code"] == "timed_out"
    assert await outcomes_of(here, made["id"]) == ["timed_out"]


async def test_who_noticed_the_timeout_is_told_that_it_is_recorded(here: Site) -> None:
    await here.enqueue("short")
    [item] = await claim(here)
    await pass_time(here, 5_001)
    assert (await say(here, item, "fail", {"error": {"type": "T"}}))["outcome"] == "timed_out"


async def test_a_result_that_came_in_time_counts_when_it_is_repeated_late(here: Site) -> None:
    await here.enqueue("short")
    [item] = await claim(here)
    await say(here, item, "complete", {"result": 1})
    await pass_time(here, 6_000)
    assert (await say(here, item, "complete", {"result": 1}))["outcome"] == "succeeded"


@pytest.mark.parametrize(
    ("failure", "status", "delay_s"),
    [
        ({}, "retrying", 1.0),  # the schedule that the app declares
        ({"error": {"type": "HttpError", "status": 503}}, "retrying", 1.0),
        ({"error": {"type": "HttpError", "status": 404}}, "dead", None),
        ({"error": {"type": "HttpError", "status": 404}, "retry": True}, "retrying", 1.0),
        ({"error": {"type": "E"}, "retry": False}, "dead", None),
        ({"retry": 7.5}, "retrying", 7.5),
        ({"retry": "2m"}, "retrying", 120.0),
        ({"error": {"message": "later", "retry_after": 30}}, "retrying", 30.0),
    ],
)
async def test_failing(
    here: Site, failure: dict[str, Any], status: str, delay_s: float | None
) -> None:
    made = await here.enqueue("job")
    [item] = await claim(here)
    assert (await say(here, item, "fail", failure))["outcome"] == "failed"
    record = await here.task(made["id"])
    assert record["status"] == status
    if delay_s is not None:
        left_ms = (await here.app.handle(made["id"]).refresh()).run_at - (
            await here.app.engine.now()
        )
        assert delay_s * 1_000 - 5_000 < left_ms <= delay_s * 1_100 + 1


async def test_the_error_is_in_the_record(here: Site) -> None:
    made = await here.enqueue("job", max_attempts=1)
    [item] = await claim(here)
    error = {"type": "E", "message": "broke", "code": "odd", "details": {"n": 1}, "traceback": "t"}
    await say(here, item, "fail", {"error": error, "retry": True})
    record = await here.task(made["id"])
    assert (record["status"], record["reason"]) == ("dead", "attempts")
    assert record["error"] == error


async def test_a_release_costs_nothing(here: Site) -> None:
    made = await here.enqueue("job", max_attempts=1)
    for _ in range(3):
        [item] = await claim(here)
        assert item["task"]["attempt"] == 1
        await say(here, item, "release")
    assert (await here.task(made["id"]))["status"] == "ready"


# Types, limits, lanes ----------------------------------------------------------------------------


async def test_types_that_are_not_served_are_given_back_at_no_cost(here: Site) -> None:
    others = [(await here.enqueue("other"))["id"] for _ in range(3)]
    mine = await here.enqueue("job")
    [item] = await claim(here, types=["job"])
    assert item["task"]["id"] == mine["id"]
    for id in others:
        record = await here.task(id)
        assert (record["status"], record["attempt"], record["losses"]) == ("scheduled", 0, 0)


async def test_what_a_worker_serves_can_be_enqueued_as_long_as_it_is_there(here: Site) -> None:
    body = {"type": "new.kind", "queue": "jobs", "payload": {}}
    assert (await here.post("/tasks", body)).status_code == 422
    await claim(here, types=["new.kind"])
    assert (await here.post("/tasks", body)).status_code == 202
    [item] = await claim(here, types=["new.kind"])
    for _ in range(3):
        await pass_time(here, LEASE_MS - 1_000)
        here.server.config.app.state.remote._kept.clear()  # type: ignore[union-attr]  # 3 s went by
        await say(here, item, "heartbeat")
    assert (await here.post("/tasks", body)).status_code == 202
    await pass_time(here, LEASE_MS + 1)
    assert (await here.post("/tasks", body)).status_code == 422


async def test_what_only_a_worker_knows_goes_into_its_queue(here: Site) -> None:
    await claim(here, types=["new.kind"])
    assert (await here.enqueue("new.kind"))["queue"] == "jobs"
    await claim(here, worker="w2", types=["new.kind"], queues=["default"])
    assert (await here.enqueue("new.kind"))["queue"] == "default"


async def test_the_queues_of_types_that_the_app_declares_need_not_be_named(here: Site) -> None:
    await here.enqueue("job")
    reply = await here.post("/leases", {"worker": "w", "types": ["job"]})
    assert len(reply.json()["items"]) == 1


async def test_limits_hold_for_all(here: Site) -> None:
    for _ in range(2):
        await here.enqueue("gated")
    [item] = await claim(here, max=5)
    assert await claim(here, worker="w2") == []
    waiting = asyncio.create_task(claim(here, worker="w2", wait=30))
    await until(lambda: here.open_streams == 1)
    await say(here, item, "complete")
    [second] = await asyncio.wait_for(waiting, 30)
    assert second["task"]["id"] != item["task"]["id"]


async def test_the_retry_lane_has_its_share(here: Site) -> None:
    engine, n = here.app.engine, 60
    calls = [await here.app.prepare("job", {}) for _ in range(2 * n)]
    await here.app.enqueue(calls[:n])
    turn = Turn(
        token=new_fence(),
        worker="w0",
        wants=(Want("jobs", "primary", n),),
        room=n,
        info=WorkerInfo(host="h", pid=1),
    )
    assert len((await engine.exchange(turn)).leases) == n
    await pass_time(here, LEASE_MS + 1)  # all in the retry lane now, due within a second
    await pass_time(here, 1_001)
    await here.app.enqueue(calls[n:])
    lanes: Counter[str] = Counter()
    for _ in range(10):
        items = [item for items in await asyncio.gather(*(claim(here) for _ in range(5)))
                 for item in items]  # fmt: skip
        lanes.update(item["task"]["lane"] for item in items)
    assert lanes == {"primary": 35, "retry": 15}


async def test_tasks_on_their_last_life_are_handed_out_one_by_one(here: Site) -> None:
    for _ in range(3):
        await here.enqueue("job", max_losses=2)
    assert len(await claim(here, max=3)) == 3
    await pass_time(here, LEASE_MS + 1)
    await pass_time(here, 1_001)
    assert len(await claim(here, max=3)) == 1


async def test_a_fair_queue_is_fair_here_too() -> None:
    app = Outlast("memory://", queues=[Queue("jobs", fair_by="user_id")])
    app.external("job", queue="jobs")
    async with serving(app) as site:
        for user in "aaab":
            await site.enqueue("job", user_id=user)
        assert [i["task"]["user_id"] for i in await claim(site, max=4)] == ["a", "b", "a", "a"]


async def test_a_queue_can_be_shared_with_python_workers(here: Site) -> None:
    worker = Worker(here.app, queues={"jobs": None})
    running = asyncio.create_task(worker.run())
    try:
        made = await here.enqueue("job")

        async def given_back() -> bool:
            return "released" in await outcomes_of(here, made["id"])

        await until(given_back)
    finally:
        worker.stop_now()
        await running
    mine = await here.enqueue("add", {"a": 1}, queue="jobs")
    [item] = await claim(here, types=["job"], wait=20)
    assert item["task"]["attempt"] == 1
    await say(here, item, "complete")
    assert (await here.task(mine["id"]))["attempt"] == 0


# Bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        {},
        {"queues": ["jobs"]},
        {"worker": "w"},
        {"worker": "", "queues": ["jobs"]},
        {"worker": "w", "queues": "jobs"},
        {"worker": "w", "queues": [""]},
        {"worker": "w", "queues": ["jobs"], "max": 0},
        {"worker": "w", "queues": ["jobs"], "max": MAX_CLAIM + 1},
        {"worker": "w", "queues": ["jobs"], "wait": -1},
        {"worker": "w", "queues": ["jobs"], "wait": 61},
        {"worker": "w", "queues": ["jobs"], "token": ""},
        {"worker": "w", "queues": [f"q{n}" for n in range(51)]},
        {"worker": "w", "types": [f"t{n}" for n in range(201)]},
        {"worker": "w", "queues": ["jobs"], "speed": 1},
    ],
)
async def test_what_cannot_be_claimed(here: Site, ask: dict[str, Any]) -> None:
    assert (await here.post("/leases", ask)).status_code == 422


async def test_bad_reports_change_nothing(here: Site) -> None:
    made = await here.enqueue("job")
    [item] = await claim(here)
    for verb, body, status in (
        ("progress", {"percent": 101}, 422),
        ("progress", {}, 422),
        ("emit", {}, 422),
        ("emit", {"chunk": "x" * 1_100_000}, 413),
        ("complete", {"result": "x" * 1_100_000}, 413),
        ("complete", {"results": 1}, 422),
        ("fail", {"retry": -1}, 422),
        ("fail", {"retry": "soon"}, 422),
        ("fail", {"error": {"type": 5}}, 422),
        ("fail", {"error": "broke"}, 422),
    ):
        await say(here, item, verb, body, status)
    record = await here.task(made["id"])
    assert (record["status"], record["progress"], record["attempts"]) == ("running", None, [])
    raw = b'{"result": ' + b"[" * 100 + b"]" * 100 + b"}"
    headers = {"content-type": "application/json"}
    path = f"{API}/leases/{item['lease']}/complete"
    assert (await here.http.post(path, content=raw, headers=headers)).status_code == 422


async def test_an_answer_is_bounded_in_bytes(here: Site) -> None:
    for _ in range(10):
        await here.enqueue("job", {"text": "x" * 1_000_000})
    items = await claim(here, max=10)
    assert len(items) == 8
    assert len(await claim(here, max=10)) == 2


async def test_an_idle_worker_that_does_not_know_the_type_takes_nothing_away(busy: Site) -> None:
    """It is woken first, gives back what it does not know, and lets the other go first then."""
    for n in range(6):
        id = (await busy.enqueue("elsewhere", {"to": n}))["id"]
        async with asyncio.timeout(30):
            while not (items := await claim(busy, queues=["default"], types=["elsewhere"], wait=3)):
                pass
        assert [item["task"]["id"] for item in items] == [id]
        await say(busy, items[0], "complete")
