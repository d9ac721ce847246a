"""Steps, waits, workflows, undoing and schedules on every engine: the same story."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlast import Context, Outlast, Permanent, Transient, saga, schedules
from outlast.core.model import Deal, TaskQuery, Turn
from outlast.worker import Worker
from tests.conformance.servers import chosen, cleared, url_for

from .conftest import working

happened: list[str] = []


@pytest.fixture(params=chosen())
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Outlast]:
    happened.clear()
    app = Outlast(url_for(request.param, tmp_path))

    @app.task
    async def double(n: int) -> int:
        happened.append(f"double {n}")
        return 2 * n

    @app.task
    async def undo(n: int) -> None:
        happened.append(f"undo {n}")

    @app.task
    async def breaks(n: int) -> int:
        raise Permanent("no")

    @app.task
    async def agent(ctx: Context, n: int) -> list[object]:
        first = await ctx.step("first", _first, n, undo=undo)
        if ctx.number == 1:
            raise Transient("again")
        called = await ctx.gather(ctx.call(double, first), ctx.call(double, 5))
        await ctx.sleep("1h")
        return [*called, await ctx.wait_for("go", timeout="1d")]

    async with app:
        yield app
    cleared(request.param)


async def _first(n: int) -> int:
    happened.append(f"first {n}")
    return n + 1


async def run(app: Outlast, hours: int = 0) -> None:
    app.engine.skew_ms += hours * 3_600_000
    await Worker(app).drain()


async def test_a_task_with_steps_and_waits(app: Outlast) -> None:
    handle = await app.submit("agent", {"n": 1})
    await run(app)
    assert await handle.status() == "retrying"
    await run(app, 1)
    assert await handle.status() == "scheduled"
    await handle.signal("go", {"from": "ada"})
    await run(app, 1)
    assert await handle.result(timeout=0) == [4, 10, {"from": "ada"}]
    assert sorted(happened) == ["double 2", "double 5", "first 1"]


async def test_its_steps_are_undone_when_it_is_cancelled(app: Outlast) -> None:
    handle = await app.submit("agent", {"n": 1})
    await run(app)
    await handle.cancel()
    await run(app)
    assert happened == ["first 1", "undo 1"]


async def test_a_workflow_and_its_undoing(app: Outlast) -> None:
    double, undo, breaks = (app.handlers[name] for name in ("double", "undo", "breaks"))
    async with app.workflow("good") as good:
        first = good.add(double, 1)
        good.map(double, [3, 4])
        good.add(double, first.out, name="last", when=first.out > 1)
        good.add(double, first.out, name="never", when=first.out > 2)
    async with app.workflow("bad") as bad:
        node = bad.add(double, 100, undo=undo)
        node = bad.add(double, node.out, undo=undo)
        bad.add(breaks, node.out, undo=undo)
    await run(app)
    assert await good.handle.result(timeout=0) == {"map double": [6, 8], "last": 4, "never": None}
    assert (await saga.view(app, good.id)).status == "completed"
    assert (await saga.view(app, bad.id)).status == "undone"
    assert [x for x in happened if x.startswith("undo")] == ["undo 400", "undo 200", "undo 100"]


async def test_a_schedule(app: Outlast) -> None:
    made = schedules.schedule_of("hourly", "double", {"n": 1}, every="1h")
    await schedules.save(app, made)
    await run(app)
    for n in (1, 2, 3):
        await run(app, 1)
        assert happened == ["double 1"] * n
    found = (await app.engine.tasks(TaskQuery.of(tag="schedule:hourly"))).items
    assert len(found) == 3


async def test_a_chain_costs_a_turn_a_link(app: Outlast) -> None:
    """The turn that tells of an end takes what that end has made ready, and nobody looks again."""
    turns: list[bool] = []
    exchange = app.engine.exchange

    async def counted(turn: Turn) -> Deal:
        deal = await exchange(turn)
        turns.append(bool(turn.outcomes or deal.leases))
        return deal

    app.engine.exchange = counted  # type: ignore[method-assign]
    flow = app.workflow("chain")
    double = app.handlers["double"]
    flow.chain(flow.add(double, 0), *[double] * 49)
    async with working(Worker(app)):
        handle = await flow.enqueue()
        assert await handle.result(timeout="60s") == 0
        del app.engine.exchange
    assert len(happened) == 50
    assert turns.count(True) < 60
    assert turns.count(False) < 25, "it looks again after each of its own turns"
