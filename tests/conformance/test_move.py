"""Moving from one engine to another: all arrives and is compared, or nothing is let loose."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec import structs

from outlast.core.errors import BadInput, Conflict, EngineDown, WaitTimeout
from outlast.core.model import Item, Put, Step
from outlast.core.states import STATUSES
from outlast.engine import Engine, connect
from outlast.moving import PLAN, Moved, move

from .language import Scene
from .servers import url_for
from .test_dump import populate

PAIRS = [
    ("sqlite", "sqlite"),
    ("sqlite", "postgresql"),
    ("sqlite", "redis"),
    ("sqlite", "mongodb"),
    ("postgresql", "sqlite"),
    ("redis", "sqlite"),
    ("mongodb", "sqlite"),
    ("postgresql", "mongodb"),
    ("mongodb", "redis"),
    ("redis", "postgresql"),
]
Make = Callable[[str], Awaitable[Scene]]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """`await make("redis")`: an empty engine of that kind."""
    async with AsyncExitStack() as stack:

        async def made(name: str) -> Scene:
            engine = connect(url_for(name, tmp_path))
            stack.push_async_callback(engine.close)
            await engine.open()
            return Scene(engine)

        yield made


@pytest.fixture
async def a(make: Make) -> Scene:
    return await make("sqlite")


@pytest.fixture
async def b(make: Make) -> Scene:
    return await make("sqlite")


async def full(e: Scene) -> None:
    """One task in every status but the running ones, and nobody who works."""
    await populate(e)
    await e.limit("one", slots=1, rate="1000/s")
    await e.add("first", "second", "third", limits="one", queue="narrow")
    [first] = await e.claim(3, queue="narrow", lease="1d")
    await e.finish(first, {"text": "ünï ❤ \u2028", "big": 2**53 - 1, "part": 0.1})
    await e.add("gone")
    await e.cancel("gone", "changed my mind")
    await e.add("flaky", queue="flaky", max_attempts=9)
    for n in range(3):
        [flaky] = await e.claim(1, queue="flaky", lease="1d")
        await e.report(flaky, steps=[Step(f"s{n}", json.dumps([n]).encode())])
        await e.fail(flaky, error={"type": "T", "message": f"no. {n}"}, fingerprint="f")
    await e.put("queue", "closed", {"paused": True, "source": "people"})
    await e.add("behind", queue="closed")
    await e.turn("w1", leaving=True)
    living = {"ready", "scheduled", "retrying", "throttled", "blocked"}
    assert set((await e.counts("status")).keys()) == {*living, "completed", "cancelled", "dead"}
    assert living < set(STATUSES)


async def moved(e: Scene, other: Scene, **options: int | bool) -> Moved:
    other._ids, other._names = e._ids, e._names
    other.engine.skew_ms = e.engine.skew_ms
    return await move(e.engine, other.engine, "the source", **options)  # type: ignore[arg-type]


def tasks_of(told: Moved) -> dict[str, int]:
    kinds = ((kind.partition("task "), n) for kind, n in told.counts.items())
    return {state: n for (_, mark, state), n in kinds if mark}


async def live_on(e: Scene) -> None:
    """A worker that finishes whatever it is given, until nothing is left."""
    await e.resume("closed")
    await e.signal("held", "go")
    for _ in range(30):
        queues = ("default", "fair", "limited", "narrow", "flaky", "closed")
        leases = await e.claim(9, queue=queues, lease="1d", worker="w2")
        for lease in leases:
            await e.finish(lease)
        if not leases:
            await e.advance("20m")
            await e.sweep()
    assert set(await e.counts("status")) <= {"completed", "cancelled", "dead"}


@pytest.mark.parametrize(("one", "other"), PAIRS)
async def test_everything_arrives_and_a_worker_finishes_it(
    make: Make, one: str, other: str
) -> None:
    e, copy = await make(one), await make(other)
    await full(e)
    told = await moved(e, copy)
    assert sum(tasks_of(told).values()) == len(await e.tasks())
    assert not told.resumed and not told.paused

    # `after` is a set.
    tasks = [structs.replace(t, after=tuple(sorted(t.after))) for t in await e.tasks()]
    copies = [structs.replace(t, after=tuple(sorted(t.after))) for t in await copy.tasks()]
    assert copies == tasks
    for kind in ("note", "limit", "queue", "copy"):
        assert await copy.engine.get(kind) == await e.engine.get(kind)
    plain = {"cursor": "", "type": None, "queue": None}
    events = [structs.replace(x, **plain) for x in await e.events()]
    assert [structs.replace(x, **plain) for x in await copy.events()] == events
    [flaky] = [t for t in copies if t.queue == "flaky"]
    assert len(json.loads(flaky.attempts)) == 3

    assert (await copy.add("x", unique_key="living"))[0].existing
    await live_on(copy)


class Dying:
    """An engine whose process is killed after some writes."""

    def __init__(self, engine: Engine, writes: int, *, after: bool) -> None:
        self._engine = engine
        self._left = writes
        self._after = after

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    async def load(self, items: list[Item]) -> int:
        self._left -= 1
        if self._left < 0 and not self._after:
            raise EngineDown("killed")
        loaded = await self._engine.load(items)
        if self._left < 0:
            raise EngineDown("killed")
        return loaded


@pytest.mark.parametrize("other", ["sqlite", "postgresql", "redis", "mongodb"])
async def test_an_interrupted_copy_goes_on_and_doubles_nothing(
    make: Make, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.moving.PAGE", 5)
    e, copy = await make("sqlite"), await make(other)
    await full(e)
    copy.engine.skew_ms = e.engine.skew_ms
    for n in range(40):
        dying = Dying(copy.engine, n % 3, after=bool(n % 2))
        try:
            told = await move(e.engine, dying, "the source")  # type: ignore[arg-type]
        except EngineDown:
            [plan] = await copy.engine.get(*PLAN[:1])
            assert json.loads(plan.value)["source"] == "the source"
        else:
            break
    assert n > 5
    assert told.resumed
    other_copy = await make("sqlite")
    assert (await moved(e, other_copy)).checksums == told.checksums


async def test_while_it_is_half_copied_no_worker_gets_anything(a: Scene, b: Scene) -> None:
    await full(a)
    b.engine.skew_ms = a.engine.skew_ms
    with pytest.raises(EngineDown):
        await move(a.engine, Dying(b.engine, 2, after=True), "the source")  # type: ignore[arg-type]
    assert await b.tasks()
    assert await b.claims(9, lease="1s") == []
    with pytest.raises(Conflict, match="1 worker of the target"):
        await moved(a, b)
    await b.turn("w1", leaving=True)
    await moved(a, b, resume=True)
    assert await b.claims(1, worker="w2") == ["ready"]


async def test_another_source_is_not_mixed_in(a: Scene, b: Scene, make: Make) -> None:
    await full(a)
    with pytest.raises(EngineDown):
        await move(a.engine, Dying(b.engine, 1, after=True), "the first")  # type: ignore[arg-type]
    other = await make("sqlite")
    with pytest.raises(Conflict, match="half a copy of the first"):
        await move(other.engine, b.engine, "the second")


async def test_only_into_an_empty_engine(a: Scene, b: Scene) -> None:
    await a.add("x")
    await b.put("note", "n", 1)
    with pytest.raises(Conflict, match=r"not empty.*note"):
        await moved(a, b)
    assert (await b.engine.get("note"))[0].value == b"1"


async def test_not_into_itself(a: Scene) -> None:
    await a.add("x")
    again = connect(f"sqlite:///{a.engine.path}")  # type: ignore[attr-defined]
    await again.open()
    try:
        with pytest.raises(BadInput, match="same engine"):
            await move(a.engine, again, "x")
    finally:
        await again.close()


async def test_there_must_be_something_to_resume(a: Scene, b: Scene) -> None:
    with pytest.raises(BadInput, match="no interrupted copy"):
        await moved(a, b, resume=True)


async def test_running_tasks_are_refused_with_the_fix(a: Scene, b: Scene) -> None:
    await a.add("x")
    await a.claim()
    with pytest.raises(Conflict, match=r"1 task of the source runs.*--drain"):
        await moved(a, b)
    assert [i async for i in _items(b.engine)] == []


async def test_live_workers_are_refused_with_the_fix(a: Scene, b: Scene) -> None:
    await a.beat()
    with pytest.raises(Conflict, match=r"1 worker of the source.*--drain"):
        await moved(a, b)


async def test_draining_pauses_waits_and_keeps_paused(a: Scene, b: Scene) -> None:
    await a.put("queue", "other", {"fair": True})
    await a.add("x")
    await a.add("y", queue="other")
    [x] = await a.claim()
    waiting = asyncio.Event()

    def tell(phase: str, _done: int, _total: int | None) -> None:
        if phase == "drain":
            waiting.set()

    async def finish_then() -> None:
        await waiting.wait()
        assert await a.claims(1, queue=("default", "other")) == []
        await a.finish(x)

    told, _ = await asyncio.gather(
        move(a.engine, b.engine, "the source", drain_ms=20_000, tell=tell), finish_then()
    )
    assert told.paused
    assert tasks_of(told) == {"completed": 1, "pending": 1}
    assert await a.claims(9, queue=("default", "other")) == []
    b._ids, b._names = a._ids, a._names
    [other] = await b.engine.get("queue")
    assert json.loads(other.value) == {"fair": True}
    assert await b.claims(9, queue="other") == ["y"]


async def test_a_drain_pauses_what_running_tasks_spawn_into(a: Scene, b: Scene) -> None:
    await a.add("x")
    [x] = await a.claim()
    waiting = asyncio.Event()

    def tell(phase: str, _done: int, _total: int | None) -> None:
        if phase == "drain":
            waiting.set()

    async def finish_then() -> None:
        await waiting.wait()
        await a.report(x, spawn=[a.new("child", queue="children")])
        await until_paused(a, "children")
        assert await a.claims(1, queue="children") == []
        await a.finish(x)

    told, _ = await asyncio.gather(
        move(a.engine, b.engine, "the source", drain_ms=20_000, tell=tell), finish_then()
    )
    assert tasks_of(told) == {"completed": 1, "pending": 1}
    b._ids, b._names = a._ids, a._names
    assert await b.claims(1, queue="children") == ["child"]


async def until_paused(e: Scene, queue: str) -> None:
    async with asyncio.timeout(20):
        while not await e.engine.get("queue", [queue]):  # noqa: ASYNC110  # another one writes it
            await asyncio.sleep(0.01)


async def test_a_drained_copy_is_not_given_up_for_a_worker_that_came_too_early(
    a: Scene, b: Scene
) -> None:
    await a.add("x")
    dying = Dying(b.engine, 0, after=True)
    with pytest.raises(EngineDown):
        await move(a.engine, dying, "the source", drain_ms=1000)  # type: ignore[arg-type]
    await b.beat()
    with pytest.raises(Conflict, match="1 worker of the target"):
        await moved(a, b)
    assert await a.claims() == [], "its queues stay paused"
    await b.turn("w1", leaving=True)
    assert (await moved(a, b)).paused


async def test_a_refused_copy_stays_refused(a: Scene, b: Scene) -> None:
    await a.add("x", "y")

    class Writing(Dying):
        async def load(self, items: list[Item]) -> int:
            if any(item.kind == "event" for item in items):
                await a.cancel("x")
            return await self._engine.load(items)

    target = Writing(b.engine, 0, after=False)
    with pytest.raises(Conflict, match="The source changed"):
        await move(a.engine, target, "the source", drain_ms=1000)  # type: ignore[arg-type]
    assert await a.claims() == ["y"], "its queues are as they were"
    with pytest.raises(Conflict, match="The source changed"):
        await moved(a, b)


async def test_a_drain_in_vain_leaves_the_source_as_it_was(a: Scene, b: Scene) -> None:
    await a.add("x", "y")
    await a.claim()
    with pytest.raises(WaitTimeout, match="1 task still runs"):
        await moved(a, b, drain_ms=1)
    assert await a.claims(1, worker="w2") == ["y"]
    assert [i async for i in _items(b.engine)] == []


async def test_a_drain_sweeps_up_what_a_lost_worker_held(a: Scene, b: Scene) -> None:
    await a.add("x")
    await a.claim(lease="1s")
    await a.advance("2s")
    b.engine.skew_ms = a.engine.skew_ms
    told = await moved(a, b, drain_ms=20_000)
    assert tasks_of(told) == {"pending": 1}


async def test_what_comes_due_on_a_drained_source_is_no_change(a: Scene, b: Scene) -> None:
    """Idle workers go on sweeping."""
    await a.add("soon", delay="1m")
    await a.beat(lease="1d")

    swept = []

    class Sweeping(Dying):
        async def load(self, items: list[Item]) -> int:
            loaded = await self._engine.load(items)
            if any(item.kind == "event" for item in items):
                await a.advance("2m")
                swept.append((await a.sweep()).unparked)
            return loaded

    target = Sweeping(b.engine, 0, after=False)
    told = await move(a.engine, target, "the source", drain_ms=1000)  # type: ignore[arg-type]
    assert sum(swept) == 1
    assert tasks_of(told) == {"pending": 1}
    b._ids, b._names = a._ids, a._names
    b.engine.skew_ms = a.engine.skew_ms
    assert await b.claims(1) == ["soon"]


@pytest.mark.parametrize("silent", [False, True])
async def test_a_source_that_is_written_to_is_refused(
    a: Scene, b: Scene, silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that logs its coming is seen at once, another one at the end."""
    monkeypatch.setattr("outlast.moving.PAGE", 1)
    await a.add("x", "y", "z")
    pages = []

    class Writing(Dying):
        async def load(self, items: list[Item]) -> int:
            if any(item.kind == "event" for item in items):
                pages.append(await a.add("new", followed=not silent))
            return await self._engine.load(items)

    with pytest.raises(Conflict, match="The source changed during the copy"):
        await move(a.engine, Writing(b.engine, 1, after=False), "a")  # type: ignore[arg-type]
    assert len(pages) == (3 if silent else 1)


async def test_a_target_that_is_written_to_is_refused(a: Scene, b: Scene) -> None:
    await a.add("x")

    class Writing(Dying):
        async def load(self, items: list[Item]) -> int:
            await self._engine.put([Put(kind="note", key="n", value=b"1")])
            return await self._engine.load(items)

    with pytest.raises(Conflict, match=r"The copy is not what the source is.*record: 0 and 1"):
        await move(a.engine, Writing(b.engine, 1, after=False), "a")  # type: ignore[arg-type]


async def _items(engine: Engine) -> AsyncIterator[Item]:
    page = await engine.dump()
    while True:
        for item in page.items:
            yield item
        if page.next is None:
            return
        page = await engine.dump(page.next)


@pytest.mark.parametrize(("one", "other"), PAIRS)
async def test_who_was_not_told_of_an_end_yet_is_told_by_the_copy(
    make: Make, one: str, other: str
) -> None:
    e, copy = await make(one), await make(other)
    await e.add("up")
    await e.engine.enqueue([e.new(f"d{n}", after=["up"]) for n in range(600)])
    [up] = await e.claim(1, lease="1d")
    await e.finish(up)
    await e.turn("w1", leaving=True)
    assert (await e.counts("status"))["blocked"] > 0, "the rest is left to sweep"
    await moved(e, copy)
    await copy.sweep()
    assert (await copy.counts("status")) == {"completed": 1, "ready": 600}
