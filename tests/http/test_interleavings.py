"""What comes at the same time over HTTP: an end beside a poll, a client that goes unheard.

Each test forces one order of events, by gates that the server waits at.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from websockets.asyncio.client import connect

from outlast.core.errors import EngineDown
from outlast.core.model import Cancel, Deal, EventPage, EventQuery, Turn
from outlast.http import feed, leases
from outlast.http.hub import Hub

from .site import API, Site, until


async def leased(site: Site, **options: Any) -> tuple[str, str]:
    """A task that runs elsewhere: its id, and the lease."""
    id = (await site.enqueue("elsewhere", {"to": "x"}, **options))["id"]
    reply = await site.post("/leases", {"worker": "w", "types": ["elsewhere"]})
    [item] = reply.json()["items"]
    assert item["task"]["id"] == id
    return id, item["lease"]


# reading the log ---------------------------------------------------------------------------------


async def test_a_poll_beside_the_end_of_its_task_skips_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read all there was; then come a chunk and the end; then it looks at the record."""
    id, lease = await leased(site, session_id="ada")
    find = feed.find

    async def late(*asked: Any) -> Any:
        monkeypatch.setattr(feed, "find", find)
        for verb, body in (("emit", {"chunk": "last words"}), ("complete", {"result": 1})):
            assert (await site.post(f"/leases/{lease}/{verb}", body)).status_code == 200
        return await find(*asked)

    monkeypatch.setattr(feed, "find", late)
    kinds: list[str] = []
    told: dict[str, Any] = {"next": "", "done": False}
    while not told["done"]:
        told = (await site.get(f"/tasks/{id}/events?wait=5&after={told['next'] or ''}")).json()
        kinds += [item["event"] for item in told["items"]]
    assert kinds[-2:] == ["chunk", "done"]


async def test_a_poll_that_the_end_of_the_server_cuts_short_skips_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has an event in its hands, and reads on, when the server goes."""
    start = (await site.get("/events/poll")).json()["next"]
    await site.enqueue("add", {"a": 1}, session_id="ada")
    events, reading = site.app.engine.events, asyncio.Event()
    seen = 0

    async def slow(query: EventQuery) -> EventPage:
        nonlocal seen
        if seen:
            reading.set()
            await asyncio.Event().wait()
        page = await events(query)
        seen += len(page.items) if query.limit > 1 else 0
        return page

    monkeypatch.setattr(site.app.engine, "events", slow)
    asking = asyncio.create_task(site.get(f"/events/poll?wait=20&after={start}"))
    await asyncio.wait_for(reading.wait(), 30)
    site.server.config.app.state.live.closing.set()  # type: ignore[union-attr]
    told = (await asking).json()
    assert told == {"items": [], "next": start}


async def test_a_redrive_right_behind_an_end_does_not_end_the_stream(busy: Site) -> None:
    id = (await busy.enqueue("doomed"))["id"]
    await busy.ended(id)
    handle = busy.app.handle(id)
    ends = 0
    async for event in handle.events():
        if event.kind == "done":
            ends += 1
            if ends < 3:
                await handle.retry()
    assert ends == 3
    assert await handle.status() == "dead"


# sockets -----------------------------------------------------------------------------------------


async def test_a_reader_that_cannot_begin_leaves_nothing_behind(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(query: EventQuery) -> EventPage:
        raise EngineDown("away")

    hub = Hub(site.app.engine)
    monkeypatch.setattr(site.app.engine, "events", down)
    with pytest.raises(EngineDown):
        async with hub.following("ada"):
            raise AssertionError("it could not begin")
    assert not hub._waiting


async def test_a_socket_goes_on_behind_many_that_nobody_acknowledges(site: Site) -> None:
    async def end(n: int) -> list[str]:
        told = {"type": "add", "payload": {"a": 1}, "session_id": "ada"}
        reply = await site.post("/tasks/batch", {"tasks": [told] * n})
        ids: list[str] = [item["id"] for item in reply.json()["items"]]
        await site.app.engine.alter(ids, Cancel())
        return ids

    await site.http.put(
        f"{API}/sessions/ada/preferences", json={"types": ["task_cancelled"], "push": True}
    )
    ids = await end(60)
    address = site.address.replace("http", "ws")
    async with connect(f"{address}{API}/sessions/ada/ws", proxy=None) as socket:
        told = [await asyncio.wait_for(socket.recv(), 30) for _ in ids]
        assert [id in str(notice) for id, notice in zip(ids, told, strict=True)] == [True] * 60
        [last] = await end(1)
        assert last in str(await asyncio.wait_for(socket.recv(), 30))


# leases ------------------------------------------------------------------------------------------


async def test_leases_whose_client_has_gone_are_given_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs up while its answer is written."""
    id = (await site.enqueue("elsewhere", {"to": "x"}))["id"]
    items, writing, go_on = leases._items, asyncio.Event(), asyncio.Event()

    async def slow(*told: Any) -> Any:
        found = await items(*told)
        writing.set()
        await go_on.wait()
        return found

    monkeypatch.setattr(leases, "_items", slow)
    asking = asyncio.create_task(site.post("/leases", {"worker": "w", "types": ["elsewhere"]}))
    await asyncio.wait_for(writing.wait(), 30)
    assert (await site.task(id))["status"] == "running"
    asking.cancel()
    await asyncio.wait({asking})
    go_on.set()
    await until(lambda: _is_ready(site, id), 30)
    [attempt] = (await site.task(id))["attempts"]
    assert attempt["outcome"] == "released"


async def test_leases_whose_answer_fails_are_given_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*told: Any) -> Any:
        raise EngineDown("away")

    id = (await site.enqueue("elsewhere", {"to": "x"}))["id"]
    monkeypatch.setattr(leases, "_items", fails)
    reply = await site.post("/leases", {"worker": "w", "types": ["elsewhere"]})
    assert reply.status_code == 503
    assert await _is_ready(site, id)


async def test_a_heartbeat_of_a_claim_that_is_being_evicted_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence still holds, for a sweep goes in bounded steps; the lease is no longer kept."""
    _, lease = await leased(site)
    exchange = site.app.engine.exchange

    async def evicting(turn: Turn) -> Deal:
        deal = await exchange(turn)
        return Deal(now=deal.now, lost=deal.lost, evicted=bool(turn.outcomes))

    monkeypatch.setattr(site.app.engine, "exchange", evicting)
    reply = await site.post(f"/leases/{lease}/heartbeat")
    assert (reply.status_code, reply.json()["code"]) == (409, "lease_lost")


async def test_an_end_that_is_repeated_is_counted_once(site: Site) -> None:
    _, lease = await leased(site)
    for _ in range(2):
        reply = await site.post(f"/leases/{lease}/complete", {"result": 1})
        assert reply.json()["outcome"] == "succeeded"
    tally = site.app.meter.tally("elsewhere", "default")
    assert sum(tally.ends.values()) == 1


async def _is_ready(site: Site, id: str) -> bool:
    return bool((await site.task(id))["status"] == "ready")
