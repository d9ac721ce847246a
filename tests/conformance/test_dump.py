"""Dump and load: everything arrives, twice is once, and life goes on where it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import structs

from outlast.core.model import Item, NewEvent, Step

from .language import Scene

Another = Callable[[], Awaitable[Scene]]


async def dumped(e: Scene, limit: int = 7) -> list[Item]:
    items: list[Item] = []
    page = await e.engine.dump(limit=limit)
    while True:
        items += page.items
        if page.next is None:
            return items
        page = await e.engine.dump(page.next, limit)


async def copy(e: Scene, other: Scene, limit: int = 7) -> int:
    """Everything of `e` into `other`, which learns the names and the time as well."""
    other._ids, other._names = e._ids, e._names
    other.engine.skew_ms = e.engine.skew_ms
    return await other.engine.load(await dumped(e, limit))


async def populate(e: Scene) -> None:
    """One task in every situation, with everything that can belong to a task."""
    await e.limit("k", slots=1, rate="3/min", trip={"volume": 2})
    await e.put("note", "n", {"x": 1}, ttl_ms=3_600_000)
    await e.put("note", "n", {"x": 2}, ttl_ms=3_600_000)
    await e.add("done", unique_key="idem", unique_for="24h", digest="d1", limits="k")
    [done] = await e.claim(1, lease="1d")
    chunk = NewEvent(kind="chunk", data=b'"x"', task_id=done.id)
    await e.report(done, steps=[Step("s", b"1")], events=[chunk], progress={"percent": 5})
    await e.finish(done, {"r": 1})
    await e.add("dead", type="other", tags=("t1", "t2"), attrs=(("city", "Ulm"),))
    [dead] = await e.claim(1, lease="1d")
    await e.die(dead, error={"type": "T", "message": "m"}, fingerprint="fp")
    await e.add("retrying", max_losses=9, timeout="5s")
    [retrying] = await e.claim(1, lease="1d")
    await e.report(retrying, steps=[Step("one", b"1"), Step("two", b"2")])
    await e.fail(retrying, "1h")
    await e.add("scheduled", delay="2h", max_age="1h", overdue_after="3h", meta={"m": 1})
    await e.add("ready", unique_key="living", session_id="s", user_id="u", workflow_id="w")
    await e.add("up", delay="1h")
    await e.add("down", after=["done", "up"], parent="up")
    await e.add("any", after="up", needs="any", followed=False)
    await e.add("held", hold="go")
    await e.signal("held", "noise", 1)
    await e.add("fair1", "fair2", fair_key="f", queue="fair")
    await e.add("lim1", "lim2", limits="k", queue="limited")
    await e.say("notice", {"text": "hi"}, session_id="s")


async def test_everything_arrives(e: Scene, another: Another) -> None:
    await populate(e)
    other = await another()
    assert await copy(e, other) > 0
    assert await other.tasks() == await e.tasks()
    for kind in ("note", "limit"):
        assert await other.engine.get(kind) == await e.engine.get(kind)

    for name in (None, "done"):
        ours_told = [structs.replace(x, cursor="") for x in await e.events(name)]
        assert [structs.replace(x, cursor="") for x in await other.events(name)] == ours_told


async def test_a_second_dump_equals_the_first(e: Scene, another: Another) -> None:
    await populate(e)
    other = await another()
    await copy(e, other)
    ours = [(i.kind, i.data) for i in await dumped(e) if i.kind != "event"]
    theirs = [(i.kind, i.data) for i in await dumped(other) if i.kind != "event"]
    assert theirs == ours


async def test_loading_twice_is_loading_once(e: Scene, another: Another) -> None:
    await populate(e)
    other = await another()
    assert await copy(e, other) > 0
    before = await other.everything()
    assert await copy(e, other) == 0
    assert await other.everything() == before


async def test_an_interrupted_copy_goes_on(e: Scene, another: Another) -> None:
    await populate(e)
    items = await dumped(e)
    other = await another()
    half = len(items) // 2
    loaded = await other.engine.load(items[:half])
    loaded += await other.engine.load(items)
    assert loaded == len(items)


async def test_pages_of_any_size_give_the_same(e: Scene) -> None:
    await populate(e)
    assert await dumped(e, 1) == await dumped(e, 3) == await dumped(e, 500)


async def test_what_is_there_already_is_left(e: Scene, another: Another) -> None:
    await e.add("a", payload=1)
    await e.put("note", "n", 1)
    other = await another()
    other._ids, other._names = e._ids, e._names
    await other.add("a", payload=2)
    await other.put("note", "n", 2)
    await copy(e, other)
    assert (await other.task("a")).payload == b"2"
    [note] = await other.engine.get("note")
    assert note.value == b"2"


async def test_life_goes_on_in_the_copy(e: Scene, another: Another) -> None:
    await populate(e)
    other = await another()
    await copy(e, other)
    assert (await other.add("x", unique_key="living"))[0].existing
    [receipt] = await other.add("x", unique_key="idem")
    assert (other.name(receipt.id), receipt.existing, receipt.digest) == ("done", True, "d1")
    assert await other.claims(9, lease="1d") == ["ready"]
    assert await other.claims(9, queue="fair", lease="1d") == ["fair1", "fair2"]
    assert await other.claims(9, queue="limited", lease="1d") == ["lim1"]
    await other.signal("held", "go")
    [held] = await other.claim(9, lease="1d")
    assert [s.name for s in held.inbox] == ["noise", "go"]
    await other.advance("1h")
    leases = {other.name(x.id): x for x in await other.claim(9, lease="1d")}
    assert set(leases) == {"retrying", "up"}
    assert leases["retrying"].steps == (Step("one", b"1"), Step("two", b"2"))
    assert leases["retrying"].attempt == 2
    await other.finish(leases["up"])
    assert set(await other.claims(9, lease="1d")) == {"down", "any"}
    await other.advance("61m")
    assert await other.claims(9, lease="1d") == ["scheduled"]


async def test_a_running_task_arrives_as_pending_at_no_cost(e: Scene, another: Another) -> None:
    """Leases do not travel."""
    await e.limit("k", slots=1)
    await e.add("a", limits="k")
    await e.claim()
    other = await another()
    await copy(e, other)
    task = await other.task("a")
    assert (task.state, task.worker, task.attempt) == ("pending", None, 0)
    assert (await other.used("k"))["k"] == 0
    [a] = await other.claim()
    assert (a.attempt, a.number) == (1, 2)


async def test_a_dead_upstream_can_be_redriven_in_the_copy(e: Scene, another: Another) -> None:
    await e.batch(e.new("a"), e.new("b", after="a"))
    [a] = await e.claim()
    await e.die(a)
    other = await another()
    await copy(e, other)
    await other.redrive("a")
    await other.sweep()
    assert await other.statuses() == {"a": "ready", "b": "blocked"}


async def test_an_empty_engine_dumps_nothing(e: Scene) -> None:
    assert await dumped(e) == []
