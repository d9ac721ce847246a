"""Sessions of end users: their tasks, their notifications, and the socket that pushes them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from outlast import KEEP_A_WEEK, Outlast, notices
from outlast.access import Signer, create_key
from outlast.core.model import EventQuery
from outlast.http import sessions

from .site import API, Site, make_app, serving, until

ADA = "ada"


def mine(session: str = ADA) -> str:
    return f"/sessions/{session}"


async def pending(site: Site, session: str = ADA) -> list[dict[str, Any]]:
    reply = await site.get(f"{mine(session)}/notifications")
    assert reply.status_code == 200, reply.text
    items: list[dict[str, Any]] = reply.json()["items"]
    return items


@asynccontextmanager
async def socket(
    site: Site, path: str = f"{API}/sessions/{ADA}/ws", **options: Any
) -> AsyncIterator[ClientConnection]:
    address = site.address.replace("http", "ws") + path
    async with connect(address, proxy=None, **options) as socket:
        yield socket


async def heard(socket: ClientConnection) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(await asyncio.wait_for(socket.recv(), 30))
    return told


async def test_the_tasks_of_a_session(site: Site) -> None:
    task = await site.enqueue("add", {"a": 1}, session_id=ADA)
    await site.enqueue("add", {"a": 1}, session_id="bob")
    items = (await site.get(f"{mine()}/tasks")).json()["items"]
    assert [item["id"] for item in items] == [task["id"]]
    assert (await site.get(f"{mine()}/tasks?status=dead")).json()["items"] == []


async def test_notifications_are_a_list_with_a_next_page(busy: Site) -> None:
    made = [await busy.enqueue("add", {"a": n}, session_id=ADA) for n in range(60)]
    for task in made:
        await busy.ended(task["id"])
    first = (await busy.get(f"{mine()}/notifications")).json()
    assert (len(first["items"]), first["more"]) == (50, True)
    cursor = {"cursor": first["next"]}
    second = (await busy.get(f"{mine()}/notifications", params=cursor)).json()
    assert (len(second["items"]), second["more"], second["next"]) == (10, False, None)
    told = {one["task_id"] for one in [*first["items"], *second["items"]]}
    assert told == {task["id"] for task in made}
    assert (await busy.get(f"{mine()}/notifications?cursor=none")).status_code == 422


async def test_what_a_token_has_opened_ends_with_it(site: Site) -> None:
    task = await site.enqueue("add", {"a": 1}, session_id=ADA)
    token = await Signer(site.app.engine).token(ADA, ttl="5s")
    headers = {"authorization": f"Bearer {token}"}
    last = f"{API}/tasks/{task['id']}"

    async def streamed(path: str) -> None:
        async with site.http.stream("GET", path, headers=headers) as reply:
            assert reply.status_code == 200
            await asyncio.wait_for(reply.aread(), 30)

    async def pushed(path: str) -> None:
        async with socket(site, path, additional_headers=headers) as open:
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    await asyncio.wait_for(open.recv(), 30)
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (
                1008, "The key or token is over.",
            )  # fmt: skip

    await asyncio.gather(
        *map(streamed, (f"{API}/events", f"{last}/stream")),
        *map(pushed, (f"{API}/events/ws", f"{last}/ws", f"{API}/sessions/{ADA}/ws")),
    )
    await until(lambda: site.open_streams == 0)
    assert (await site.http.get(f"{API}/events", headers=headers)).status_code == 401


async def test_what_ended_is_told_until_it_is_acknowledged(busy: Site) -> None:
    good = await busy.enqueue("add", {"a": 1}, session_id=ADA, priority="high")
    bad = await busy.enqueue("doomed", session_id=ADA)
    await busy.enqueue("add", {"a": 1}, session_id="bob")
    for task in (good, bad):
        await busy.ended(task["id"])
    told = {notice["task_id"]: notice for notice in await pending(busy)}
    assert told[good["id"]] == {
        "notification_id": told[good["id"]]["notification_id"],
        "type": "task_completed",
        "task_id": good["id"],
        "task_type": "add",
        "message": "Your add is ready.",
        "action": "retrieve_result",
        "timestamp": (await busy.task(good["id"]))["completed_at"],
        "priority": "high",
    }
    assert (told[bad["id"]]["type"], told[bad["id"]]["action"]) == ("task_failed", "show_error")
    assert len(told) == 2
    first, second = (notice["notification_id"] for notice in await pending(busy))
    ack = f"{mine()}/notifications/ack"
    assert (await busy.post(ack, {"ids": [second]})).json() == {"acknowledged": [second]}
    assert (await busy.post(ack, {"ids": [second]})).json() == {"acknowledged": []}
    assert [notice["notification_id"] for notice in await pending(busy)] == [first]
    assert (await busy.post(ack, {"ids": [first, "x", first]})).json() == {"acknowledged": [first]}
    assert await pending(busy) == []
    assert (await busy.post(ack, {"ids": [first, second]})).json() == {"acknowledged": []}


async def test_acknowledged_once_whoever_says_it(busy: Site) -> None:
    for n in range(5):
        await busy.ended((await busy.enqueue("add", {"a": n}, session_id=ADA))["id"])
    ids = [notice["notification_id"] for notice in await pending(busy)]
    replies = await asyncio.gather(
        *(busy.post(f"{mine()}/notifications/ack", {"ids": ids}) for _ in range(6))
    )
    new = [id for reply in replies for id in reply.json()["acknowledged"]]
    assert sorted(new) == sorted(ids)


async def test_what_was_acknowledged_stays_so_as_long_as_the_log_is_kept(busy: Site) -> None:
    engine, day_ms = busy.app.engine, 86_400_000
    await busy.ended((await busy.enqueue("add", {"a": 1}, session_id=ADA))["id"])
    [notice] = await pending(busy)
    ids = {"ids": [notice["notification_id"]]}
    assert (await busy.post(f"{mine()}/notifications/ack", ids)).json()["acknowledged"]
    engine.skew_ms += 400 * day_ms
    await engine.sweep()
    assert await pending(busy) == []
    assert (await busy.post(f"{mine()}/notifications/ack", ids)).json() == {"acknowledged": []}


@pytest.mark.parametrize(
    "keep", [{"log": "7d"}, KEEP_A_WEEK, {**KEEP_A_WEEK, "log": "90d"}, {"dead": "7d"}], ids=str
)
async def test_acknowledgements_go_some_time_after_the_log(keep: dict[str, Any]) -> None:
    app = Outlast("memory://", keep=keep)
    async with app:
        await app.publish()
        await notices.acknowledge(app.engine, ADA, [])
        [kept] = await app.engine.get("notices", [ADA])
        if keep == {"dead": "7d"}:  # the others are kept for ever, and so is the log of them
            assert kept.expires_at is None
        else:
            assert kept.expires_at is not None
            assert kept.expires_at > await app.engine.now() + 7 * 86_400_000


async def test_an_overdue_task_is_told_of_while_it_runs(busy: Site) -> None:
    task = await busy.enqueue("wait", {"gate": "g"}, session_id=ADA, overdue_after=0.001)

    async def told() -> list[str]:
        await busy.app.engine.sweep()
        return [notice["message"] for notice in await pending(busy)]

    for _ in range(500):
        if await told():
            break
    [message] = await told()
    assert message == "Your wait takes longer than expected; it is still running."
    assert (await busy.task(task["id"]))["status"] == "running"
    busy.gates.setdefault("g", asyncio.Event()).set()


async def test_preferences_choose_what_is_told(busy: Site) -> None:
    path = f"{mine()}/preferences"
    assert (await busy.get(path)).json()["push"] is True
    wanted = {"types": ["task_failed"], "min_priority": "high", "push": False}
    assert (await busy.http.put(API + path, json=wanted)).json() == wanted
    for type, priority in (("add", "high"), ("doomed", "high"), ("doomed", "low")):
        payload = {"a": 1} if type == "add" else {}
        options = {"session_id": ADA, "priority": priority}
        await busy.ended((await busy.enqueue(type, payload, **options))["id"])
    [notice] = await pending(busy)
    assert (notice["task_type"], notice["priority"]) == ("doomed", "high")
    assert (await busy.http.put(API + path, json={"volume": 11})).status_code == 422


async def test_a_socket_pushes_what_came_while_nothing_was_to_be_pushed(
    busy: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LOOK_S", 0.05)
    preferences = f"/api/v1{mine()}/preferences"
    await busy.http.put(preferences, json={"push": False})
    async with socket(busy) as open:
        task = await busy.enqueue("add", {"a": 1}, session_id=ADA)
        await busy.ended(task["id"])
        await busy.http.put(preferences, json={"push": True})
        assert (await heard(open))["task_id"] == task["id"]


async def test_the_socket_pushes_at_once_and_again_until_acknowledged(busy: Site) -> None:
    before = await busy.enqueue("add", {"a": 1}, session_id=ADA)
    await busy.ended(before["id"])
    async with socket(busy) as first:
        old = await heard(first)
        assert old["task_id"] == before["id"]
        task = await busy.enqueue("add", {"a": 2}, session_id=ADA)
        new = await heard(first)
        assert (new["task_id"], new["type"]) == (task["id"], "task_completed")
        await first.send(json.dumps({"ack": [old["notification_id"]]}))
        assert await heard(first) == {"acknowledged": [old["notification_id"]]}
    async with socket(busy) as second:
        assert await heard(second) == new, "the same id, for it was not acknowledged"
    assert [notice["notification_id"] for notice in await pending(busy)] == [new["notification_id"]]


async def test_a_hundred_sockets_hear_their_own(busy: Site) -> None:
    async def one(session: str) -> None:
        async with socket(busy, f"{API}/sessions/{session}/ws") as mine:
            task = await busy.enqueue("add", {"a": 1}, session_id=session)
            assert (await heard(mine))["task_id"] == task["id"]

    await asyncio.gather(*(one(f"s{n}") for n in range(100)))
    await until(lambda: busy.open_streams == 0)


async def test_nothing_is_lost_when_the_server_dies(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    app, _ = make_app(url)
    async with serving(app, working=True) as site:
        task = await site.enqueue("add", {"a": 1}, session_id=ADA)
        await site.ended(task["id"])
        [before] = await pending(site)
    app, _ = make_app(url)
    async with serving(app) as site, socket(site) as again:
        assert (await heard(again))["notification_id"] == before["notification_id"]


async def test_words_that_are_none_are_answered_and_the_socket_stays(site: Site) -> None:
    async with socket(site) as mine:
        for text in ("", "{", "[]", '{"ack": 1}', '{"nack": []}'):
            await mine.send(text)
            assert "error" in await heard(mine)
        await mine.send('{"ack": ["x"]}')
        assert await heard(mine) == {"acknowledged": []}


async def test_the_server_says_why_it_closes(site: Site) -> None:
    async with socket(site) as mine:
        await mine.send("x" * 70_000)
        with pytest.raises(ConnectionClosed) as closed:
            await heard(mine)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code in (1008, 1009)


async def test_a_page_of_another_site_opens_no_socket(site: Site) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with socket(site, origin="https://evil.example"):
            pass
    assert refused.value.response.status_code == 403
    async with socket(site, origin=site.address):
        pass


async def test_sockets_and_sessions_are_behind_the_door() -> None:
    app, _ = make_app()
    async with serving(app) as site:
        signer = Signer(app.engine)
        await create_key(app.engine, "admin")
        tokens = {who: await signer.token(who) for who in (ADA, "bob")}
        headers = {who: {"authorization": f"Bearer {text}"} for who, text in tokens.items()}
        async with socket(site, additional_headers=headers[ADA]):
            pass
        for more, status in (({}, 401), (headers["bob"], 404)):
            with pytest.raises(InvalidStatus) as refused:
                async with socket(site, additional_headers=more):
                    pass
            assert refused.value.response.status_code == status
        for path in ("tasks", "notifications", "preferences"):
            ok = await site.get(f"{mine()}/{path}", headers=headers[ADA])
            no = await site.get(f"{mine()}/{path}", headers=headers["bob"])
            assert (ok.status_code, no.status_code) == (200, 404)
        made = await site.post(f"{mine()}/ticket", headers=headers[ADA])
        path = f"{API}/sessions/{ADA}/ws?ticket={made.json()['ticket']}"
        async with socket(site, path):
            pass
        with pytest.raises(InvalidStatus):
            async with socket(site, path):
                pass


async def test_a_notification_has_one_id_for_ever() -> None:
    app, _ = make_app()
    async with serving(app, working=True) as site:
        await site.ended((await site.enqueue("add", {"a": 1}, session_id=ADA))["id"])
        events = (await app.engine.events(EventQuery(kinds=("done",)))).items
        assert {notices.notice_id(event) for event in events} == {
            notice["notification_id"] for notice in await pending(site)
        }


@pytest.mark.parametrize("session", ["shop/ada 1?", "tasks", "a/ws", "ü#%"])
async def test_a_session_may_have_any_name(session: str) -> None:
    app, _ = make_app()
    async with serving(app, working=True) as site:
        key, _ = await create_key(app.engine, "client")
        bearer = {"authorization": f"Bearer {key}"}
        path = f"/sessions/{quote(session, safe='')}"
        reply = await site.post(f"{path}/token", {}, headers=bearer)
        mine = {"authorization": f"Bearer {reply.json()['token']}"}
        body = {"type": "add", "payload": {"a": 1}}
        task = (await site.post("/tasks", body, headers=mine)).json()
        await site.get(f"/tasks/{task['id']}", headers={**mine, "prefer": "wait=30"})
        [listed] = (await site.get(f"{path}/tasks", headers=mine)).json()["items"]
        [told] = (await site.get(f"{path}/notifications", headers=mine)).json()["items"]
        assert listed["id"] == told["task_id"] == task["id"]
        ticket = (await site.post(f"{path}/ticket", headers=mine)).json()["ticket"]
        address = f"{site.address.replace('http', 'ws')}{API}{path}/ws?ticket={ticket}"
        async with connect(address, proxy=None) as socket:
            assert (await heard(socket))["task_id"] == task["id"]
        ids = {"ids": [told["notification_id"]]}
        acked = await site.post(f"{path}/notifications/ack", ids, headers=mine)
        assert acked.json() == {"acknowledged": ids["ids"]}
