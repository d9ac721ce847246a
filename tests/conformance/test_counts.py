"""The fleet's counts on an engine: every process counted once, whoever leaves, dies or comes back;
and their history by hour and day."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from outlast import fleet, rollup
from outlast.core.errors import BadInput
from outlast.core.totals import Totals, name_of
from outlast.engine import Engine, connect
from outlast.fleet import GONE_MS, KIND, RETIRED, Publisher, fold
from outlast.meter import Meter
from outlast.rollup import history, roll_up

HOUR_MS = 3_600_000


@pytest.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    engine = connect(url)
    await engine.open()
    yield engine
    await engine.close()


class Process:
    """A program that counts."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.meter = Meter()
        self.publisher = Publisher(self.meter)

    async def counts(self, n: int) -> None:
        self.meter.count("refused", n)
        await self.publisher.publish(self.engine)

    async def sees(self) -> int:
        return (await self.publisher.fleet(self.engine)).counts.get("refused", 0)


async def test_everybody_sees_the_sum(engine: Engine) -> None:
    a, b, reader = (Process(engine) for _ in range(3))
    await a.counts(1)
    await b.counts(10)
    await a.counts(2)
    assert await reader.sees() == await a.sees() == await b.sees() == 13
    a.meter.count("refused", 100)
    assert (await a.sees(), await b.sees()) == (113, 13)  # its own it knows before it has told


async def test_what_a_process_counted_stays_when_it_leaves(engine: Engine) -> None:
    a, b, reader = (Process(engine) for _ in range(3))
    await a.counts(1)
    b.meter.count("refused", 10)  # so short a life that it never published
    await a.publisher.close(engine)
    await b.publisher.close(engine)
    assert await reader.sees() == await a.sees() == 11
    assert [record.key for record in await engine.get(KIND)] == [RETIRED]
    await a.counts(5)  # an app may be opened again
    assert await reader.sees() == await a.sees() == 16


async def test_many_leave_at_once(engine: Engine) -> None:
    many = [Process(engine) for _ in range(8)]
    for n, process in enumerate(many):
        process.meter.count("refused", 10**n)
    await asyncio.gather(*(process.publisher.close(engine) for process in many))
    assert await Process(engine).sees() == 11_111_111


async def test_a_process_that_vanished_is_folded_and_counted_once(engine: Engine) -> None:
    lost, a, b = (Process(engine) for _ in range(3))
    await lost.counts(7)
    await a.counts(1)
    engine.skew_ms += GONE_MS + 60_000
    await a.counts(1)
    await b.counts(1)
    await asyncio.gather(a.publisher._tidy(engine), b.publisher._tidy(engine))
    assert await Process(engine).sees() == 10
    names = {record.key for record in await engine.get(KIND)}
    assert names == {RETIRED, a.publisher._name, b.publisher._name}


async def test_a_record_that_was_folded_but_not_deleted_counts_once(engine: Engine) -> None:
    lost, reader = Process(engine), Process(engine)
    await lost.counts(7)
    [before] = await engine.get(KIND, [lost.publisher._name])
    told = msgspec.json.decode(before.value, type=Totals)
    await fold(engine, before.key, told)
    # As if whoever folded it had died before deleting it.
    put = fleet.Put(kind=KIND, key=before.key, value=before.value, ttl_ms=fleet.KEPT_MS)
    await engine.put([put])
    assert await reader.sees() == 7
    await fold(engine, before.key, told)
    assert await reader.sees() == 7


async def test_who_was_taken_for_gone_goes_on_under_a_new_name(engine: Engine) -> None:
    sleeper, a = Process(engine), Process(engine)
    await sleeper.counts(7)
    name = sleeper.publisher._name
    engine.skew_ms += GONE_MS + 60_000
    await a.publisher._tidy(engine)
    assert await a.sees() == await sleeper.sees() == 7
    sleeper.meter.count("refused", 1)
    assert await sleeper.sees() == 8
    await sleeper.publisher.publish(engine)
    assert await a.sees() == await sleeper.sees() == 8
    assert sleeper.publisher._name != name
    await sleeper.publisher.close(engine)
    assert await a.sees() == 8


async def test_a_write_whose_reply_was_lost_counts_once(engine: Engine) -> None:
    a = Process(engine)
    await a.counts(1)
    version = a.publisher._version
    await a.counts(1)
    a.publisher._version = version  # we never heard of the second one
    await a.counts(1)
    assert await Process(engine).sees() == 3


# History -----------------------------------------------------------------------------------------


def did(n: int) -> Totals:
    """That many of a type completed in all."""
    return Totals({name_of("ended", "t", "q", "completed"): n})


def counting(n: int) -> Callable[[], Awaitable[Totals]]:
    async def count() -> Totals:
        return did(n)

    return count


async def completed(engine: Engine, totals: Totals, by: str) -> list[int]:
    return [row["completed"] for row in await history(engine, totals, by)]  # type: ignore[misc]


async def to_the_hour(engine: Engine) -> None:
    """A minute past one, so that an hour is an hour."""
    now = await engine.now()
    engine.skew_ms += HOUR_MS - now % HOUR_MS + 60_000


async def test_an_hour_is_what_came_since_the_last(engine: Engine) -> None:
    await to_the_hour(engine)
    for n in (3, 10, 10, 14):
        await roll_up(engine, counting(n), await engine.now())
        engine.skew_ms += HOUR_MS
    assert await completed(engine, did(20), "hour") == [3, 7, 4, 6]
    assert sum(await completed(engine, did(20), "day")) == 20


async def test_several_may_roll_up_at_once_and_again(engine: Engine) -> None:
    await to_the_hour(engine)
    now = await engine.now()
    for n in (5, 9):
        await asyncio.gather(*(roll_up(engine, counting(n), now) for _ in range(4)))
        engine.skew_ms += 2 * rollup.FRESH_MS
        now = await engine.now()
    assert await completed(engine, did(9), "hour") == [9]
    engine.skew_ms += HOUR_MS
    await asyncio.gather(*(roll_up(engine, counting(9), now + HOUR_MS) for _ in range(4)))
    assert await completed(engine, did(9), "hour") == [9]


async def test_programs_that_live_for_seconds_only_have_a_history(engine: Engine) -> None:
    await to_the_hour(engine)
    for n in (3, 4):
        short = Process(engine)
        short.meter.tally("t", "q").enqueued += n
        await short.publisher.close(engine)
        engine.skew_ms += HOUR_MS
    totals = await Process(engine).publisher.fleet(engine)
    assert [row["enqueued"] for row in await history(engine, totals, "hour")] == [3, 4]


async def test_the_history_can_be_cut(engine: Engine) -> None:
    await to_the_hour(engine)
    begin = await engine.now()
    for n in (1, 3, 6):
        await roll_up(engine, counting(n), await engine.now())
        engine.skew_ms += HOUR_MS
    second = rollup.iso(begin + HOUR_MS)
    third = rollup.iso((begin + 2 * HOUR_MS) // HOUR_MS * HOUR_MS)
    rows = await history(engine, did(6), "hour", second, third)
    assert [row["completed"] for row in rows] == [2]


async def test_what_is_no_span_or_moment_is_refused(engine: Engine) -> None:
    with pytest.raises(BadInput, match="hour or day"):
        await history(engine, Totals(), "week")
    with pytest.raises(BadInput, match="time zone"):
        await history(engine, Totals(), "day", "yesterday")
