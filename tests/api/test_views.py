"""Records as JSON: the shapes that clients rely on."""

import json
from typing import Any

from outlast import Context, Limit, Outlast, Permanent, Trip
from outlast.core.limits import Limit as Definition
from outlast.core.model import Event, EventQuery, GaugeView, Record, WorkerInfo, WorkerView
from outlast.testing import testing
from outlast.views import (
    event_view,
    gauge_view,
    iso,
    limit_view,
    log_view,
    record_view,
    task_view,
    to_json,
    worker_view,
)

# The record of SPEC section 1, and what else it shows.
FIELDS = {
    "id", "type", "queue", "lane", "priority", "state", "status", "payload", "result", "error",
    "attempts", "progress", "attempt", "max_attempts", "losses", "timeout", "overdue_after",
    "overdue_at", "max_age", "run_at", "retry_at", "created_at", "started_at", "updated_at",
    "completed_at", "worker", "lease_until", "limits", "reason", "session_id", "user_id", "tags",
    "parent_id", "workflow_id", "unique_key", "version",
    "parked", "max_losses", "fingerprint", "after", "origin_id",
}  # fmt: skip


def seen(view: object) -> Any:
    return json.loads(to_json(view))


def test_times_are_iso_in_utc_with_milliseconds() -> None:
    assert iso(1_798_761_600_000) == "2027-01-01T00:00:00.000Z"
    assert iso(1_798_761_600_007) == "2027-01-01T00:00:00.007Z"
    assert iso(0) == "1970-01-01T00:00:00.000Z"
    assert iso(None) is None


async def test_a_task_is_its_record() -> None:
    app = Outlast("memory://", limits=[Limit("user:*", slots=2)])

    @app.task(limits=["user:{user}"], timeout="2m", overdue_after="1.5s", max_age="1h")
    async def work(ctx: Context, user: str) -> None:
        await ctx.progress(50, "half", n=1)
        raise Permanent("no use", details={"a": [1]})

    async with testing(app) as t:
        handle = await work.options(tags=["x"]).enqueue("ada")
        before = seen(task_view(await t.task(handle)))
        await t.run()
        after = seen(task_view(await t.task(handle)))
    assert before.keys() == after.keys() == FIELDS
    assert (before["payload"], before["result"], before["error"]) == ({"user": "ada"}, None, None)
    assert (before["limits"], before["attempts"], before["progress"]) == (["user:ada"], [], None)
    assert (before["timeout"], before["overdue_after"], before["max_age"]) == (120, 1.5, 3600)
    assert before["created_at"].endswith("Z")
    assert (after["status"], after["reason"]) == ("dead", "permanent")
    assert after["error"].keys() == {"code", "type", "message", "details", "traceback"}
    assert after["error"]["details"] == {"a": [1]}
    [attempt] = after["attempts"]
    assert (attempt["number"], attempt["outcome"], attempt["lane"]) == (1, "failed", "primary")
    assert attempt["error"]["message"] == "no use"
    assert attempt["started_at"] <= attempt["ended_at"] == after["completed_at"]
    assert after["progress"]["updated_at"].endswith("Z")
    assert (after["progress"]["percent"], after["progress"]["data"]) == (50, {"n": 1})


async def test_an_event_says_whose_it_is_whatever_it_carries() -> None:
    app = Outlast("memory://")

    @app.task
    async def work(ctx: Context) -> None:
        await ctx.emit({"task_id": "mine"})

    async with testing(app) as t:
        handle = await work.options(session_id="s").enqueue()
        await t.run()
        page = await app.engine.events(EventQuery(task_id=handle.id, kinds=("chunk", "done")))
    chunk, done = (seen(event_view(event)) for event in page.items)
    assert chunk["task_id"] == handle.id
    assert (chunk["attempt"], chunk["chunk"]) == (1, {"task_id": "mine"})
    assert (done["status"], done["at"][-1]) == ("completed", "Z")
    logged = seen(log_view(page.items[-1]))
    assert (logged["kind"], logged["type"], logged["session_id"]) == ("done", "work", "s")


def test_the_fields_of_an_event_cannot_pose_as_another_tasks() -> None:
    data = b'{"task_id":"other","at":"never","status":"x"}'
    event = Event(cursor="1", kind="notice", at=0, data=data, task_id="mine")
    assert seen(event_view(event)) == {
        "task_id": "mine", "at": "1970-01-01T00:00:00.000Z", "status": "x", "attempt": 0,
    }  # fmt: skip


def test_workers_gauges_limits_and_records() -> None:
    info = WorkerInfo(host="h", pid=7, queues=("q",), types=("t",), slots=3, version="1")
    worker = WorkerView(id="w", info=info, seen_at=0, lease_until=1, running=2, alive=True)
    assert seen(worker_view(worker)) == {
        "id": "w", "host": "h", "pid": 7, "version": "1", "queues": ["q"], "types": ["t"],
        "slots": 3, "running": 2, "alive": True, "started_at": None,
        "seen_at": "1970-01-01T00:00:00.000Z", "lease_until": "1970-01-01T00:00:00.001Z",
    }  # fmt: skip
    limit = Definition("a", slots=2, rate="60/min", trip=Trip(open="90s"))
    shown = {
        "key": "a", "slots": 2, "rate": "60/1m",
        "trip": {"rate": 0.5, "volume": 10, "window": 60, "open": 90},
    }  # fmt: skip
    assert seen(limit_view(limit)) == shown
    gauge = GaugeView(
        key="a", limit=to_json(limit.to_json()), used=1, waiting=2, circuit="open", open_until=5,
        paused_until=None, probe=None, holders=("t",),
    )  # fmt: skip
    assert seen(gauge_view(gauge)) == {
        "key": "a", "limit": shown, "used": 1, "waiting": 2, "circuit": "open",
        "open_until": "1970-01-01T00:00:00.005Z", "paused_until": None, "probe": None,
        "holders": ["t"],
    }  # fmt: skip
    record = Record(kind="k", key="a", value=b'{"b":1}', version=3)
    assert seen(record_view(record))["value"] == {"b": 1}
