"""A handler closes a limit for everyone: what it learned is stored, whatever becomes of it."""

from __future__ import annotations

import pytest

from outlast import BadInput, Context, Limit, Outlast, SyncContext
from outlast.testing import testing

AN_HOUR_MS = 3_600_000


async def pause_of(t: testing) -> int:
    """For how long the limit is closed."""
    gauges = await t.app.engine.gauges(["service"])
    until = max((gauge.paused_until or 0 for gauge in gauges), default=0)
    return max(0, until - await t.app.engine.now())


async def test_others_wait_and_the_attempt_goes_on() -> None:
    app = Outlast("memory://", limits=[Limit("service", slots=2)])

    @app.task(limits=["service"])
    async def asks(ctx: Context, pauses: bool) -> str:
        if pauses:
            await ctx.pause("service", "1h")
            await ctx.pause("service", "1s")  # the one that ends last holds
        return "done"

    async with testing(app) as t:
        first = await asks.enqueue(True)
        await t.run()
        second = await asks.enqueue(False)
        await t.run()
        assert await first.result(timeout=0) == "done"
        assert await t.status(second) == "throttled"
        await t.advance("61m")
        await t.run()
        assert await second.result(timeout=0) == "done"


async def test_it_is_stored_though_nobody_waits_for_it_and_the_attempt_fails() -> None:
    app = Outlast("memory://")

    @app.task(max_attempts=1)
    async def asks(ctx: Context) -> None:
        ctx.pause("service", "1h")
        raise ValueError("and then something broke")

    async with testing(app) as t:
        handle = await asks.enqueue()
        await t.run()
        assert await t.status(handle) == "dead"
        assert await pause_of(t) > AN_HOUR_MS / 2


async def test_handlers_in_threads_just_call() -> None:
    app = Outlast("memory://")

    @app.task
    def asks(ctx: SyncContext) -> None:
        ctx.pause("service", "1h")

    async with testing(app) as t:
        await asks.enqueue()
        await t.run()
        assert await pause_of(t) > AN_HOUR_MS / 2


async def test_a_span_that_is_none_is_refused() -> None:
    app = Outlast("memory://")

    @app.task
    async def asks(ctx: Context) -> str:
        with pytest.raises(BadInput):
            await ctx.pause("service", "a while")
        return "refused"

    async with testing(app) as t:
        handle = await asks.enqueue()
        await t.run()
        assert await handle.result(timeout=0) == "refused"
