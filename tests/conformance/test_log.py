"""The log: a change and its events are one step; a cursor misses and repeats nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from outlast.core.model import EventQuery, Forget, NewEvent

from .language import Scene, body


async def test_a_followed_task_tells_every_change(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.fail(a, "1m")
    await e.advance("1m")
    [a] = await e.claim()
    await e.finish(a)
    assert await e.log("a") == ["ready", "running", "retrying", "running", "completed"]
    kinds = [x.kind for x in await e.events("a")]
    assert kinds == ["state", "state", "state", "state", "done"]


async def test_others_tell_failures_and_the_end(e: Scene) -> None:
    await e.add("a", "b", followed=False)
    [a, b] = await e.claim(2)
    await e.snooze(b)
    await e.fail(a)
    [_, a] = await e.claim(2)
    await e.finish(a)
    assert await e.log("a") == ["ready", "completed"]
    assert await e.log("b") == []


async def test_an_unfollowed_cancel_is_told(e: Scene) -> None:
    await e.add("a", followed=False)
    await e.cancel("a")
    assert await e.log("a") == ["cancelled"]


async def test_events_carry_their_task(e: Scene) -> None:
    await e.add("a", type="t", queue="q", session_id="s", workflow_id="w")
    [a] = await e.claim(queue="q")
    await e.report(a, events=[NewEvent(kind="chunk", data=b'"x"', task_id=a.id)])
    event = (await e.events("a"))[-1]
    assert (event.kind, event.data, event.attempt) == ("chunk", b'"x"', 1)
    assert (event.task_id, event.type, event.queue) == (a.id, "t", "q")
    assert (event.session_id, event.workflow_id) == ("s", "w")
    task = await e.task("a")
    assert event.at == task.updated_at


async def test_the_end_says_how_and_why(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.die(a, "permanent", error={"type": "Oops", "message": "no", "traceback": "long"})
    done = (await e.events("a"))[-1]
    assert done.kind == "done"
    data = json.loads(done.data)
    assert (data["status"], data["reason"], data["outcome"]) == ("dead", "permanent", "failed")
    assert (data["error"]["type"], data["error"]["message"]) == ("Oops", "no")
    assert "long" not in done.data.decode()


async def test_an_attempt_that_streamed_and_failed_is_rolled_back(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.report(a, events=[NewEvent(kind="chunk", data=b'"x"', task_id=a.id)])
    await e.fail(a)
    assert await e.log("a") == ["ready", "running", "chunk", "rollback", "ready"]
    [a] = await e.claim()
    await e.fail(a)
    assert (await e.log("a")).count("rollback") == 1


async def test_a_lost_attempt_that_streamed_is_rolled_back(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.report(a, events=[NewEvent(kind="chunk", data=b'"x"', task_id=a.id)])
    await e.vanish()
    assert (await e.log("a")).count("rollback") == 1


async def test_a_success_that_streamed_is_not_rolled_back(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.finish(a, events=[NewEvent(kind="chunk", data=b'"x"', task_id=a.id)])
    assert await e.log("a") == ["ready", "running", "chunk", "completed"]


async def test_a_suspended_attempt_that_streamed_is_rolled_back_too(e: Scene) -> None:
    """It starts from its beginning when it comes back, and streams that again."""
    await e.add("a")
    [a] = await e.claim()
    await e.report(a, events=[NewEvent(kind="chunk", data=b'"x"', task_id=a.id)])
    await e.snooze(a, park="signal:go")
    assert await e.log("a") == ["ready", "running", "chunk", "rollback", "blocked"]


async def test_a_cursor_goes_on_where_it_was(e: Scene) -> None:
    await e.add("a", "b")
    first = await e.engine.events(EventQuery(limit=1))
    second = await e.engine.events(EventQuery(after=first.next, limit=1))
    assert [e.name(x.task_id) for x in (*first.items, *second.items)] == ["a", "b"]
    third = await e.engine.events(EventQuery(after=second.next))
    assert third.items == ()
    await e.add("c")
    fourth = await e.engine.events(EventQuery(after=third.next))
    assert [e.name(x.task_id) for x in fourth.items] == ["c"]
    assert not fourth.reset


async def test_the_cursor_of_an_event_is_its_place(e: Scene) -> None:
    await e.add("a", "b", "c")
    events = await e.events()
    for place, event in enumerate(events):
        page = await e.engine.events(EventQuery(after=event.cursor))
        assert [x.cursor for x in page.items] == [x.cursor for x in events[place + 1 :]]


async def test_the_end_of_the_log_is_a_cursor(e: Scene) -> None:
    await e.add("a")
    page = await e.engine.events(EventQuery(after="$"))
    assert page.items == ()
    await e.add("b")
    page = await e.engine.events(EventQuery(after=page.next))
    assert [e.name(x.task_id) for x in page.items] == ["b"]


async def test_the_end_of_an_empty_log(e: Scene) -> None:
    page = await e.engine.events(EventQuery(after="$"))
    await e.add("a")
    page = await e.engine.events(EventQuery(after=page.next))
    assert len(page.items) == 1


async def test_events_by_task_session_workflow_and_kind(e: Scene) -> None:
    await e.add("a", session_id="s1", workflow_id="w1")
    await e.add("b", session_id="s1")
    await e.add("c", session_id="s2", workflow_id="w1")
    [a] = await e.claim(1)
    await e.finish(a)

    async def of(**query: Any) -> list[str]:
        return [e.name(x.task_id) for x in await e.events(**query)]

    assert await of(session_id="s1") == ["a", "b", "a", "a"]
    assert await of(workflow_id="w1") == ["a", "c", "a", "a"]
    assert await of(kinds=("done",)) == ["a"]
    assert await of(session_id="s2", kinds=("done",)) == []
    assert await of(session_id="s1", workflow_id="w1", kinds=("state",)) == ["a", "a"]
    assert len(await e.events("b")) == 1


async def test_all_that_a_task_has_to_tell(e: Scene) -> None:
    await e.add("a", session_id="s")
    [a] = await e.claim()
    for turn in range(3):
        chunks = [NewEvent(kind="chunk", data=b"%d" % (20 * turn + n)) for n in range(20)]
        assert (await e.hand(e.patch(a, "running", events=chunks))).lost == ()
    for query in ({"name": "a"}, {"session_id": "s"}):
        told = await e.events(**query, limit=7)
        assert [event.data for event in told[2:]] == [b"%d" % n for n in range(60)]


async def test_a_filtered_reader_gets_past_what_it_does_not_want(e: Scene) -> None:
    await e.add(*[f"t{n}" for n in range(600)])
    await e.add("wanted", session_id="s")
    found = await e.events(session_id="s", limit=10)
    assert [e.name(x.task_id) for x in found] == ["wanted"]


async def test_facts_that_no_attempt_tells(e: Scene) -> None:
    await e.add("a")
    await e.say("notice", {"text": "hello"}, session_id="s")
    await e.say("audit", 1, task_id=e.id("a"))
    events = await e.events()
    assert [x.kind for x in events] == ["state", "notice", "audit"]
    assert (events[1].session_id, events[1].data) == ("s", body({"text": "hello"}))
    assert e.name(events[2].task_id) == "a"
    assert [x.kind for x in await e.events("a")] == ["state", "audit"]
    [one, two] = await e.engine.append([NewEvent(kind="x"), NewEvent(kind="y")])
    assert [x.cursor for x in await e.events(kinds=("x", "y"))] == [one, two]


async def test_however_much_is_told_of_a_task_before_it_runs_it_stays_in_order(e: Scene) -> None:
    await e.add("a")
    for n in range(30):
        await e.say("note", n, task_id=e.id("a"))
    [a] = await e.claim()
    await e.finish(a)
    told = ["state", *["note"] * 30, "state", "done"]
    for limit in (7, 500):
        assert [x.kind for x in await e.events("a", limit=limit)] == told


async def test_a_reader_in_the_middle_of_what_was_forgotten_gets_on(e: Scene) -> None:
    names = [f"t{n}" for n in range(500)]
    await e.batch(*[e.new(name) for name in names])
    read = await e.engine.events(EventQuery(limit=100))
    kept = {e.name(x.task_id) for x in read.items}
    await e.engine.alter([e.id(name) for name in names if name not in kept], Forget())
    async with asyncio.timeout(30):
        assert (await e.engine.events(EventQuery(after=read.next))).items == ()
    await e.add("next")
    [event] = (await e.engine.events(EventQuery(after=read.next))).items
    assert e.name(event.task_id) == "next"


async def test_order_per_task_is_the_order_of_its_states(e: Scene) -> None:
    names = [f"t{n}" for n in range(10)]
    await e.add(*names)

    async def work(worker: str) -> None:
        while leases := await e.claim(2, worker):
            for lease in leases:
                await e.finish(lease)

    await asyncio.gather(*[work(f"w{n}") for n in range(4)])
    for name in names:
        assert await e.log(name) == ["ready", "running", "completed"]


async def test_a_reader_beside_writers_sees_everything_once(e: Scene) -> None:
    seen: list[str] = []
    writing = True

    async def read() -> None:
        after = None
        while True:
            over = not writing
            page = await e.engine.events(EventQuery(after=after, limit=7))
            seen.extend(x.cursor for x in page.items)
            after = page.next
            if over and not page.items:
                return
            await asyncio.sleep(0)

    async def write(who: int) -> None:
        for n in range(10):
            await e.add(f"{who}-{n}")

    reading = asyncio.create_task(read())
    await asyncio.gather(*[write(n) for n in range(5)])
    writing = False
    await reading
    assert len(seen) == len(set(seen)) == 50


async def test_a_reader_whose_place_was_pruned_is_told(e: Scene) -> None:
    await e.add("a", "b")
    first = await e.engine.events(EventQuery(limit=1))
    await e.put("retention", "log", {"age_ms": 60_000})
    await e.advance("2m")
    await e.sweep()
    await e.add("c")
    page = await e.engine.events(EventQuery(after=first.next))
    assert page.reset
    assert [e.name(x.task_id) for x in page.items] == ["c"]
    page = await e.engine.events(EventQuery(after=page.next))
    assert not page.reset


async def test_a_reader_ahead_of_the_pruning_is_not_disturbed(e: Scene) -> None:
    await e.add("a")
    end = (await e.engine.events(EventQuery(after="$"))).next
    await e.put("retention", "log", {"age_ms": 60_000})
    await e.advance("2m")
    await e.sweep()
    await e.add("b")
    page = await e.engine.events(EventQuery(after=end))
    assert not page.reset
    assert [e.name(x.task_id) for x in page.items] == ["b"]


async def test_a_refused_change_tells_nothing(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.finish(a)
    count = len(await e.events())
    await e.hand(e.patch(a, "dead", events=[NewEvent(kind="chunk", data=b"1", task_id=a.id)]))
    await e.add("a")
    assert len(await e.events()) == count
