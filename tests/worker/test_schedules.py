"""Schedules: one firing for the fleet, whatever happens to it; missed and overlapping ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from outlast import BadInput, Conflict, Context, NotFound, Outlast, ops, schedules
from outlast.core.cron import timetable
from outlast.core.errors import EngineDown
from outlast.core.model import Cancel, NewTask, Put, Task, TaskQuery, Turn, WorkerInfo
from outlast.schedules import due
from outlast.testing import testing
from outlast.worker import Worker

ran: Counter[str] = Counter()


@pytest.fixture
async def app() -> Outlast:
    ran.clear()
    app = Outlast("memory://")

    @app.task
    async def report(ctx: Context, to: str = "all") -> str:
        ran[to] += 1
        return to

    @app.task
    async def slow(ctx: Context) -> None:
        ran["slow"] += 1
        await ctx.wait_for("end")

    return app


@pytest.fixture
async def t(app: Outlast) -> AsyncIterator[testing]:
    async with testing(app) as t:
        # At a quarter to an hour of a day, so that "in 30 minutes" crosses exactly one full hour.
        now = await app.engine.now()
        app.engine.skew_ms += 3_600_000 - now % 3_600_000 + 45 * 60_000
        yield t


async def again(t: testing, span: str) -> None:
    await t.advance(span)
    await t.run()


async def test_it_fires_when_it_is_time(app: Outlast) -> None:
    app.schedule("hourly", app.handlers["report"], {"to": "ada"}, every="1h", priority="high")
    async with testing(app) as t:
        await t.run()
        assert ran == {}
        for n in range(1, 4):
            await again(t, "1h")
            assert ran == {"ada": n}
        tasks = (await app.engine.tasks(TaskQuery.of(tag="schedule:hourly"))).items
        assert {task.priority for task in tasks} == {1}
        assert all(task.run_at % 3_600_000 == 0 for task in tasks)


async def test_a_task_may_have_its_schedule() -> None:
    app = Outlast("memory://")

    @app.task(every="*/10 * * * *", tz="Europe/Berlin")
    async def tick() -> None:
        ran["tick"] += 1

    ran.clear()
    async with testing(app) as t:
        await t.run()
        await again(t, "10m")
        assert ran["tick"] == 1


async def save(app: Outlast, name: str, type: str, **how: object) -> None:
    await schedules.save(app, schedules.schedule_of(name, type, {}, **how))  # type: ignore[arg-type]


async def test_a_firing_after_a_crash_is_the_same_firing(app: Outlast, t: testing) -> None:
    await save(app, "hourly", "report", every="1h")
    await again(t, "30m")
    assert ran["all"] == 1
    # As if the worker had died between the task and the record of how far it is.
    slot = await _slot(app)
    put = Put(kind=schedules.STATE, key="hourly", value=b'{"slot":%d}' % (slot - 1))
    await app.engine.put([put])
    await schedules._look(app, "hourly")
    await t.run()
    assert ran["all"] == 1
    assert await _slot(app) == slot


async def _slot(app: Outlast) -> int:
    [listed] = await schedules.listed(app, ["hourly"])
    assert listed.stand is not None
    return listed.stand.slot


async def test_pause_resume_run_and_delete(app: Outlast, t: testing) -> None:
    await save(app, "hourly", "report", every="1h")
    await t.run()
    await schedules.pause(app, "hourly")
    await again(t, "3h")
    assert ran["all"] == 0
    handle = await schedules.run_now(app, "hourly")
    await t.run()
    assert await handle.result(timeout=0) == "all"
    await schedules.pause(app, "hourly", paused=False)
    await t.run()
    assert ran["all"] == 1  # what fell into the pause is not made up for
    await again(t, "1h")
    assert ran["all"] == 2
    await schedules.delete(app, "hourly")
    await again(t, "3h")
    assert ran["all"] == 2
    with pytest.raises(NotFound):
        await schedules.pause(app, "hourly")


async def test_a_changed_schedule_is_followed_at_once(app: Outlast, t: testing) -> None:
    await save(app, "x", "report", every="1d")
    await t.run()
    await save(app, "x", "report", every="1h")
    await t.run()
    await again(t, "30m")
    assert ran["all"] == 1


@pytest.mark.parametrize("catch_up", ["latest", "all"])
@pytest.mark.parametrize("by", ["people", "code"])
async def test_a_changed_timetable_makes_up_for_nothing(
    app: Outlast, t: testing, catch_up: str, by: str
) -> None:
    """What the new one would have fired before it was there was not missed."""

    async def change(to: str, every: str) -> None:
        made = schedules.schedule_of("x", "report", {"to": to}, every=every, catch_up=catch_up)
        if by == "people":
            await schedules.save(app, made)
        else:
            app.schedules["x"] = made
            await schedules.publish(app)  # as each program does when it starts

    await change("all", "@weekly")
    await t.run()
    await t.advance("10h")
    await change("ada", "1h")
    await t.run()
    assert ran["ada"] == 0
    await t.advance("2h")
    await change("bob", "1h")  # the timetable is the same: these were missed
    await t.run()
    assert ran["bob"] == (2 if catch_up == "all" else 1)


async def test_one_moment(app: Outlast, t: testing) -> None:
    at = datetime.fromtimestamp(await app.engine.now() / 1_000, UTC) + timedelta(minutes=5)
    await save(app, "once", "report", every=at)
    await again(t, "4m")
    assert ran["all"] == 0
    await again(t, "2m")
    await again(t, "1d")
    assert ran["all"] == 1
    with pytest.raises(BadInput, match=r"once, at .* UTC: that is over, it would never fire"):
        await save(app, "late", "report", every=at)
    assert [listed.schedule.name for listed in await schedules.listed(app)] == ["once"]


@pytest.mark.parametrize(("catch_up", "runs"), [("latest", 1), ("all", 5), ("none", 0)])
async def test_what_was_missed(app: Outlast, t: testing, catch_up: str, runs: int) -> None:
    await save(app, "hourly", "report", every="1h", catch_up=catch_up)
    await t.run()
    await again(t, "5h")  # nobody was there: the last full hour was 45 minutes ago
    assert ran["all"] == runs
    await again(t, "15m 1s")
    assert ran["all"] == runs + 1


@pytest.mark.parametrize(("overlap", "living"), [("allow", 2), ("skip", 1), ("cancel", 1)])
async def test_overlaps(app: Outlast, t: testing, overlap: str, living: int) -> None:
    await save(app, "hourly", "slow", every="1h", overlap=overlap)
    await t.run()
    await again(t, "1h")
    await again(t, "1h")
    assert ran["slow"] == (1 if overlap == "skip" else 2)
    found = (await app.engine.tasks(TaskQuery.of(type="slow"))).items
    assert sum(task.state == "pending" for task in found) == living


async def test_a_bad_target_is_told_and_does_not_stop_the_clock(app: Outlast, t: testing) -> None:
    with pytest.raises(BadInput):
        await save(app, "bad", "report", every="1h", options={"priority": "urgent"})
    await save(app, "hourly", "report", every="1h")
    del app.handlers["report"]
    await again(t, "1h")
    [listed] = await schedules.listed(app, ["hourly"])
    assert listed.stand is not None
    assert "report" in (listed.stand.error or "")
    assert listed.next


@pytest.mark.parametrize(("catch_up", "runs"), [("latest", 1), ("all", 2), ("none", 0)])
async def test_a_firing_waits_for_those_who_know_its_type(
    app: Outlast, t: testing, catch_up: str, runs: int
) -> None:
    """Workers of every program serve schedules; those of this one are away at two."""
    await save(app, "hourly", "report", every="1h", catch_up=catch_up)
    await t.run()
    report = app.handlers.pop("report")
    for span in ("15m", "1h", "10s"):
        await again(t, span)
    [listed] = await schedules.listed(app, ["hourly"])
    assert "report" in ((listed.stand and listed.stand.error) or "")
    await t.advance("5m")
    app.handlers["report"] = report
    await again(t, "1m")
    assert ran["all"] == runs
    await again(t, "54m")
    assert ran["all"] == runs + 1
    [listed] = await schedules.listed(app, ["hourly"])
    assert listed.stand is not None
    assert listed.stand.error is None


async def test_whoever_has_the_type_fires_it() -> None:
    """What was chosen for the type is known to its program only."""
    here, elsewhere = Outlast("memory://programs"), Outlast("memory://programs")

    @here.task(every="1h", queue="reports", max_attempts=9)
    async def night_report() -> None: ...

    async with here, elsewhere:
        info = WorkerInfo(
            host="here", pid=1, queues=("default", "reports"), types=("night_report",)
        )
        await here.engine.exchange(Turn(token=1, worker="one", lease_ms=1 << 40, info=info))
        for app, span in ((here, 0), (elsewhere, 3_600_000), (here, 1_000)):
            for each in (here, elsewhere):
                each.engine.skew_ms += span
            await Worker(app, queues={"default": 1}).drain()
            if app is elsewhere:
                assert not (await here.engine.tasks(TaskQuery.of(type="night_report"))).items
        [task] = (await here.engine.tasks(TaskQuery.of(type="night_report"))).items
        assert (task.queue, task.max_attempts) == ("reports", 9)


async def test_code_that_no_longer_has_it_ends_it() -> None:
    ran.clear()

    def program(url: str, *, every: str | None) -> Outlast:
        app = Outlast(url)

        @app.task
        async def report() -> None:
            ran["all"] += 1

        if every:
            app.schedule("hourly", report, every=every)
        return app

    app = program("memory://shared", every="1h")
    async with app:
        assert [x.schedule.name for x in await schedules.listed(app)] == ["hourly"]
        async with program("memory://shared", every="2h") as second:
            [listed] = await schedules.listed(second)
            assert listed.schedule.every == "2h"
        async with program("memory://shared", every=None) as third:
            assert await schedules.listed(third) == []


def test_what_is_due() -> None:
    hourly = timetable("1h")
    hour = 3_600_000
    assert due(hourly, 0, 5 * hour + 10, "all") == [hour * n for n in range(1, 6)]
    assert due(hourly, 0, 5 * hour + 10, "none") == [5 * hour]
    assert due(hourly, 0, 5 * hour + 120_000, "none") == []
    assert due(hourly, 0, 5 * hour + 120_000, "latest") == [5 * hour]
    assert due(hourly, 5 * hour, 5 * hour + 120_000, "latest") == []
    each = timetable("1s")
    assert due(each, 0, 10_500, "latest") == [1_000 * n for n in range(1, 11)]
    yearly = timetable("0 0 1 1 *")
    new_year = round(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1_000)
    assert due(yearly, 0, new_year + 200 * 24 * hour, "latest") == [new_year]


# while it fires ----------------------------------------------------------------------------------


async def clock_of(app: Outlast, name: str) -> Task:
    [task] = [
        task
        for task in (await app.engine.tasks(TaskQuery.of(unique_key=f"schedule:{name}"))).items
        if task.state in ("pending", "running")
    ]
    return task


async def test_a_change_while_it_fires_is_seen(
    app: Outlast, t: testing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would sleep for as long as the old schedule says."""
    await save(app, "x", "report", every="1h")
    spawn = Context.spawn

    async def meanwhile(ctx: Context, tasks: tuple[NewTask, ...]) -> None:
        await spawn(ctx, tasks)
        monkeypatch.setattr(Context, "spawn", spawn)
        await save(app, "x", "report", every="1m")

    monkeypatch.setattr(Context, "spawn", meanwhile)
    await again(t, "30m")
    fired = ran["all"]
    await again(t, "61s")
    assert ran["all"] == fired + 1


async def test_its_task_is_not_cancelled_in_passing_and_made_anew(app: Outlast, t: testing) -> None:
    await save(app, "hourly", "report", every="1h")
    await t.run()
    clock = await clock_of(app, "hourly")
    for refused in (ops.cancel(app, clock.id), ops.forget(app, clock.id)):
        with pytest.raises(Conflict, match="schedule 'hourly'"):
            await refused
    assert await ops.bulk(app, "cancel", TaskQuery()) == 0
    await app.engine.alter([clock.id], Cancel())  # past all of them
    await schedules.publish(app)  # as each program does when it starts
    await again(t, "1h")
    assert ran["all"] == 1


async def test_one_that_is_deleted_and_made_again_begins_then(app: Outlast, t: testing) -> None:
    await save(app, "hourly", "report", every="1h", catch_up="all")
    await t.run()
    await schedules.delete(app, "hourly")
    app.engine.skew_ms += 5 * 3_600_000
    await save(app, "hourly", "report", every="1h", catch_up="all")
    await t.run()
    assert ran["all"] == 0
    await again(t, "1h")
    assert ran["all"] == 1


async def test_resuming_what_was_not_paused_leaves_nothing_out(app: Outlast, t: testing) -> None:
    await save(app, "hourly", "report", every="1h")
    await t.run()
    app.engine.skew_ms += 3_600_000
    await schedules.pause(app, "hourly", paused=False)
    await t.run()
    assert ran["all"] == 1


@pytest.mark.parametrize("overlap", ["skip", "cancel"])
async def test_what_people_run_counts_as_before(app: Outlast, t: testing, overlap: str) -> None:
    await save(app, "hourly", "slow", every="1h", overlap=overlap)
    by_hand = await schedules.run_now(app, "hourly")
    await t.run()
    await again(t, "1h")
    assert ran["slow"] == (1 if overlap == "skip" else 2)
    assert await by_hand.status() == ("blocked" if overlap == "skip" else "cancelled")


async def test_two_workers_that_start_at_once_end_a_schedule() -> None:
    app = Outlast("memory://ended")

    @app.task
    async def report() -> None: ...

    app.schedule("gone", report, every="1h")
    async with app:
        app.schedules.clear()
        await asyncio.gather(*(schedules.publish(app) for _ in range(5)))
        assert await schedules.listed(app) == []


async def test_an_engine_that_is_away_is_no_reason_to_leave_a_firing_out(
    app: Outlast, t: testing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await save(app, "hourly", "report", every="1h")
    await t.run()
    prepare = app.prepare

    async def away(*args: object, **kwargs: object) -> None:
        monkeypatch.setattr(app, "prepare", prepare)
        raise EngineDown("not now")

    monkeypatch.setattr(app, "prepare", away)
    await again(t, "1h")
    await again(t, "1m")
    assert ran["all"] == 1
