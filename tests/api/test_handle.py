"""Handles: results, events, status, cancelling and retrying; and following the log."""

import asyncio
from dataclasses import dataclass

import pytest

from outlast import (
    Conflict,
    Context,
    NotFound,
    Outlast,
    Permanent,
    TaskCancelled,
    TaskDead,
    Transient,
    WaitTimeout,
)
from outlast.core.model import EventQuery, NewEvent
from outlast.stream import tail, wait_final
from outlast.testing import testing

NOBODY = "01890a5d-ac96-774b-bcce-b302099a8057"


@dataclass
class Answer:
    text: str


def new_app() -> Outlast:
    app = Outlast("memory://")

    @app.task(retry="5s")
    async def work(ctx: Context, fails: int = 0) -> Answer:
        await ctx.emit("a")
        await ctx.progress(50, "half")
        if ctx.attempt <= fails:
            raise Transient("not yet")
        return Answer("done")

    @app.task
    async def doomed() -> None:
        raise Permanent("no use", details={"n": 1})

    return app


async def test_a_result_has_the_type_the_handler_says() -> None:
    app = new_app()
    async with testing(app) as t:
        handle = await app.submit("work", {})
        await t.run()
        assert await handle.result() == Answer("done")
        assert await app.handle(handle.id.upper()).result(timeout=0) == Answer("done")
        assert (await handle.status(), handle.durability) == ("completed", "memory")


async def test_a_task_that_ends_otherwise_raises() -> None:
    app = new_app()
    async with testing(app) as t:
        dead = await app.submit("doomed", {})
        stopped = await app.submit("work", {})
        assert await stopped.cancel("changed my mind") is True
        await t.run()
        with pytest.raises(TaskDead, match=r"died \(permanent\): Permanent: no use") as caught:
            await dead.result()
        assert caught.value.error is not None
        assert caught.value.error["details"] == {"n": 1}
        with pytest.raises(TaskCancelled, match="changed my mind"):
            await stopped.result()
        with pytest.raises(NotFound):
            await app.handle(NOBODY).result()


async def test_a_wait_may_end_before_the_task_does() -> None:
    app = new_app()
    async with testing(app):
        handle = await app.submit("work", {}, delay="1h")
        with pytest.raises(WaitTimeout, match="is scheduled after 20ms") as caught:
            await handle.result(timeout="20ms")
        assert isinstance(caught.value, TimeoutError)
        assert await handle.status() == "scheduled"


async def test_a_waiting_result_wakes_up_when_the_task_ends() -> None:
    app = new_app()
    async with testing(app) as t:
        handle = await app.submit("work", {})
        waiting = asyncio.create_task(wait_final(app.engine, handle.id))
        await asyncio.sleep(0)
        await t.run()
        assert (await asyncio.wait_for(waiting, 30)).state == "completed"


async def test_cancelling_what_is_over_says_so() -> None:
    app = new_app()
    async with testing(app) as t:
        handle = await app.submit("work", {})
        await t.run()
        assert await handle.cancel() is False
        with pytest.raises(NotFound):
            await app.handle(NOBODY).cancel()


async def test_retrying_brings_the_dead_back_and_nobody_else() -> None:
    app = new_app()
    async with testing(app) as t:
        dead = await app.submit("doomed", {})
        done = await app.submit("work", {})
        retrying = await app.submit("work", {"fails": 1})
        await t.run()
        assert await t.status(retrying) == "retrying"
        await retrying.retry()
        await dead.retry()
        with pytest.raises(Conflict, match="it is completed"):
            await done.retry()
        assert [await t.status(h) for h in (dead, retrying)] == ["ready", "ready"]
        await t.run()
        assert [await t.status(h) for h in (dead, retrying)] == ["dead", "completed"]


# events ------------------------------------------------------------------------------------------


async def test_events_come_from_the_beginning_and_end_with_the_end() -> None:
    app = new_app()
    async with testing(app) as t:
        handle = await app.submit("work", {"fails": 1})
        await t.run()
        await t.advance("6s")
        await t.run()
        events = [event async for event in handle.events()]
        assert events == await t.events(handle)
        kinds = [event.kind for event in events]
        assert (kinds[0], kinds[-1], kinds.count("done")) == ("state", "done", 1)
        assert [e.data for e in events if e.kind == "chunk"] == [{"chunk": "a"}] * 2
        assert "rollback" in kinds, "the first attempt had streamed"
        assert events[-1].data["status"] == "completed"
        for n, event in enumerate(events):
            rest = [later async for later in handle.events(after=event.cursor)]
            assert rest == events[n + 1 :], "coming back with a cursor misses and repeats nothing"


async def test_events_are_followed_as_they_come() -> None:
    app = new_app()
    async with testing(app) as t:
        handle = await app.submit("work", {})
        events = handle.events()
        assert (await anext(events)).data == {"status": "ready"}
        rest = asyncio.create_task(_kinds(events))
        await t.run()
        assert (await asyncio.wait_for(rest, 30))[-1] == "done"


async def _kinds(events: object) -> list[str]:
    return [event.kind async for event in events]  # type: ignore[attr-defined]


async def test_an_end_before_a_redrive_is_not_the_end() -> None:
    app = new_app()
    async with testing(app) as t:
        handle = await app.submit("doomed", {})
        await t.run()
        await handle.retry()
        await t.run()
        kinds = [event.kind async for event in handle.events()]
        assert kinds.count("done") == 2
        assert kinds[-1] == "done"


async def test_events_of_a_task_that_is_gone_are_none() -> None:
    async with testing(new_app()) as t:
        assert [event async for event in t.app.handle(NOBODY).events()] == []


async def test_a_reader_is_told_when_the_log_was_pruned_behind_it() -> None:
    app = Outlast("memory://", keep={"log": "1h"})

    @app.task()
    async def work() -> None: ...

    async with testing(app) as t:
        handle = await work.enqueue()
        first = (await t.events(handle))[0]
        await t.run()
        await t.advance("2h")
        kinds = [event.kind async for event in handle.events(after=first.cursor)]
        assert kinds == ["reset"]


async def test_the_whole_log_is_followed_from_its_end() -> None:
    app = new_app()
    async with testing(app):
        await app.submit("work", {})
        end = (await app.engine.events(EventQuery(after="$"))).next
        events = tail(app.engine, EventQuery(after=end))
        coming = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        await app.engine.append([NewEvent(kind="notice", session_id="s")])
        assert (await asyncio.wait_for(coming, 30)).kind == "notice"
        await events.aclose()
