"""Streams, sockets and long polls tell the same events under the same cursors."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from outlast.access import Signer, create_key
from outlast.core.model import NewEvent, Put
from outlast.http import sockets

from .site import API, Site, make_app, serving, until


@asynccontextmanager
async def opened(site: Site, path: str, **options: Any) -> AsyncIterator[ClientConnection]:
    async with connect(site.address.replace("http", "ws") + API + path, **options) as made:
        yield made


async def heard(made: ClientConnection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(await asyncio.wait_for(made.recv(), 30))
    return message


async def all_heard(site: Site, path: str) -> list[dict[str, Any]]:
    """Everything that a socket tells until the server closes it."""
    async with opened(site, path) as made:
        messages = [json.loads(message) async for message in made]
        assert made.close_code == 1000
        return messages


async def polled(site: Site, id: str, after: str | None = None) -> list[dict[str, Any]]:
    """Everything that long polls tell until the task is over."""
    items: list[dict[str, Any]] = []
    done = False
    while not done:
        params = {"wait": "10", **({"after": after} if after else {})}
        told = (await site.get(f"/tasks/{id}/events", params=params)).json()
        items += told["items"]
        after, done = told["next"], told["done"]
    return items


# One task ----------------------------------------------------------------------------------------


async def test_all_ways_tell_the_same(busy: Site) -> None:
    id = (await busy.enqueue("tell", {"chunks": 70, "fails": 1}))["id"]
    streamed, socketed, asked = await asyncio.gather(
        busy.frames(id), all_heard(busy, f"/tasks/{id}/ws"), polled(busy, id)
    )
    told = [{"event": frame.kind, "id": frame.id, "data": frame.data} for frame in streamed]
    assert told == socketed == asked
    assert {"state", "chunk", "progress", "rollback", "done"} <= {one["event"] for one in told}
    middle = told[40]["id"]
    assert await all_heard(busy, f"/tasks/{id}/ws?after={middle}") == told[41:]
    assert await polled(busy, id, middle) == told[41:]


async def test_a_long_poll_waits_for_the_next_event_and_no_longer(busy: Site) -> None:
    id = (await busy.enqueue("wait", {"gate": "g"}))["id"]
    seen = (await busy.get(f"/tasks/{id}/events?wait=10")).json()
    while seen["items"][-1]["event"] != "progress":
        seen = (await busy.get(f"/tasks/{id}/events?wait=10&after={seen['next']}")).json()
    path = f"/tasks/{id}/events?after={seen['next']}"
    nothing = (await busy.get(f"{path}&wait=0.1")).json()
    assert nothing == {"items": [], "next": seen["next"], "done": False}
    asking = asyncio.create_task(busy.get(f"{path}&wait=30"))
    await until(lambda: busy.open_streams == 1)
    busy.gates["g"].set()
    told = (await asyncio.wait_for(asking, 30)).json()
    assert (told["items"][-1]["event"], told["done"]) == ("done", True)
    again = (await busy.get(f"/tasks/{id}/events?wait=30&after={told['next']}")).json()
    assert again == {"items": [], "next": told["next"], "done": True}


@pytest.mark.parametrize("query", ["wait=-1", "wait=61", "wait=soon", "after=nonsense"])
async def test_a_long_poll_that_cannot_be_is_refused(site: Site, query: str) -> None:
    id = (await site.enqueue("add", {"a": 1}))["id"]
    for path in (f"/tasks/{id}/events", "/events/poll"):
        assert (await site.get(f"{path}?{query}")).status_code == 422


async def test_what_was_pruned_is_told_as_a_reset_by_every_way(site: Site) -> None:
    id = (await site.enqueue("add", {"a": 1}))["id"]
    first = (await site.get(f"/tasks/{id}/events")).json()["next"]
    await site.post(f"/tasks/{id}/cancel")
    await site.app.engine.put([Put(kind="retention", key="log", value=b'{"age_ms":1000}')])
    site.app.engine.skew_ms += 10_000
    while (await site.app.engine.sweep()).more:
        pass
    told = await polled(site, id, first)
    assert [one["event"] for one in told] == ["reset", "done"]
    assert await all_heard(site, f"/tasks/{id}/ws?after={first}") == told


# All of them -------------------------------------------------------------------------------------


async def test_the_socket_of_all_tasks_begins_now_and_resumes(site: Site) -> None:
    await site.enqueue("add", {"a": 0})
    async with opened(site, "/events/ws?types=add&queues=q") as made:
        hello = await heard(made)
        await site.enqueue("elsewhere", {"to": 1}, queue="q")
        await site.enqueue("add", {"a": 1})
        mine = await site.enqueue("add", {"a": 1}, queue="q")
        told = await heard(made)
    assert told["data"]["task_id"] == mine["id"]
    async with opened(site, f"/events/ws?types=add&queues=q&after={hello['id']}") as made:
        assert [(await heard(made))["event"], await heard(made)] == ["open", told]


async def test_a_long_poll_of_all_tasks_moves_on_past_what_is_not_wanted(site: Site) -> None:
    start = (await site.get("/events/poll")).json()
    assert start["items"] == []
    await site.enqueue("elsewhere", {"to": 1})
    path = "/events/poll?types=add"
    none = (await site.get(f"{path}&after={start['next']}")).json()
    assert (none["items"], none["next"] != start["next"]) == ([], True)
    mine = await site.enqueue("add", {"a": 1})
    told = (await site.get(f"{path}&wait=10&after={none['next']}")).json()
    assert [one["data"]["task_id"] for one in told["items"]] == [mine["id"]]


# Slow ones ---------------------------------------------------------------------------------------


async def test_a_socket_that_is_not_read_is_dropped_and_others_are_not_held_up(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "SLOW_S", 0.5)
    id = (await site.enqueue("add", {"a": 1}))["id"]
    chunk = json.dumps({"chunk": "x" * 500_000}).encode()
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.connect(("127.0.0.1", site.port))
    async with opened(site, f"/tasks/{id}/ws", sock=small, max_queue=1) as slow:
        first = await heard(slow)
        for _ in range(20):
            await site.app.engine.append([NewEvent(kind="chunk", data=chunk, task_id=id)])
        await until(lambda: site.open_streams == 0)
        await site.post(f"/tasks/{id}/cancel")
        told = await asyncio.wait_for(all_heard(site, f"/tasks/{id}/ws?after={first['id']}"), 30)
        assert [one["event"] for one in told] == ["chunk"] * 20 + ["done"]
        with pytest.raises(ConnectionClosed):
            while True:
                await heard(slow)


# Who may -----------------------------------------------------------------------------------------


async def test_a_ticket_opens_its_path_once_and_nothing_else() -> None:
    app, _ = make_app()
    async with serving(app) as site:
        text, _ = await create_key(app.engine, "client")
        key = {"authorization": f"Bearer {text}"}
        ids = [
            (await site.post("/tasks", {"type": "add", "payload": {"a": 1}}, headers=key)).json()[
                "id"
            ]
            for _ in range(2)
        ]

        async def ticket(path: str) -> str:
            made = await site.post("/tickets", {"path": API + path}, headers=key)
            assert made.status_code == 201, made.text
            return str(made.json()["ticket"])

        async def status(path: str) -> int:
            async with site.http.stream("GET", API + path) as reply:
                return reply.status_code

        one = await ticket(f"/tasks/{ids[0]}/stream")
        assert await status(f"/tasks/{ids[1]}/stream?ticket={one}") == 401
        assert await status(f"/tasks/{ids[0]}?ticket={one}") == 401
        assert await status(f"/events?ticket={one}") == 401
        assert await status(f"/tasks/{ids[0]}/stream?ticket={one}") == 200
        assert await status(f"/tasks/{ids[0]}/stream?ticket={one}") == 401
        assert await status(f"/events?ticket={await ticket('/events')}") == 200
        assert await status(f"/tasks/{ids[0]}/stream?ticket=nonsense") == 401
        async with opened(site, f"/tasks/{ids[0]}/ws?ticket={await ticket(f'/tasks/{ids[0]}/ws')}"):
            pass
        async with opened(site, f"/events/ws?ticket={await ticket('/events/ws')}") as made:
            assert (await heard(made))["event"] == "open"
        for path in ("/tasks", "/keys", f"/tasks/{ids[0]}/events", "/../../x"):
            made = await site.post("/tickets", {"path": API + path}, headers=key)
            assert (made.status_code, made.json()["field"]) == (422, "path")
        late = await ticket("/events")
        app.engine.skew_ms += 31_000
        assert await status(f"/events?ticket={late}") == 401


async def test_the_socket_of_anothers_task_is_that_of_none() -> None:
    app, _ = make_app()
    async with serving(app) as site:
        await create_key(app.engine, "admin")
        headers = {"authorization": f"Bearer {await Signer(app.engine).token('bob')}"}
        ada = {"authorization": f"Bearer {await Signer(app.engine).token('ada')}"}
        body = {"type": "add", "payload": {"a": 1}}
        theirs = (await site.post("/tasks", body, headers=ada)).json()["id"]
        answers = []
        for id in (theirs, theirs[:-12] + "0" * 12, "no-id"):
            with pytest.raises(InvalidStatus) as refused:
                async with opened(site, f"/tasks/{id}/ws", additional_headers=headers):
                    pass
            reply = refused.value.response
            answers.append((reply.status_code, bytes(reply.body or b"").replace(id.encode(), b"")))
        assert answers[0] == answers[1]
        assert {status for status, _ in answers} == {404}
