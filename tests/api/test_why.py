"""Why a task is not running: the one thing it waits for, and where its time went."""

from typing import Any

import pytest

from outlast import Context, Limit, NotFound, Outlast, Permanent, Transient, Trip
from outlast.core.ids import new_fence
from outlast.core.model import Turn, Want, WorkerInfo
from outlast.ops import pause
from outlast.testing import testing
from outlast.why import Why, why, why_view

QUEUES = ("default", "calls", "other")
GATES = ("full", "slow", "sick")


def new_app() -> Outlast:
    app = Outlast(
        "memory://",
        limits=[
            Limit("full", slots=1),
            Limit("slow", rate="1/min"),
            Limit("sick", trip=Trip(volume=2, open="60s")),
        ],
    )

    @app.task
    async def work(n: int = 0) -> None: ...

    @app.task(retry="10s")
    async def fails(ctx: Context) -> None:
        raise Transient("no luck")

    @app.task
    async def doomed() -> None:
        raise Permanent("no use")

    for key in GATES:

        @app.task(name=key, limits=[key], queue="calls", retry="1h")
        async def call(n: int = 0) -> None:
            raise TimeoutError

    return app


async def arrive(app: Outlast, *, takes: int = 0, queue: str = "calls", **info: Any) -> None:
    """A live worker that takes some tasks and keeps them."""
    told: dict[str, Any] = {"queues": QUEUES, "types": tuple(app.handlers)} | info
    turn = Turn(
        token=new_fence(),
        worker="w",
        lease_ms=3_600_000,
        info=WorkerInfo(host="h", pid=1, **told),
        wants=(Want(queue, "primary", takes),) if takes else (),
        room=takes,
    )
    await app.engine.exchange(turn)


async def ask(app: Outlast, handle: Any) -> Why:
    return await why(app, handle.id)


async def test_a_scheduled_task_waits_for_its_time() -> None:
    async with testing(new_app()) as t:
        handle = await t.app.submit("work", {}, delay="10m")
        answer = await ask(t.app, handle)
        assert (answer.waits_for, answer.action) == ("time", None)
        assert answer.estimate_ms is not None
        assert 590_000 < answer.estimate_ms <= 600_000
        assert answer.until == (await t.task(handle)).run_at


async def test_a_retrying_task_waits_for_its_time_and_may_be_hurried() -> None:
    async with testing(new_app()) as t:
        handle = await t.app.submit("fails", {})
        await t.run()
        answer = await ask(t.app, handle)
        assert answer.waits_for == "time"
        assert "Attempt 1 of 4 failed" in answer.text
        assert answer.action == f"Try now: POST /tasks/{handle.id}/retry"


async def test_a_blocked_task_names_what_must_end_before() -> None:
    async with testing(new_app()) as t:
        first = await t.app.submit("work", {}, delay="1h")
        second = await t.app.submit("work", {}, after=[first])
        answer = await ask(t.app, second)
        assert (answer.waits_for, answer.holders) == ("dependencies", (first.id,))
        assert f"work {first.id} (scheduled)" in answer.text


async def test_a_held_task_names_the_signal() -> None:
    async with testing(new_app()) as t:
        handle = await t.app.submit("work", {}, hold="approved")
        answer = await ask(t.app, handle)
        assert answer.waits_for == "signal"
        assert answer.action == f"Send it: POST /tasks/{handle.id}/signal/approved"


async def test_a_paused_queue_comes_before_what_happens_in_it() -> None:
    async with testing(new_app()) as t:
        await arrive(t.app)
        handle = await t.app.submit("work", {})
        await pause(t.app, "default")
        answer = await ask(t.app, handle)
        assert answer.waits_for == "queue_paused"
        assert answer.action == "Resume it: POST /queues/default/resume"


async def test_a_ready_task_needs_a_worker_for_its_queue_and_type() -> None:
    async with testing(new_app()) as t:
        handle = await t.app.submit("work", {})
        assert (await ask(t.app, handle)).waits_for == "no_worker"
        await arrive(t.app, queues=("other",))
        assert (await ask(t.app, handle)).waits_for == "no_worker_for_queue"
        await arrive(t.app, types=("fails",))
        answer = await ask(t.app, handle)
        assert answer.waits_for == "no_worker_for_type"
        assert answer.text == "No live worker of queue 'default' knows the type 'work'."
        assert answer.action == "Start one: outlast worker -q default"


async def test_a_task_that_nobody_knows_how_to_run_says_so_while_it_is_handed_around() -> None:
    async with testing(new_app()) as t:
        await arrive(t.app, types=("strange",))
        handle = await t.app.submit("strange", {})
        await t.run()
        await arrive(t.app, types=("fails",))
        assert (await handle.refresh()).status == "scheduled"
        assert (await ask(t.app, handle)).waits_for == "no_worker_for_type"


async def test_a_ready_task_knows_how_many_are_ahead_and_how_fast_it_goes() -> None:
    async with testing(new_app()) as t:
        for _ in range(6):
            await t.app.submit("work", {})
        await t.run()
        await arrive(t.app)
        handles = [await t.app.submit("work", {}) for _ in range(3)]
        first, last = await ask(t.app, handles[0]), await ask(t.app, handles[2])
        assert (first.waits_for, first.ahead, first.estimate_ms) == ("turn", 0, 0)
        assert (last.ahead, last.estimate_ms) == (2, 30_000), "6 a minute, 3 to go"


async def test_a_full_limit_names_who_holds_it() -> None:
    async with testing(new_app()) as t:
        holder = await t.app.submit("full", {})
        await arrive(t.app, takes=1)
        waiter = await t.app.submit("full", {})
        await arrive(t.app, takes=1)
        assert await t.status(waiter) == "throttled"
        answer = await ask(t.app, waiter)
        assert (answer.waits_for, answer.holders) == ("slots", (holder.id,))
        assert answer.action == "Change the limit: PUT /limits/full"


async def test_a_rate_tells_how_long_it_takes() -> None:
    async with testing(new_app()) as t:
        await t.app.submit("slow", {})
        waiter = await t.app.submit("slow", {})
        await arrive(t.app, takes=2)
        answer = await ask(t.app, waiter)
        assert (answer.waits_for, answer.estimate_ms) == ("rate", 60_000)


async def test_an_open_circuit_tells_until_when_and_then_who_probes() -> None:
    async with testing(new_app()) as t:
        for _ in range(2):
            await t.app.submit("sick", {})
        await t.run()
        probe, waiter = [await t.app.submit("sick", {}) for _ in range(2)]
        await arrive(t.app, takes=2)
        answer = await ask(t.app, waiter)
        assert answer.waits_for == "circuit"
        assert answer.estimate_ms is not None
        assert 50_000 < answer.estimate_ms <= 60_000
        await t.advance("61s")
        await arrive(t.app, takes=2)
        answer = await ask(t.app, waiter)
        assert (answer.waits_for, answer.holders) == ("probe", (probe.id,))


async def test_a_service_that_asked_for_a_break_gets_it() -> None:
    class TooMany(Exception):
        status_code = 429

    app = Outlast("memory://", limits=[Limit("api", slots=9)])

    @app.task(limits=["api"])
    async def call() -> None:
        raise TooMany

    async with testing(app) as t:
        handle = await call.enqueue()
        await t.run()
        assert await t.status(handle) == "throttled"
        assert (await ask(app, handle)).waits_for == "limit_paused"


async def test_a_running_task_says_where() -> None:
    async with testing(new_app()) as t:
        handle = await t.app.submit("work", {})
        await arrive(t.app, takes=1, queue="default")
        await handle.cancel("enough")
        answer = await ask(t.app, handle)
        assert answer.waits_for is None
        assert answer.text.startswith("It runs on w for ")
        assert answer.text.endswith("It was asked to stop: enough.")
        t.app.engine.skew_ms += 7_200_000
        stalled = await ask(t.app, handle)
        assert stalled.action == "Recover it now: POST /tasks/requeue-orphaned"


async def test_a_finished_task_says_where_its_time_went() -> None:
    async with testing(new_app()) as t:
        handle = await t.app.submit("fails", {}, max_attempts=2)
        await t.advance("20s")
        await t.run()
        await t.advance("30s")
        await t.run()
        answer = await ask(t.app, handle)
        task = await t.task(handle)
        assert answer.spent_ms is not None
        assert task.completed_at is not None
        assert sum(answer.spent_ms.values()) == task.completed_at - task.created_at
        assert 20_000 <= answer.spent_ms["waited"] < 25_000
        assert 30_000 <= answer.spent_ms["retried"] < 35_000
        assert answer.text.startswith("It is dead (attempts) after 50s: ")
        assert answer.action == f"Run it again: POST /tasks/{handle.id}/retry"


async def test_time_in_front_of_a_limit_is_told_apart() -> None:
    async with testing(new_app()) as t:
        await t.app.submit("full", {}, max_attempts=1)
        await t.app.submit("full", {}, max_attempts=1)
        await arrive(t.app, takes=2)
        waiter = await t.app.submit("full", {}, max_attempts=1)
        assert await t.status(waiter) == "throttled"
        await t.advance("40s")
        await t.app.engine.exchange(Turn(token=new_fence(), worker="w", leaving=True))
        await t.run()
        assert await t.status(waiter) == "dead"
        answer = await ask(t.app, waiter)
        assert answer.spent_ms is not None
        assert 40_000 <= answer.spent_ms["throttled"] < 45_000
        assert answer.spent_ms["waited"] < 5_000


async def test_the_view_is_in_seconds_and_iso() -> None:
    async with testing(new_app()) as t:
        handle = await t.app.submit("work", {}, delay="10m")
        view = why_view(await ask(t.app, handle))
        assert view["task_id"] == handle.id
        assert str(view["until"]).endswith("Z")
        assert isinstance(view["estimate_seconds"], float)
        with pytest.raises(NotFound):
            await why(t.app, "01890a5d-ac96-774b-bcce-b302099a8057")
