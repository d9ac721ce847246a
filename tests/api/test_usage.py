"""Sums of usage: by day, type, queue, model, user and session; exact whoever dies when."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from outlast import BadInput, Context, Outlast
from outlast.core.model import Put, Record
from outlast.engine import Engine
from outlast.testing import testing
from outlast.usage import KIND, day_of, roll_up, usage


def asking() -> tuple[Outlast, Any, Any]:
    app = Outlast("memory://")

    @app.task()
    async def ask(ctx: Context, tokens: int, model: str = "small") -> None:
        await ctx.usage(tokens=tokens, cost="0.001", model=model)

    @app.task(queue="slow")
    async def draw(ctx: Context, pictures: int) -> None:
        await ctx.usage(cost="0.04", model="brush", pictures=pictures)

    return app, ask, draw


async def tokens(app: Outlast, by: str, **where: str) -> dict[str | None, int]:
    told: Mapping[str, Any] = await usage(app.engine, by, where=where)
    return {item[by]: item["tokens"] for item in told["items"]}


async def test_usage_is_summed_up_by_what_it_was_used_for() -> None:
    app, ask, draw = asking()
    async with testing(app) as t:
        for user, session, n in (("ada", "s1", 1), ("ada", "s2", 10), ("bob", "s3", 100)):
            await ask.options(user_id=user, session_id=session).enqueue(n)
        await ask.enqueue(1000, model="large")
        await draw.options(user_id="bob").enqueue(2)
        await t.run()
        today = day_of(await app.engine.now())
        assert await tokens(app, "day") == {today: 1111}
        assert await tokens(app, "type") == {"draw": 0, "ask": 1111}
        assert await tokens(app, "queue") == {"slow": 0, "default": 1111}
        assert await tokens(app, "model") == {"brush": 0, "small": 111, "large": 1000}
        assert await tokens(app, "user") == {"bob": 100, "ada": 11, None: 1000}
        assert await tokens(app, "session", user="ada") == {"s2": 10, "s1": 1}
        assert await tokens(app, "model", user="bob") == {"brush": 0, "small": 100}
        assert await tokens(app, "type", model="large") == {"ask": 1000}
        told: Mapping[str, Any] = await usage(app.engine, "type")
        assert told["total"] == {
            "reports": 5,
            "tokens": 1111,
            "input_tokens": 0,
            "output_tokens": 0,
            "cost": 0.044,
            "more": {"pictures": 2},
        }
        assert (told["from"] < told["to"], told["to"]) == (True, today)


async def test_days_are_those_of_the_log_and_can_be_chosen() -> None:
    app, ask, _ = asking()
    async with testing(app) as t:
        days = []
        for n in (1, 2, 4):
            days.append(day_of(await app.engine.now()))
            await ask.enqueue(n)
            await t.run()
            await t.advance("1d")
        assert await tokens(app, "day") == dict(zip(days, (1, 2, 4), strict=True))
        told: Mapping[str, Any] = await usage(app.engine, "type", since=days[1], until=days[1])
        assert [item["tokens"] for item in told["items"]] == [2]
        told = await usage(app.engine, "user", since=days[1])
        assert [item["tokens"] for item in told["items"]] == [6]


async def test_sums_outlast_the_tasks_and_the_log() -> None:
    app = Outlast("memory://", keep={"completed": "1h", "log": "1h"})

    @app.task()
    async def ask(ctx: Context) -> None:
        await ctx.usage(tokens=5)

    async with testing(app) as t:
        handle = await ask.enqueue()
        await t.run()
        await roll_up(app.engine)
        await t.advance("2h")
        with pytest.raises(Exception, match="no task"):
            await t.task(handle)
        assert list((await tokens(app, "type")).values()) == [5]


async def test_old_sums_are_forgotten() -> None:
    app, ask, _ = asking()
    async with testing(app) as t:
        day = day_of(await app.engine.now())
        await ask.options(user_id="ada").enqueue(1)
        await t.run()
        await roll_up(app.engine)
        await t.advance("95d")
        assert await app.engine.get(f"{KIND}.5:{day}") == []
        assert len(await app.engine.get(f"{KIND}.3:{day}")) == 1
        await t.advance("310d")
        assert await app.engine.get(f"{KIND}.3:{day}") == []


@pytest.mark.parametrize(
    ("by", "options"),
    [
        ("colour", {}),
        ("type", {"since": "yesterday"}),
        ("type", {"until": "0001-01-05"}),
        ("type", {"since": "9999-12-31"}),
        ("type", {"since": "2026-02-02", "until": "2026-02-01"}),
        ("type", {"where": {"colour": "red"}}),
    ],
)
async def test_nonsense_is_refused(by: str, options: dict[str, Any]) -> None:
    app, _, _ = asking()
    async with testing(app):
        with pytest.raises(BadInput):
            await usage(app.engine, by, **options)


# Exact -------------------------------------------------------------------------------------------


class Killed(Exception):
    """The process that rolls up is gone, at the worst moment."""


class Mortal:
    """The engine as seen by somebody who dies after so many puts, before or after the last."""

    def __init__(self, engine: Engine, puts: int, *, written: bool) -> None:
        self._engine = engine
        self._puts = puts
        self._written = written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def put(self, puts: list[Put]) -> list[Record | None]:
        done = []
        for put in puts:
            self._puts -= 1
            if self._puts <= 0 and not self._written:
                raise Killed
            done += await self._engine.put([put])
            if self._puts <= 0:
                raise Killed
        return done


@pytest.mark.parametrize("written", [True, False])
async def test_a_roll_up_that_dies_anywhere_is_finished_by_the_next(written: bool) -> None:
    app, ask, _ = asking()
    async with testing(app) as t:
        total = killed = 0
        for puts in range(1, 12):
            for user in ("ada", "bob"):
                await ask.options(user_id=user, session_id=f"s{puts}").enqueue(puts)
                total += puts
            await t.run()
            try:
                await roll_up(Mortal(app.engine, puts, written=written))  # type: ignore[arg-type]
            except Killed:
                killed += 1
        assert killed > 5
        assert sum((await tokens(app, "type")).values()) == total
        assert await tokens(app, "user") == {"ada": total // 2, "bob": total // 2}


async def test_many_may_roll_up_at_once() -> None:
    app, ask, _ = asking()
    async with testing(app) as t:
        await app.enqueue(
            [ask.options(user_id=f"u{n % 7}", session_id=f"s{n}").call(1) for n in range(450)]
        )
        await t.run()
        await asyncio.gather(*(roll_up(app.engine) for _ in range(8)))
        assert await tokens(app, "type") == {"ask": 450}
        assert sum((await tokens(app, "user")).values()) == 450
        assert len(await tokens(app, "session")) == 450


@pytest.mark.parametrize("before", ["announcing", "adding"])
async def test_a_straggler_adds_nothing_twice(before: str) -> None:
    """It sleeps at a bad moment, and wakes when others have long done what it was about to do."""
    app, ask, _ = asking()
    async with testing(app) as t:
        await ask.enqueue(1)
        await t.run()
        asleep, wake = asyncio.Event(), asyncio.Event()

        class Slow(Mortal):
            async def put(self, puts: list[Put]) -> list[Record | None]:
                if (puts[0].kind == KIND) is (before == "announcing"):
                    asleep.set()
                    await wake.wait()
                return await self._engine.put(puts)

        slow = asyncio.create_task(roll_up(Slow(app.engine, 0, written=True)))  # type: ignore[arg-type]
        await asleep.wait()
        await roll_up(app.engine)
        await ask.enqueue(10)
        await t.run()
        await roll_up(app.engine)
        await ask.enqueue(100)
        await t.run()
        wake.set()
        await slow
        await ask.enqueue(1000)
        await t.run()
        assert await tokens(app, "type") == {"ask": 1111}
