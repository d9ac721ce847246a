"""The bridge: services take part over Redis Streams, whatever the engine is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import redis

from outlast import BadInput, Outlast, TaskDead
from outlast.cli.bridge import bridge
from outlast.systems.streams import Bridge, wire
from outlast.systems.streams.answers import mark_of
from tests.conformance.servers import chosen, cleared, url_for

from .site import (
    COMPLETED,
    CREATE,
    DLQ,
    FAILED,
    REPORT,
    TIMEOUT,
    Service,
    bridging,
    events,
    make_app,
    until,
)


@pytest.mark.parametrize("engine", chosen())
async def test_a_service_answers_on_every_engine(
    engine: str, tmp_path: Path, valkey: str, streams: redis.Redis
) -> None:
    app, service = make_app(url_for(engine, tmp_path)), Service(streams)
    async with app, bridging(app, valkey):
        handle = await app.submit("report.generate", REPORT, session_id="user-123", priority="high")
        [task] = await service.take()
        service.complete(task, {"summary": "fine"})
        assert await handle.result(timeout="30s") == {"summary": "fine"}
    [event] = events(streams, CREATE)
    assert event["event_type"] == "task.create"
    assert set(event) == {"event_id", "event_type", "timestamp", "data"}
    assert event["timestamp"].endswith("Z")
    assert task == {
        "task_id": handle.id,
        "task_type": "report.generate",
        "params": REPORT,
        "session_id": "user-123",
        "timeout": 300,
        "priority": "high",
        "created_by": "agent",
        "attempt": 1,
        "fence": task["fence"],
    }
    assert type(task["timeout"]) is int  # for languages that tell the two apart
    cleared(engine)


async def test_a_task_that_a_service_has_holds_no_worker(
    app: Outlast, valkey: str, streams: redis.Redis
) -> None:
    async with app, bridging(app, valkey):
        handle = await app.submit("report.generate", REPORT)
        [task] = await Service(streams).take()
        record = await until(lambda: parked(handle))
        assert record.parked == f"signal:service:{mark_of(task['fence'])}"
        assert record.worker is None


async def test_the_owner_of_a_task_cannot_answer_it(
    app: Outlast, valkey: str, streams: redis.Redis
) -> None:
    service = Service(streams)
    async with app, bridging(app, valkey):
        handle = await app.submit("report.generate", REPORT, session_id="s")
        [task] = await service.take()
        record = await until(lambda: parked(handle))
        assert task["fence"] not in repr(record)
        name = record.parked.removeprefix("signal:")
        for forged in ({"kind": "completed", "result": "mine"}, "x", None):
            await handle.signal(name, forged)
        service.complete(task, "the service's")
        assert await handle.result(timeout="30s") == "the service's"


async def parked(handle: object) -> object:
    record = await handle.refresh()  # type: ignore[attr-defined]  # a handle
    return record if record.parked else None


async def test_a_failure_is_tried_again_and_a_permanent_one_is_not(
    app: Outlast, valkey: str, streams: redis.Redis
) -> None:
    service = Service(streams)
    async with app, bridging(app, valkey):
        handle = await app.submit("patient", {})
        [first] = await service.take()
        service.fail(first, "SERVICE_UNAVAILABLE", "come back")
        [second] = await service.take()
        assert (second["attempt"], second["fence"] != first["fence"]) == (2, True)
        service.fail(second, "INSUFFICIENT_DATA", "not enough", permanent=True, details={"n": 1})
        with pytest.raises(TaskDead):
            await handle.result(timeout="30s")
        record = await handle.refresh()
        error = json.loads(record.error or b"{}")
        told = {name: error[name] for name in ("code", "message", "details")}
        assert told == {"code": "insufficient_data", "message": "not enough", "details": {"n": 1}}
        assert record.reason == "permanent"
        assert record.attempt == 2
        other = await app.submit("patient", {})
        [task] = await service.take()
        service.fail(task, "INVALID_PARAMETERS")
        with pytest.raises(TaskDead):
            await other.result(timeout="30s")
        assert (await other.refresh()).attempt == 1


async def test_what_died_is_in_the_dlq_stream_for_seven_days(
    app: Outlast, valkey: str, streams: redis.Redis
) -> None:
    service = Service(streams)
    async with app, bridging(app, valkey):
        handle = await app.submit("patient", {"password": "hunter2", "a": 1}, session_id="s")
        [task] = await service.take()
        assert task["params"]["password"] == "hunter2"  # noqa: S105  # the service needs it
        service.fail(task, "NOT_FOUND", "gone")
        [event] = await until(lambda: events(streams, DLQ))
        left_ms = streams.pttl(DLQ)
    assert event["event_type"] == "task.dlq"
    data = event["data"]
    assert (data["task_id"], data["attempts"], data["reason"]) == (handle.id, 1, "permanent")
    assert data["params"] == {"password": "***", "a": 1}
    assert data["error"]["message"] == "gone"
    assert 6.9 < left_ms / wire.DAY_MS <= 7


async def test_a_service_that_is_silent_times_out_and_its_late_answer_is_refused(
    app: Outlast, valkey: str, streams: redis.Redis
) -> None:
    service = Service(streams)
    async with app, bridging(app, valkey):
        handle = await app.submit("quick", {}, timeout="1s", max_attempts=100)
        [first] = await service.take()
        event = (await until(lambda: events(streams, TIMEOUT)))[0]
        assert event["data"]["message"] == "Task exceeded timeout of 1 seconds"
        assert event["data"]["elapsed_ms"] == 1_000
        service.complete(first, "too late")
        [refused] = await until(lambda: events(streams, DLQ))
        assert refused["data"]["reason"] == "refused"
        assert refused["data"]["message"].startswith("Late:")
        await service.serve(handle, "in time")
        last = events(streams, CREATE)[-1]["data"]
        before = len(events(streams, DLQ))
        service.complete(last, "twice")
        await until(lambda: len(events(streams, DLQ)) > before)
        assert await handle.result() == "in time"


async def test_a_task_that_times_out_for_the_last_time_dies_of_it(
    app: Outlast, valkey: str, streams: redis.Redis
) -> None:
    async with app, bridging(app, valkey):
        handle = await app.submit("quick", {})
        with pytest.raises(TaskDead):
            await handle.result(timeout="30s")
        record = await handle.refresh()
        assert (record.reason, record.attempt) == ("timeout", 2)
        await until(lambda: len(events(streams, DLQ)) == 1)
    assert len(events(streams, CREATE)) == len(events(streams, TIMEOUT)) == 2


async def test_answers_that_are_none_are_refused_and_hold_up_no_other(
    app: Outlast, valkey: str, streams: redis.Redis
) -> None:
    service = Service(streams)
    async with app, bridging(app, valkey):
        handle = await app.submit("report.generate", REPORT)
        [task] = await service.take()
        streams.xadd(COMPLETED, {"data": "[1"})
        streams.xadd(COMPLETED, {"what": "?"})
        streams.xadd(FAILED, {"data": json.dumps({"task_id": task["task_id"], "fence": "x"})})
        service.complete({"task_id": task["task_id"], "fence": 5})
        service.complete({"task_id": "no-id", "fence": "x"})
        service.complete({**task, "task_id": handle.id[:-4] + "0000"})
        service.complete(task, "good")
        assert await handle.result(timeout="30s") == "good"
        await until(lambda: len(events(streams, DLQ)) == 6)
    said = " ".join(event["data"]["message"] for event in events(streams, DLQ))
    assert "not a JSON object" in said
    assert "data.fence is none" in said
    assert "data.error is missing" in said
    assert "There is no task" in said
    assert streams.xpending(COMPLETED, "agent-group")["pending"] == 0


async def test_a_service_that_knows_no_fence_is_heard(
    app: Outlast, valkey: str, streams: redis.Redis
) -> None:
    """The pattern's schema has none. It can be told what is answered: each time has its answer."""
    service = Service(streams)
    async with app, bridging(app, valkey):
        handle = await app.submit("patient", {})
        [first] = await service.take()
        del first["fence"]
        service.fail(first, "SERVICE_UNAVAILABLE")
        [_, failed] = streams.xrange(FAILED)[-1]
        [second] = await service.take()
        streams.xadd(FAILED, failed)  # once more, by a client that had no reply
        [refused] = await until(lambda: events(streams, DLQ))
        assert refused["data"]["message"].startswith("Late:")
        del second["fence"]
        service.complete(second, "good")
        assert await handle.result(timeout="30s") == "good"
        assert (await handle.refresh()).attempt == 2


async def test_without_a_fence_nothing_is_heard_that_may_be_meant_for_an_earlier_time(
    app: Outlast, valkey: str, streams: redis.Redis
) -> None:
    service = Service(streams)
    async with app, bridging(app, valkey):
        handle = await app.submit("patient", {}, timeout="1s", max_attempts=100)
        [first, second] = await service.take(2)
        service.complete({**first, "fence": None}, "of which?")
        [refused] = await until(lambda: events(streams, DLQ))
        assert "data.fence is missing" in refused["data"]["message"]
        service.complete(second, "late or in time")
        await service.serve(handle, "in time")
        assert await handle.result() in ("in time", "late or in time")


@pytest.mark.parametrize("result", ['"%s"' % ("x" * 1_500_000), "[" * 500 + "]" * 500])
async def test_a_result_that_cannot_be_kept_fails_its_task_and_holds_up_no_other(
    app: Outlast, valkey: str, streams: redis.Redis, result: str
) -> None:
    service = Service(streams)
    async with app, bridging(app, valkey):
        handle = await app.submit("patient", {})
        [task] = await service.take()
        told = {"task_id": task["task_id"], "fence": task["fence"], "result": 0}
        streams.xadd(COMPLETED, {"data": json.dumps(told).replace(": 0}", f": {result}}}")})
        with pytest.raises(TaskDead, match=r"the most is"):
            await handle.result(timeout="30s")
        record = await handle.refresh()
        assert (record.reason, record.attempt) == ("permanent", 1)
        other = await app.submit("patient", {})
        [task] = await service.take()
        service.complete(task, "good")
        assert await other.result(timeout="30s") == "good"
    assert streams.xpending(COMPLETED, "agent-group")["pending"] == 0


@pytest.mark.parametrize("depth", [900, 100_000])
async def test_what_is_nested_without_end_is_refused_and_holds_up_no_other(
    app: Outlast, valkey: str, streams: redis.Redis, depth: int
) -> None:
    service = Service(streams)
    async with app, bridging(app, valkey):
        streams.xadd(COMPLETED, {"data": '{"result": ' + "[" * depth + "]" * depth + "}"})
        handle = await app.submit("patient", {})
        [task] = await service.take()
        service.complete(task, "good")
        assert await handle.result(timeout="30s") == "good"
        await until(lambda: streams.xlen(DLQ) == 1)
    assert streams.xpending(COMPLETED, "agent-group")["pending"] == 0


async def test_a_bridge_that_no_longer_hears_ends_with_the_reason(
    app: Outlast, valkey: str, streams: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise TypeError("a mistake")

    async with app:
        bridge = Bridge(app, valkey)
        monkeypatch.setattr(bridge._streams, "read", broken)
        with pytest.raises(TypeError, match="a mistake"):
            await asyncio.wait_for(bridge.run(), 30)


async def test_what_a_dead_bridge_had_read_is_claimed_by_another(
    app: Outlast, valkey: str, streams: redis.Redis
) -> None:
    service = Service(streams)
    async with app:
        async with bridging(app, valkey):
            handle = await app.submit("report.generate", REPORT)
            [task] = await service.take()
            await until(lambda: parked(handle))
        service.complete(task, "kept")  # nobody is there
        streams.xreadgroup("agent-group", "dead", {COMPLETED: ">"})  # read, and never acknowledged
        async with bridging(app, valkey, idle_ms=50):
            assert await handle.result(timeout="30s") == "kept"
    assert len(events(streams, CREATE)) == 1  # it was not handed over again


async def test_an_event_that_could_not_be_added_is_not_taken_for_one_that_was(
    app: Outlast, valkey: str, streams: redis.Redis
) -> None:
    async with app, bridging(app, valkey):
        streams.config_resetstat()
        streams.set(DLQ, "no stream")
        streams.xadd(COMPLETED, {"data": "no answer"})
        await until(lambda: streams.info("errorstats").get("errorstat_WRONGTYPE"))
        streams.delete(DLQ)
        [event] = await until(lambda: events(streams, DLQ))
        assert event["data"]["reason"] == "refused"


async def test_streams_that_are_lost_are_made_again(
    app: Outlast, valkey: str, streams: redis.Redis
) -> None:
    async with app, bridging(app, valkey):
        handle = await app.submit("quick", {}, timeout="1s", max_attempts=100)
        await until(lambda: events(streams, CREATE))
        streams.flushall()  # groups, too
        await Service(streams).serve(handle, "again")  # handed over again when the time was up
        assert await handle.result() == "again"


async def test_answers_that_were_trimmed_are_passed_over(
    app: Outlast, valkey: str, streams: redis.Redis
) -> None:
    service = Service(streams)
    async with app:
        async with bridging(app, valkey, consumer="agent-1"):
            handle = await app.submit("report.generate", REPORT)
            [task] = await service.take()
            await until(lambda: parked(handle))
        service.complete(task, "lost")
        streams.xreadgroup("agent-group", "agent-1", {COMPLETED: ">"})
        streams.xtrim(COMPLETED, maxlen=0)
        async with bridging(app, valkey, consumer="agent-1"):
            service.complete(task, "said again")
            assert await handle.result(timeout="30s") == "said again"


async def test_sessions_are_told_once_whoever_bridges(
    app: Outlast, valkey: str, streams: redis.Redis
) -> None:
    service, other = Service(streams), make_app(app.url)
    async with app, bridging(app, valkey, consumer="a"), bridging(other, valkey, consumer="b"):
        handles = [await app.submit("patient", {}, session_id="s-1") for _ in range(6)]
        for task in await service.take(6):
            service.complete(task)
        for handle in handles:
            await handle.result(timeout="30s")
        mine = "user:stream:notifications:s-1"
        await until(lambda: len(events(streams, mine)) >= 6)
        assert 0 < streams.pttl(mine) <= wire.DAY_MS
    told = events(streams, mine)
    assert sorted(event["data"]["task_id"] for event in told) == sorted(h.id for h in handles)
    assert {event["data"]["type"] for event in told} == {"task_completed"}
    assert {event["data"]["action"] for event in told} == {"retrieve_result"}
    assert {event["data"]["message"] for event in told} == {"Your patient is ready."}


async def test_a_task_that_takes_long_is_told_of_and_goes_on(
    app: Outlast, valkey: str, streams: redis.Redis
) -> None:
    service = Service(streams)
    async with app, bridging(app, valkey):
        handle = await app.submit("patient", {}, session_id="s", overdue_after="100ms")
        [task] = await service.take()
        [event] = await until(lambda: events(streams, TIMEOUT))
        assert event["data"]["still_running"] is True
        [notice] = await until(lambda: events(streams, "user:stream:notifications:s"))
        assert notice["data"]["type"] == "task_overdue"
        service.complete(task, "after all")
        assert await handle.result(timeout="30s") == "after all"


async def test_a_service_may_say_itself_that_it_took_too_long(
    app: Outlast, valkey: str, streams: redis.Redis
) -> None:
    service = Service(streams)
    async with app, bridging(app, valkey):
        handle = await app.submit("patient", {}, max_attempts=1)
        [task] = await service.take()
        service.answer(TIMEOUT, task, status="timeout", message="an hour was not enough")
        with pytest.raises(TaskDead, match="an hour was not enough"):
            await handle.result(timeout="30s")
        assert (await handle.refresh()).reason == "timeout"


async def test_a_redriven_task_is_handed_over_anew(
    app: Outlast, valkey: str, streams: redis.Redis
) -> None:
    service = Service(streams)
    async with app, bridging(app, valkey):
        handle = await app.submit("patient", {})
        [first] = await service.take()
        service.fail(first, "NOT_FOUND")
        with pytest.raises(TaskDead):
            await handle.result(timeout="30s")
        await handle.retry()
        [second] = await service.take()
        assert second["fence"] != first["fence"]
        service.complete(second, "found")
        assert await handle.result(timeout="30s") == "found"


@pytest.mark.parametrize("is_late", [False, True])  # when it is retried, its time is over
@pytest.mark.parametrize("engine", chosen())
async def test_what_was_cancelled_while_a_service_had_it_is_handed_over_anew(
    engine: str, tmp_path: Path, valkey: str, streams: redis.Redis, is_late: bool
) -> None:
    app, service = make_app(url_for(engine, tmp_path)), Service(streams)
    async with app, bridging(app, valkey):
        handle = await app.submit("patient", {}, timeout=300, max_attempts=1)
        [first] = await service.take()
        await until(lambda: parked(handle))
        assert await handle.cancel()
        service.complete(first, "of what was cancelled")
        await until(lambda: events(streams, DLQ))
        if is_late:
            app.engine.skew_ms += 300_001
        await handle.retry()
        [second] = await service.take()
        assert (second["attempt"], second["fence"] != first["fence"]) == (1, True)
        service.complete(first, "late")
        service.complete(second, "in time")
        assert await handle.result(timeout="30s") == "in time"
    cleared(engine)


async def test_while_redis_is_away_no_attempt_is_spent(app: Outlast, tmp_path: Path) -> None:
    from tests.conformance.servers import server

    valkey = server("redis").Server()
    valkey.run()
    try:
        async with app, bridging(app, valkey.url):
            valkey.kill()
            handle = await app.submit("patient", {}, max_attempts=1)
            await until(lambda: waiting(handle))
            valkey.run()
            with redis.Redis.from_url(valkey.url, decode_responses=True) as streams:
                service = Service(streams)
                [task] = await service.take()
                service.complete(task, "back")
                assert await handle.result(timeout="30s") == "back"
    finally:
        valkey.stop()


async def waiting(handle: object) -> bool:
    return await handle.status() == "scheduled"  # type: ignore[attr-defined]  # a handle


async def test_a_bridge_with_nothing_to_do_says_so(tmp_path: Path) -> None:
    app = Outlast(f"sqlite:///{tmp_path}/t.db")
    with pytest.raises(BadInput, match="declare what services run"):
        Bridge(app, "redis://127.0.0.1:1")
    with pytest.raises(BadInput, match=r"report\.generate"):
        Bridge(make_app(app.url), "redis://127.0.0.1:1", types=["nothing.*"])
    assert Bridge(make_app(app.url), "redis://127.0.0.1:1", types=["data.*"]).types == [
        "data.analyze",
        "data.export",
    ]


def test_the_command_asks_where_the_streams_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OUTLAST_STREAMS", raising=False)
    with pytest.raises(BadInput, match="OUTLAST_STREAMS"):
        bridge(engine="sqlite:///t.db")
    with pytest.raises(BadInput, match="OUTLAST_STREAMS"):
        bridge(engine="sqlite:///t.db", streams="http://127.0.0.1")
