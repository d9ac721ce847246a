"""What HTTP and the command line share."""

import msgspec
import pytest

from outlast import (
    BadInput,
    Conflict,
    Context,
    EngineDown,
    Limit,
    NotFound,
    Outlast,
    Permanent,
    Queue,
    Transient,
    Trip,
)
from outlast.core.ids import new_fence
from outlast.core.model import EventQuery, TaskQuery, Term, Turn, Want, WorkerInfo
from outlast.ops import (
    bulk,
    cancel,
    dead_groups,
    delete_limit,
    drain,
    forget,
    health,
    limits,
    pause,
    queues_status,
    requeue_orphaned,
    reset_limit,
    resume,
    retry,
    set_limit,
    types,
    workers,
)
from outlast.query import parse_query
from outlast.testing import testing
from outlast.views import to_json

NOBODY = "01890a5d-ac96-774b-bcce-b302099a8057"


def new_app() -> Outlast:
    app = Outlast(
        "memory://",
        limits=[Limit("user:*", slots=2), Limit("sick", trip=Trip(volume=2))],
        queues=[Queue("fair", fair_by="user")],
    )

    @app.task(search=["user"])
    async def greet(user: str) -> str:
        """Says hello."""
        return f"hello {user}"

    @app.task(queue="llm")
    async def fails(ctx: Context) -> None:
        raise Transient("no luck")

    @app.task
    async def doomed(n: int = 0, why: str = "no use") -> None:
        if n != 99:
            raise Permanent(f"{why}: {n}")

    @app.task(limits=["sick"])
    async def sick() -> None:
        raise TimeoutError

    app.external("report.generate", schema={"type": "object"}, queue="reports")
    return app


# looking -----------------------------------------------------------------------------------------


async def test_the_status_of_queues_has_the_shape_clients_know() -> None:
    async with testing(new_app()) as t:
        await t.app.submit("fails", {})
        await t.app.submit("doomed", {})
        await t.app.submit("greet", {"user": "ada"})
        await t.run()
        await t.app.submit("greet", {"user": "bob"})
        await t.app.submit("greet", {"user": "bob"}, delay="1h")
        await t.app.submit("report.generate", {})
        await pause(t.app, "reports")
        await t.advance("2s")
        view = msgspec.json.decode(to_json(await queues_status(t.app)))
    assert view["queues"] == {"primary": 2, "retry": 0, "scheduled": 2, "dlq": 1}
    assert (view["retry_ratio"], view["pressure"]) == (0.3, "normal")
    assert view["states"] == {
        "ready": 2, "scheduled": 1, "retrying": 1, "throttled": 0, "blocked": 0, "running": 0,
        "stalled": 0, "completed": 1, "cancelled": 0, "dead": 1,
    }  # fmt: skip
    by_queue = view["by_queue"]
    assert by_queue.keys() == {"default", "llm", "reports", "fair"}
    assert [by_queue[name]["paused"] for name in ("default", "reports")] == [False, True]
    assert (by_queue["default"]["primary"], by_queue["default"]["dlq"]) == (1, 1)
    assert 2 <= by_queue["reports"]["oldest_seconds"] < 10
    assert by_queue["fair"]["oldest_seconds"] == 0
    assert by_queue["default"]["completed_per_minute"] == 1


async def test_health_is_degraded_without_workers_and_with_an_open_circuit() -> None:
    async with testing(new_app()) as t:
        assert (await health(t.app))["status"] == "degraded"
        info = WorkerInfo(host="h", pid=1)
        turn = Turn(token=new_fence(), worker="w", lease_ms=3_600_000, info=info)
        await t.app.engine.exchange(turn)
        well = msgspec.json.decode(to_json(await health(t.app)))
        assert (well["status"], well["timestamp"][-1]) == ("healthy", "Z")
        assert well["components"] == {
            "engine": {"status": "up", "durability": "memory"},
            "workers": {"status": "up", "alive": 1},
            "circuit_breaker": {"status": "closed", "open": {}},
        }
        for _ in range(2):
            await t.app.submit("sick", {})
        await t.run()
        ill = msgspec.json.decode(to_json(await health(t.app)))
        assert ill["status"] == "degraded"
        assert ill["components"]["circuit_breaker"]["open"].keys() == {"sick"}


async def test_health_is_unhealthy_when_the_engine_does_not_answer() -> None:
    app = new_app()
    with pytest.raises(EngineDown):
        await app.engine.workers()
    view = await health(app)
    assert view["status"] == "unhealthy"
    assert str(view["timestamp"]).startswith("20")
    assert "not open" in to_json(view).decode()


async def test_types_tell_who_knows_them() -> None:
    async with testing(new_app()) as t:
        info = WorkerInfo(host="h", pid=1, types=("greet", "ruby.resize"))
        await t.app.engine.exchange(Turn(token=new_fence(), worker="w", info=info))
        found = {str(view["type"]): view for view in await types(t.app)}
    assert list(found) == ["doomed", "fails", "greet", "report.generate", "ruby.resize", "sick"]
    assert (found["greet"]["mode"], found["greet"]["workers"]) == ("async", 1)
    assert found["greet"]["description"] == "Says hello."
    assert found["report.generate"]["schema"] == {"type": "object"}
    assert (found["ruby.resize"]["schema"], found["ruby.resize"]["workers"]) == (None, 1)


async def test_the_dead_are_grouped_by_what_killed_them() -> None:
    async with testing(new_app()) as t:
        for n in range(3):
            await t.app.submit("doomed", {"n": n})
        other = await t.app.submit("doomed", {"why": "wrong key"})
        old = await t.app.submit("greet", {"user": "a"}, max_age="1s", delay="1s")
        await t.advance("10s")
        await t.run()
        groups = await dead_groups(t.app)
    most = groups[0]
    assert (most["count"], most["type"], most["message"]) == (3, "doomed", "no use: 2")
    by_example = {group["example"]: group for group in groups}
    assert by_example[other.id]["error_type"] == "Permanent"
    assert (by_example[old.id]["fingerprint"], by_example[old.id]["message"]) == (None, "expired")


# setting right -----------------------------------------------------------------------------------


async def test_a_paused_queue_runs_nothing_until_it_is_resumed() -> None:
    async with testing(new_app()) as t:
        handle = await t.app.submit("greet", {"user": "ada"})
        await pause(t.app, "default")
        await pause(t.app, "default")
        await t.run()
        assert await t.status(handle) == "ready"
        await resume(t.app, "default")
        await t.run()
        assert await t.status(handle) == "completed"


async def test_a_dead_task_is_retried_with_another_payload() -> None:
    async with testing(new_app()) as t:
        handle = await t.app.submit("doomed", {"n": 1})
        await t.run()
        with pytest.raises(BadInput):
            await retry(t.app, handle.id, {"n": "x"})
        assert await t.status(handle) == "dead"
        assert (await retry(t.app, handle.id, {"n": 99})).status == "ready"
        await t.run()
        assert await t.status(handle) == "completed"
        with pytest.raises(Conflict, match="it is completed"):
            await retry(t.app, handle.id)
        with pytest.raises(NotFound):
            await retry(t.app, NOBODY)


async def test_another_payload_is_found_by_what_it_says() -> None:
    async with testing(new_app()) as t:
        handle = await t.app.submit("greet", {"user": "ada"})
        await cancel(t.app, handle.id)
        await retry(t.app, handle.id, {"user": "bob"})
        for user, found in (("ada", ()), ("bob", (handle.id,))):
            query = TaskQuery(terms=(Term("attr.user", (user,)),))
            assert tuple(task.id for task in (await t.app.engine.tasks(query)).items) == found


async def test_cancelling_and_forgetting() -> None:
    async with testing(new_app()) as t:
        handle = await t.app.submit("greet", {"user": "ada"})
        task = await cancel(t.app, handle.id, "not now")
        assert (task.status, task.reason) == ("cancelled", "not now")
        with pytest.raises(Conflict):
            await cancel(t.app, handle.id)
        await forget(t.app, handle.id)
        with pytest.raises(NotFound):
            await forget(t.app, handle.id)


async def test_the_dead_are_redriven_by_filter_and_at_a_pace() -> None:
    async with testing(new_app()) as t:
        for n in range(5):
            await t.app.submit("doomed", {"n": n}, tags=["a" if n else "b"])
        await t.run()
        assert await bulk(t.app, "retry", await parse_query(t.app.engine, {"q": "tag:b"})) == 1
        await t.run()
        before = await t.app.engine.now()
        assert await bulk(t.app, "retry", TaskQuery.of(status="dead"), rate="2/min") == 5
        due = [task.run_at for task in (await t.app.engine.tasks(TaskQuery())).items]
        waits = sorted(round((at - before) / 30_000) for at in due)
        assert waits == [0, 1, 2, 3, 4], "two a minute"
        with pytest.raises(BadInput, match="rate='fast'"):
            await bulk(t.app, "retry", TaskQuery(), rate="fast")


async def test_orphaned_tasks_are_recovered_on_demand() -> None:
    async with testing(new_app()) as t:
        handle = await t.app.submit("greet", {"user": "ada"})
        turn = Turn(token=new_fence(), worker="w", info=WorkerInfo(host="h", pid=1), room=1,
                    wants=(Want("default", "primary", 1),))  # fmt: skip
        await t.app.engine.exchange(turn)
        assert await requeue_orphaned(t.app) == {"requeued": 0, "died": 0}
        t.app.engine.skew_ms += 60_000
        assert await t.status(handle) == "stalled"
        assert await requeue_orphaned(t.app) == {"requeued": 1, "died": 0}
        assert await t.status(handle) in ("ready", "retrying")


# workers -----------------------------------------------------------------------------------------


async def test_only_a_worker_that_is_there_can_drain() -> None:
    async with testing(new_app()) as t:
        with pytest.raises(NotFound, match="no worker 'nobody'"):
            await drain(t.app, "nobody")
        for id, pid in (("far", 0), ("late", 7)):
            info = WorkerInfo(host="h", pid=pid)
            turn = Turn(token=new_fence(), worker=id, lease_ms=10_000, info=info)
            await t.app.engine.exchange(turn)
        with pytest.raises(Conflict, match="stop it where it runs"):
            await drain(t.app, "far")
        t.app.engine.skew_ms += 11_000  # nobody has swept yet
        with pytest.raises(Conflict, match="gone already"):
            await drain(t.app, "late")
        assert [worker["draining"] for worker in await workers(t.app)] == [False, False]


# limits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["model:small", "model:*"])
async def test_a_circuit_of_a_family_is_closed_and_the_definition_stays(key: str) -> None:
    family = Limit("model:*", slots=3, rate="9/1h", trip=Trip(volume=1, open="1h"))
    app = Outlast("memory://", limits=[family])

    @app.task(limits=["model:{name}"], max_attempts=1)
    async def asks(name: str, works: bool = False) -> str:
        if not works:
            raise Transient("503", status=503)
        return name

    async with testing(app) as t:
        await t.app.submit("asks", {"name": "small"})
        await t.run()
        waiting = await t.app.submit("asks", {"name": "small", "works": True})
        await t.run()
        assert await t.status(waiting) == "throttled"
        before = await app.engine.get("limit")
        await reset_limit(app, key)
        assert [(r.key, r.value) for r in await app.engine.get("limit")] == [
            (r.key, r.value) for r in before
        ]
        await t.run()
        assert await t.status(waiting) == "completed"
        told = (await app.engine.events(EventQuery(kinds=("circuit",)))).items
        assert [msgspec.json.decode(event.data)["circuit"] for event in told] == ["open", "closed"]


async def test_there_must_be_a_limit_to_reset() -> None:
    async with testing(new_app()) as t:
        with pytest.raises(NotFound):
            await reset_limit(t.app, "nothing")
        await reset_limit(t.app, "sick")
        listed = msgspec.json.decode(to_json(await limits(t.app)))["items"]
        assert {item["key"]: item["source"] for item in listed} == {
            "sick": "code",
            "user:*": "code",
        }


async def test_a_limit_set_by_people_is_listed_and_deleting_it_brings_codes_back() -> None:
    async with testing(new_app()) as t:
        await set_limit(t.app, "user:*", {"slots": 7, "trip": {"rate": 0.25, "open": "90s"}})
        await set_limit(t.app, "extra", {"rate": "10/s"})
        listed = msgspec.json.decode(to_json(await limits(t.app)))["items"]
        found = {item["key"]: (item["slots"], item["rate"], item["source"]) for item in listed}
        assert found == {
            "extra": (None, "10/1s", "people"),
            "sick": (None, None, "code"),
            "user:*": (7, None, "people"),
        }
        await delete_limit(t.app, "user:*")
        await delete_limit(t.app, "extra")
        listed = msgspec.json.decode(to_json(await limits(t.app)))["items"]
        assert {item["key"]: item["slots"] for item in listed} == {"sick": None, "user:*": 2}
        with pytest.raises(NotFound):
            await delete_limit(t.app, "extra")


@pytest.mark.parametrize(
    "body", [{}, {"slots": 0}, {"slots": "3"}, {"rate": "fast"}, {"slot": 3}, {"trip": {"rat": 1}}]
)
async def test_a_limit_that_makes_no_sense_is_refused(body: dict[str, object]) -> None:
    async with testing(new_app()) as t:
        with pytest.raises(BadInput):
            await set_limit(t.app, "extra", body)
        assert await t.app.engine.get("limit", ["extra"]) == []
