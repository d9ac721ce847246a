"""What comes at the same time: news behind an end, a halt beside an end, a hint within a turn.

Each test forces one order of events, by gates that handlers and the engine wait at.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from outlast.app import Outlast
from outlast.context import Context, SyncContext
from outlast.core.errors import EngineDown, LeaseLost
from outlast.core.model import Deal, Lease, Outcome, Turn, Want, WorkerInfo
from outlast.handle import Handle
from outlast.steps import Wait
from outlast.worker import Worker
from outlast.worker.ledger import Ledger, news
from outlast.worker.member import Settings
from outlast.worker.pulse import Pulse, beat_of
from outlast.worker.runner import Runner
from outlast.worker.supervise import Member, Supervisor
from outlast.worker.threads import Threads

from .conftest import until, working


@pytest.fixture
def url() -> str:
    return "memory://"


def lease_of(type: str, id: str = "a", **told: Any) -> Lease:
    return Lease(
        **{
            "id": id, "fence": 7, "type": type, "queue": "default", "lane": "primary",
            "payload": b"{}", "attempt": 1, "number": 1, "max_attempts": 4, "losses": 0,
            "priority": 2, "timeout_ms": None, "run_at": 0, "created_at": 0, **told,
        }
    )  # fmt: skip


def runner_of(app: Outlast, **seats: int) -> Runner:
    """One that nobody takes turns for."""
    told = {"concurrency": 10, "threads": 1, "processes": 1, **seats}
    ledger = Ledger(lambda: None)
    return Runner(app, ledger, **told, now=lambda: 0, freed=lambda: None)


class Held:
    """An engine's exchange, held at a gate once it is over: its answer is late."""

    def __init__(self, app: Outlast, monkeypatch: pytest.MonkeyPatch) -> None:
        self._exchange = app.engine.exchange
        self._when: Callable[[Turn], bool] | None = None
        self.inside, self.go_on = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(app.engine, "exchange", self._hold)

    def next(self, when: Callable[[Turn], bool]) -> None:
        self._when = when
        self.inside.clear()
        self.go_on.clear()

    async def _hold(self, turn: Turn) -> Deal:
        deal = await self._exchange(turn)
        if self._when is not None and self._when(turn):
            self._when = None
            self.inside.set()
            await self.go_on.wait()
        return deal


# the ledger --------------------------------------------------------------------------------------


async def test_news_behind_an_end_do_not_replace_it() -> None:
    ledger = Ledger(lambda: None)
    ledger.enter(Outcome(id="a", fence=7, state="completed", result=b"1"))
    for entry in (news("a", 7, b"{}", None), news("a", 7, None, b'{"chunk":1}')):
        with pytest.raises(LeaseLost):
            ledger.enter(entry)
    with pytest.raises(LeaseLost):
        await ledger.report(Outcome(id="a", fence=7))
    [end] = ledger.take()
    assert (end.state, end.result, end.events) == ("completed", b"1", ())


async def test_news_of_an_earlier_attempt_are_not_told_in_the_name_of_a_later_one() -> None:
    ledger = Ledger(lambda: None)
    ledger.enter(news("a", 7, None, b'{"chunk":"earlier"}'))
    waits = ledger.stored("a")
    ledger.enter(news("a", 8, None, b'{"chunk":"later"}'))
    [entry] = ledger.take()
    assert (entry.fence, [event.data for event in entry.events]) == (8, [b'{"chunk":"later"}'])
    with pytest.raises(LeaseLost):
        await waits


async def test_a_step_that_is_done_when_its_attempt_has_timed_out_does_not_take_its_end(
    app: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the call of `spawn` and its entry the budgets are read; meanwhile it ends."""
    reading, go_on = asyncio.Event(), asyncio.Event()
    told: list[BaseException] = []

    @app.task
    async def child() -> None: ...

    @app.task
    async def stubborn(ctx: Context) -> None:
        try:
            await ctx.spawn((child.call().task,))
        except LeaseLost as lost:
            told.append(lost)

    async with app:
        runner = runner_of(app)

        async def slow(*_: object) -> None:
            reading.set()
            await go_on.wait()

        monkeypatch.setattr(app.purse, "refresh", slow)
        runner.start(lease_of("stubborn"))
        await asyncio.wait_for(reading.wait(), 60)
        attempt = runner.attempts["a"]
        ctx_task = attempt.task
        attempt.halt, attempt.task = "timeout", None  # as if it had shielded itself
        runner.abandon_all()
        attempt.task = ctx_task
        go_on.set()
        await until(lambda: bool(told), 60)
        [end] = runner.ledger.take()
        assert (end.state, end.verdict, end.spawn) == ("pending", "timed_out", ())
        runner.close()


# the runner --------------------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["cancel", "timeout", "release", "lost"])
async def test_a_halt_while_an_attempt_goes_to_wait_costs_no_seat(
    app: Outlast, monkeypatch: pytest.MonkeyPatch, why: Any
) -> None:
    reading = asyncio.Event()

    @app.task
    async def child() -> None: ...

    @app.task
    async def waits(ctx: Context) -> None:
        ctx.suspend(Wait(until=1_000, spawn=(child.call().task,)))

    async with app:
        runner = runner_of(app, concurrency=1)

        async def slow(*_: object) -> None:
            reading.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(app.purse, "refresh", slow)
        runner.start(lease_of("waits"))
        await asyncio.wait_for(reading.wait(), 60)
        runner.halt(runner.attempts["a"], why)
        await until(lambda: runner.room(0) == 1, 60)
        ends = {"cancel": "cancelled", "timeout": "timed_out", "release": "released"}
        assert [o.verdict for o in runner.ledger.take()] == ([ends[why]] if why in ends else [])
        runner.start(lease_of("child", "b"))
        await until(lambda: runner.ledger.waiting, 60)  # the seat is there again
        runner.close()


async def test_an_attempt_that_cannot_go_to_wait_fails_and_costs_no_seat(
    app: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    async def child() -> None: ...

    @app.task
    async def waits(ctx: Context) -> None:
        ctx.suspend(Wait(until=1_000, spawn=(child.call().task,)))

    async with app:
        runner = runner_of(app, concurrency=1)

        async def down(*_: object) -> None:
            raise EngineDown("no budgets to be read")

        monkeypatch.setattr(app.purse, "refresh", down)
        runner.start(lease_of("waits"))
        await until(lambda: runner.room(0) == 1, 60)
        [end] = runner.ledger.take()
        assert (end.state, end.verdict) == ("pending", "failed")
        runner.close()


async def test_one_on_its_last_life_that_finds_no_seat_leaves_the_place_to_others(
    app: Outlast,
) -> None:
    gate = asyncio.Event()

    @app.task
    async def waits() -> None:
        await gate.wait()

    async with app:
        runner = runner_of(app, concurrency=1)
        runner.start(lease_of("waits", "busy"))
        runner.start(lease_of("waits", "last", losses=2))
        runner.begin_held()
        runner.give_back_waiting()
        assert [(o.id, o.verdict) for o in runner.ledger.take()] == [("last", "released")]
        runner.ledger.stored_by(())
        runner.start(lease_of("waits", "next", losses=2))
        assert "next" in runner.attempts
        gate.set()
        runner.begin_held()
        await until(lambda: not runner.attempts, 60)
        runner.close()


async def test_an_abandoned_attempt_that_ends_late_does_not_make_room_beside_a_last_life(
    app: Outlast,
) -> None:
    """The same task is here twice: abandoned, and again, now on its last life."""
    ends = threading.Event()

    @app.task
    def slow(ctx: SyncContext) -> None:
        if ctx.number == 1:
            ends.wait(30)

    @app.task
    async def waits() -> None:
        await asyncio.Event().wait()

    async with app:
        runner = runner_of(app)
        runner.start(lease_of("slow"))
        await until(lambda: runner.attempts["a"].task is not None, 60)
        runner.halt(runner.attempts["a"], "release")
        runner.abandon_all()
        runner.start(lease_of("waits", fence=8, number=2, losses=2))
        runner.begin_held()
        ends.set()
        await until(lambda: runner.load == 1, 60)
        runner.start(lease_of("waits", "b", losses=2))
        assert "b" not in runner.attempts
        assert runner.gave_back
        runner.close()


async def test_a_new_lease_of_a_task_ends_the_attempt_that_still_runs_under_an_old_one(
    app: Outlast,
) -> None:
    stopped = asyncio.Event()

    @app.task
    async def runs(ctx: Context) -> int:
        if ctx.number == 1:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
        return ctx.number

    async with app:
        runner = runner_of(app)
        runner.start(lease_of("runs"))
        await until(lambda: runner.attempts["a"].task is not None, 60)
        runner.start(lease_of("runs", fence=8, number=2))
        await asyncio.wait_for(stopped.wait(), 60)
        await until(lambda: not runner.attempts, 60)
        assert [(o.fence, o.result) for o in runner.ledger.take()] == [(8, b"2")]
        runner.close()


async def test_a_function_that_is_halted_before_a_thread_is_free_does_not_begin(
    app: Outlast,
) -> None:
    gate = threading.Event()
    begun: list[str] = []

    @app.task
    async def steps(ctx: Context) -> None:
        await ctx.step("slow", lambda: gate.wait(30))

    @app.task
    def plain() -> None:
        begun.append("plain")

    async with app:
        runner = runner_of(app, threads=1)
        runner.start(lease_of("steps", "a"))
        await until(lambda: bool(runner.threads._busy), 60)
        runner.start(lease_of("plain", "b"))
        await until(lambda: runner.attempts["b"].task is not None, 60)
        runner.halt(runner.attempts["b"], "cancel", "no more")
        gate.set()
        await until(lambda: "b" not in runner.attempts, 60)
        assert begun == []
        assert {o.id: o.verdict for o in runner.ledger.take()}["b"] == "cancelled"
        runner.close()


async def test_a_thread_is_busy_until_its_job_is_done_though_nobody_waits_for_it() -> None:
    threads, gate = Threads(2), threading.Event()
    nobody = asyncio.create_task(threads.run(lambda: gate.wait(30)))
    await until(lambda: threads._busy == 1, 60)
    nobody.cancel()
    await asyncio.wait({nobody})
    try:
        # The other thread is started for it; behind the first it would wait for its end.
        assert await asyncio.wait_for(threads.run(lambda: "ran"), 60) == "ran"
    finally:
        gate.set()
        threads.close()


# the worker's turn -------------------------------------------------------------------------------


async def test_what_ends_beside_a_turn_that_was_broken_off_is_stored(
    app: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn took place; sent again under its name, with an end, it would count as a repeated
    one, of which no outcome takes effect."""
    go_on = asyncio.Event()
    ran = 0

    @app.task
    async def runs() -> str:
        nonlocal ran
        ran += 1
        await go_on.wait()
        return "done"

    async with app:
        held = Held(app, monkeypatch)
        handle = await runs.enqueue()
        worker = Worker(app, concurrency=2)
        working = asyncio.create_task(worker.run())
        await until(lambda: ran == 1)
        held.next(lambda turn: turn.room > 0 and not turn.outcomes)
        worker._ring()
        await asyncio.wait_for(held.inside.wait(), 30)
        go_on.set()
        await until(lambda: worker._ledger.waiting)
        working.cancel()
        await asyncio.wait([working])
        assert (await handle.refresh()).status == "completed"


async def test_a_hint_that_comes_while_a_turn_is_under_way_is_heard(
    app: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn finds nothing, and its answer comes after the hint: there is something all the
    same, in one of several groups of queues."""

    @app.task(queue="left")
    async def left() -> str:
        return "left"

    worker = Worker(app, queues={"left": 1, "right": 1}, lease_ms=600_000, beat_ms=300_000)
    worker._poll_s = 300.0  # no second look
    async with app:
        held = Held(app, monkeypatch)
        async with working(worker):
            await until(lambda: not any(group.hungry for group in worker._groups), 60)
            [group] = [group for group in worker._groups if "left" in group.turners]
            held.next(lambda turn: any(want.queue == "left" for want in turn.wants))
            worker._wake([group])
            await asyncio.wait_for(held.inside.wait(), 60)
            handle = await left.enqueue()
            await until(lambda: group.hungry, 60)
            held.go_on.set()
            assert await handle.result(timeout="30s") == "left"


async def test_an_evicted_worker_hands_in_what_had_ended(
    app: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told of its eviction while an end waits for the next turn, and its lease still holds:
    a sweep goes in bounded steps."""
    gates = {"first": asyncio.Event(), "second": asyncio.Event()}

    @app.task
    async def waits(gate: str) -> str:
        await gates[gate].wait()
        return gate

    worker, name = Worker(app), ""
    asked, go_on = asyncio.Event(), asyncio.Event()
    async with app:
        exchange = app.engine.exchange

        async def evicting(turn: Turn) -> Deal:
            if turn.worker != name:
                return await exchange(turn)
            deal = await exchange(Turn(token=turn.token, worker=name, outcomes=turn.outcomes))
            asked.set()
            await go_on.wait()
            return Deal(now=deal.now, lost=deal.lost, evicted=True)

        monkeypatch.setattr(app.engine, "exchange", evicting)
        async with working(worker):
            handles = [await waits.enqueue(gate) for gate in gates]
            await until(lambda: len(worker._runner.attempts) == 2, 60)
            name = worker.id
            await asyncio.wait_for(asked.wait(), 60)
            for gate in gates.values():
                gate.set()
            await until(lambda: len(worker._ledger) == 2, 60)
            go_on.set()
            assert [await handle.result(timeout="30s") for handle in handles] == list(gates)
            assert worker.id != name


async def test_a_batch_that_is_split_does_not_pass_for_an_engine_that_is_away(
    app: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine takes everything but one entry, for longer than a lease may go unanswered."""
    asked: list[float] = []

    @app.task
    async def bad() -> str:
        return "bad"

    worker = Worker(app)
    async with app:
        exchange = app.engine.exchange

        async def picky(turn: Turn) -> Deal:
            if any(outcome.result for outcome in turn.outcomes):
                raise RuntimeError("not storable")
            deal = await exchange(turn)
            if not turn.info and worker._trying_since is not None:
                asked.append(worker._trying_since)
            return deal

        monkeypatch.setattr(app.engine, "exchange", picky)
        async with working(worker):
            handle = await bad.enqueue()
            await until(lambda: bool(asked), 60)
            await until(lambda: worker._trying_since not in asked, 60)
            assert worker._acked_at >= asked[-1]
            task = await until_over(handle)
            assert task.reason == "unrecordable"


async def test_an_attempt_whose_news_cannot_be_stored_is_stopped(
    app: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task is dead from then on; what it does is done for nothing."""
    stopped = asyncio.Event()

    @app.task
    async def tells(ctx: Context) -> None:
        try:
            await ctx.emit("poison")
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with app:
        exchange = app.engine.exchange

        async def picky(turn: Turn) -> Deal:
            if any(b"poison" in event.data for o in turn.outcomes for event in o.events):
                raise RuntimeError("poison is not storable")
            return await exchange(turn)

        monkeypatch.setattr(app.engine, "exchange", picky)
        async with working(Worker(app)):
            handle = await tells.enqueue()
            await asyncio.wait_for(stopped.wait(), 60)
            assert (await until_over(handle)).reason == "unrecordable"


@pytest.mark.parametrize("how", ["at once", "after its grace", "with nothing to do"])
async def test_a_worker_can_be_stopped_while_the_engine_is_away(
    app: Outlast, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("outlast.worker.worker.GOODBYE_S", 0.2)
    away = asyncio.Event()

    @app.task
    async def runs() -> None:
        await asyncio.Event().wait()

    worker = Worker(app, grace_ms=100 if how == "after its grace" else 600_000)
    async with app:
        exchange = app.engine.exchange

        async def partitioned(turn: Turn) -> Deal:
            if worker._runner.attempts or (how == "with nothing to do" and worker.ready.is_set()):
                away.set()
            if away.is_set():
                raise EngineDown("no route to the engine")
            return await exchange(turn)

        monkeypatch.setattr(app.engine, "exchange", partitioned)
        running = asyncio.create_task(worker.run())
        if how != "with nothing to do":
            await runs.enqueue()
        await asyncio.wait_for(away.wait(), 60)
        worker.stop_now() if how == "at once" else worker.stop()
        await asyncio.wait_for(running, 60)


async def test_a_pulse_whose_engine_does_not_answer_does_not_hold_up_the_end(
    app: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = threading.Event()

    async def hangs() -> None:
        opening.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("outlast.worker.pulse.CLOSE_S", 0.1)
    monkeypatch.setattr("outlast.worker.pulse.connect", lambda _url: app.engine)
    monkeypatch.setattr(app.engine, "open", hangs)
    beat = beat_of("w", 10_000), 0
    pulse = Pulse("memory://", 0.01, lambda: beat, lambda _at: None)
    assert await asyncio.to_thread(opening.wait, 30)
    await asyncio.wait_for(pulse.close(), 60)


# the supervisor ----------------------------------------------------------------------------------


class Supervised:
    """A supervisor without processes, and an engine in memory that may be away."""

    def __init__(self, app: Outlast, monkeypatch: pytest.MonkeyPatch) -> None:
        self.app = app
        settings = Settings(target="nobody:app", beat_ms=10)
        self.supervisor = Supervisor(settings, 2)
        self.supervisor._engine = app.engine
        self.supervisor._connected.set()
        self.first, self.second = self.supervisor._members
        for member, name in ((self.first, "first"), (self.second, "second")):
            member.id = name
        monkeypatch.setattr(Member, "is_stopped", False)

    async def leased(self, type: str) -> Handle[Any]:
        """A task that the first one runs."""
        handle = await self.app.handlers[type].enqueue()
        info = WorkerInfo(host="here", pid=1)
        wants = (Want("default", "primary", 1),)
        await self.app.engine.exchange(
            Turn(token=7, worker="first", info=info, wants=wants, room=1)
        )
        assert await handle.status() == "running"
        return handle


@pytest.fixture
async def supervised(app: Outlast, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Supervised]:
    @app.task
    async def runs() -> None: ...

    async with app:
        yield Supervised(app, monkeypatch)


async def test_a_supervisor_can_be_stopped_while_the_engine_is_away(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = asyncio.Event()

    async def down(*_: object, **__: object) -> None:
        tried.set()
        raise EngineDown("no route to the engine")

    monkeypatch.setattr(supervised.app.engine, "sweep", down)
    burying = asyncio.create_task(supervised.supervisor._bury(supervised.first, -9))
    await asyncio.wait_for(tried.wait(), 60)
    assert not burying.done()  # it is tried again, as long as there is time
    supervised.supervisor._stop()
    await asyncio.wait_for(burying, 60)


async def test_a_supervisor_does_not_wait_for_an_engine_that_never_answers(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("outlast.worker.supervise.BURY_S", 0.1)
    monkeypatch.setattr(supervised.app.engine, "sweep", hangs)
    supervised.supervisor._stop()
    await asyncio.wait_for(supervised.supervisor._bury(supervised.first, -9), 60)


async def test_what_a_worker_held_that_did_not_leave_is_given_back_and_not_lost(
    supervised: Supervised,
) -> None:
    handle = await supervised.leased("runs")
    supervised.first.killed = True
    supervised.supervisor._stop()
    await supervised.supervisor._bury(supervised.first, -9)
    task = await handle.refresh()
    assert (task.status, task.losses, task.attempt) == ("ready", 0, 0)


async def test_a_second_signal_reaches_a_worker_that_was_being_started(
    supervised: Supervised,
) -> None:
    assert supervised.supervisor._order == b""
    supervised.supervisor._stop()
    assert supervised.supervisor._order == b"d"
    supervised.supervisor._stop()
    assert supervised.supervisor._order == b"r"


async def test_a_slow_answer_to_one_beat_costs_no_other_worker_its_lease(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange, beats = supervised.app.engine.exchange, Counter[str]()

    async def slow(turn: Turn) -> Deal:
        beats[turn.worker] += 1
        if turn.worker == "first":
            await asyncio.Event().wait()
        return await exchange(turn)

    monkeypatch.setattr(supervised.app.engine, "exchange", slow)
    supervisor = supervised.supervisor
    beating = [asyncio.create_task(supervisor._beat(m)) for m in supervisor._members]
    await until(lambda: beats["second"] >= 3, 60)
    assert beats["first"] == 1
    for beat in beating:
        beat.cancel()
    await asyncio.wait(beating)


async def test_beats_and_burials_do_not_open_the_engine_twice(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = most = 0

    async def opens() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1

    monkeypatch.setattr(supervised.app.engine, "open", opens)
    bury = supervised.supervisor._bury
    await asyncio.gather(bury(supervised.first, -9), bury(supervised.second, -9))
    assert most == 1


async def until_over(handle: Handle[Any]) -> Any:
    async def over() -> bool:
        return await handle.status() in ("completed", "cancelled", "dead")

    await until(over, 60)
    return await handle.refresh()
