"""What attempts say they used: recorded at once and for good, in the log and on the task."""

from __future__ import annotations

import json

import pytest

from outlast import BadInput, Context, Outlast, Permanent, Retry
from outlast.context import SyncContext
from outlast.core.model import Event, EventQuery
from outlast.testing import testing
from outlast.usage import used_by


async def reports(app: Outlast) -> list[Event]:
    page = await app.engine.events(EventQuery(kinds=("usage",)))
    return list(page.items)


async def test_usage_is_told_in_the_log_and_summed_up_by_attempt() -> None:
    app = Outlast("memory://")

    @app.task(retry=Retry("1s"))
    async def ask(ctx: Context) -> str:
        await ctx.usage(input_tokens=10, output_tokens=5, cost=0.0000015, model="small")
        if ctx.attempt == 1:
            raise ConnectionError("the line broke")
        await ctx.usage(tokens=1, cost="0.25", model="large", pictures=2)
        return "done"

    async with testing(app) as t:
        handle = await ask.options(user_id="ada", session_id="s-1").enqueue()
        await t.run()
        await t.advance("1m")
        await t.run()
        assert await handle.result() == "done"
        first = (await reports(app))[0]
        assert (first.task_id, first.attempt, first.session_id) == (handle.id, 1, "s-1")
        assert json.loads(first.data) == {
            "tokens": 15,
            "input_tokens": 10,
            "output_tokens": 5,
            "cost": 0.0000015,
            "model": "small",
            "user_id": "ada",
        }
        used = await used_by(app.engine, handle.id)
        assert used.total.view() == {
            "reports": 3,
            "tokens": 31,
            "input_tokens": 20,
            "output_tokens": 10,
            "cost": 0.250003,
            "more": {"pictures": 2},
        }
        assert {number: sum.tokens for number, sum in used.by_attempt.items()} == {1: 15, 2: 16}


async def test_what_was_used_stays_when_the_task_dies() -> None:
    app = Outlast("memory://")

    @app.task()
    async def burn(ctx: Context) -> None:
        await ctx.usage(tokens=7)
        raise Permanent("no")

    async with testing(app) as t:
        handle = await burn.enqueue()
        await t.run()
        assert await t.status(handle) == "dead"
        assert (await used_by(app.engine, handle.id)).total.tokens == 7


async def test_handlers_in_threads_just_call_and_nobody_has_to_wait() -> None:
    app = Outlast("memory://")

    @app.task()
    def threaded(ctx: SyncContext) -> None:
        ctx.usage(tokens=3)

    @app.task()
    async def careless(ctx: Context) -> None:
        ctx.usage(tokens=4)

    async with testing(app) as t:
        first, second = await threaded.enqueue(), await careless.enqueue()
        await t.run()
        assert (await used_by(app.engine, first.id)).total.tokens == 3
        assert (await used_by(app.engine, second.id)).total.tokens == 4


@pytest.mark.parametrize(
    ("usage", "says"),
    [
        ({}, "nothing"),
        ({"model": "small"}, "nothing"),
        ({"tokens": -1}, "whole number"),
        ({"tokens": 1.5}, "whole number"),
        ({"tokens": True}, "whole number"),
        ({"input_tokens": "9"}, "whole number"),
        ({"cost": -0.1}, "amount"),
        ({"cost": float("nan")}, "amount"),
        ({"cost": "much"}, "amount"),
        ({"cost": 10**9}, "amount"),
        ({"tokens": 1, "model": ""}, "1 to 200"),
        ({"pictures": -1}, "0 or more"),
        ({"pictures": "two"}, "0 or more"),
        ({"user_id": 3}, "name"),
        ({f"n{n}": 1 for n in range(17)}, "at most 16"),
    ],
)
async def test_nonsense_is_refused_and_changes_nothing(usage: dict[str, object], says: str) -> None:
    app = Outlast("memory://")

    @app.task()
    async def ask(ctx: Context) -> str:
        with pytest.raises(BadInput, match=says):
            await ctx.usage(**usage)  # type: ignore[arg-type]
        return "refused"

    async with testing(app) as t:
        handle = await ask.enqueue()
        await t.run()
        assert await handle.result() == "refused"
        assert await reports(app) == []


async def test_a_report_of_nothing_but_zeros_is_a_report_of_nothing() -> None:
    """Providers answer so for what came from a cache: the handler need not look."""
    app = Outlast("memory://")

    @app.task()
    async def ask(ctx: Context) -> None:
        await ctx.usage(tokens=0, cost=0, model="small")

    async with testing(app) as t:
        handle = await ask.enqueue()
        await t.run()
        assert await t.status(handle) == "completed"
        assert (await used_by(app.engine, handle.id)).total.reports == 1
