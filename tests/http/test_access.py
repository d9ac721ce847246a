"""Who may do what: every route, for every role, for one's own tasks and for those of others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import httpx2
import pytest
from fastapi.routing import APIRoute
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from outlast import Outlast
from outlast.access import KEY, TOKEN, Keyring, Signer, create_key, revoke_key
from outlast.core.errors import BadInput
from outlast.core.model import EventQuery, NewEvent
from outlast.http.api import create_api
from outlast.http.door import Guarded
from outlast.http.serve import serve

from .site import API, Site, make_app, serving, until

ALICE, BOB = "alice", "bob"

READERS: Final = {"session", "client", "operator", "admin", "reader"}
CALLERS: Final = {"session", "client", "operator", "admin"}
INSPECTORS: Final = {"client", "worker", "operator", "admin", "reader"}
OPERATORS: Final = {"operator", "admin"}
WORKERS: Final = {"worker", "admin"}
EVERYBODY: Final = READERS | INSPECTORS | {"nobody"}
ROUTES: Final[dict[str, set[str]]] = {
    "POST /api/v1/tasks": CALLERS,
    "POST /api/v1/tasks/summarize": CALLERS,
    "POST /api/v1/tasks/batch": CALLERS,
    "POST /api/v1/tasks/bulk": OPERATORS,
    "POST /api/v1/tasks/requeue-orphaned": OPERATORS,
    "GET /api/v1/tasks": READERS,
    "GET /api/v1/tasks/{task_id}": READERS,
    "GET /api/v1/tasks/{task_id}/why": READERS,
    "POST /api/v1/tasks/{task_id}/retry": OPERATORS,
    "GET /api/v1/tasks/{task_id}/steps": READERS,
    "POST /api/v1/tasks/{task_id}/rerun": OPERATORS,
    "POST /api/v1/tasks/{task_id}/cancel": CALLERS,
    "POST /api/v1/tasks/{task_id}/signal/{name:path}": CALLERS,
    "DELETE /api/v1/tasks/{task_id}": OPERATORS,
    "GET /api/v1/workflows": READERS,
    "POST /api/v1/workflows": CALLERS,
    "GET /api/v1/workflows/{workflow_id}": READERS,
    "POST /api/v1/workflows/{workflow_id}/cancel": CALLERS,
    "POST /api/v1/workflows/{workflow_id}/retry": OPERATORS,
    "GET /api/v1/content/{content_id}": READERS,
    "GET /api/v1/approvals": READERS,
    "POST /api/v1/approvals/{task_id}": CALLERS,
    "GET /api/v1/schedules": INSPECTORS,
    "POST /api/v1/schedules": OPERATORS,
    "GET /api/v1/schedules/{schedule:path}": INSPECTORS,
    "DELETE /api/v1/schedules/{schedule:path}": OPERATORS,
    **{
        f"POST /api/v1/schedules/{{schedule:path}}/{verb}": OPERATORS
        for verb in ("pause", "resume", "run")
    },
    "GET /api/v1/tasks/{task_id}/stream": READERS,
    "GET /api/v1/tasks/{task_id}/events": READERS,
    "GET /api/v1/events": READERS,
    "GET /api/v1/events/poll": READERS,
    "POST /api/v1/leases": WORKERS,
    **{
        f"POST /api/v1/leases/{{lease}}/{verb}": WORKERS
        for verb in ("heartbeat", "progress", "emit", "usage", "complete", "fail", "release")
    },
    "GET /api/v1/queues/status": INSPECTORS,
    "GET /api/v1/queues/dlq": INSPECTORS,
    "POST /api/v1/queues/{name:path}/pause": OPERATORS,
    "POST /api/v1/queues/{name:path}/resume": OPERATORS,
    "GET /api/v1/workers": INSPECTORS,
    "POST /api/v1/workers/{worker_id:path}/drain": OPERATORS,
    "GET /api/v1/limits": INSPECTORS,
    "PUT /api/v1/limits/{key:path}": OPERATORS,
    "DELETE /api/v1/limits/{key:path}": OPERATORS,
    "POST /api/v1/limits/{key:path}/reset": OPERATORS,
    "GET /api/v1/usage": INSPECTORS,
    "GET /api/v1/budgets": INSPECTORS,
    "PUT /api/v1/budgets/{key:path}": OPERATORS,
    "DELETE /api/v1/budgets/{key:path}": OPERATORS,
    "GET /api/v1/types": INSPECTORS,
    "GET /api/v1/metrics/tasks": INSPECTORS,
    "GET /metrics": INSPECTORS,
    "GET /api/v1/webhooks": {"admin"},
    "POST /api/v1/webhooks": {"admin"},
    "DELETE /api/v1/webhooks/{webhook_id}": {"admin"},
    "POST /api/v1/webhooks/{webhook_id}/rotate": {"admin"},
    "POST /api/v1/webhooks/{webhook_id}/enable": {"admin"},
    "GET /api/v1/webhooks/{webhook_id}/deliveries": {"admin"},
    "POST /api/v1/webhooks/{webhook_id}/deliveries/{task_id}/replay": {"admin"},
    "GET /api/v1/keys": {"admin"},
    "POST /api/v1/keys": {"admin"},
    "DELETE /api/v1/keys/{key_id}": {"admin"},
    "POST /api/v1/tickets": READERS,
    "POST /api/v1/login": EVERYBODY,
    "GET /api/v1/login": EVERYBODY - {"nobody"},
    "POST /api/v1/logout": EVERYBODY,
    "POST /api/v1/sessions/{session_id:path}/token": CALLERS - {"session"},
    "GET /api/v1/sessions/{session_id:path}/tasks": READERS,
    "GET /api/v1/sessions/{session_id:path}/notifications": READERS,
    "POST /api/v1/sessions/{session_id:path}/notifications/ack": CALLERS,
    "GET /api/v1/sessions/{session_id:path}/preferences": READERS,
    "PUT /api/v1/sessions/{session_id:path}/preferences": CALLERS,
    "POST /api/v1/sessions/{session_id:path}/ticket": READERS,
    "GET /health": EVERYBODY,
    "GET /api/v1/health": EVERYBODY,
    "GET /livez": EVERYBODY,
    "GET /readyz": EVERYBODY,
}
"""Every route and who passes its door. `reader` is a client's key that is read-only."""


@dataclass
class Guests:
    """A site with keys, and a header for everybody who may come."""

    site: Site
    headers: dict[str, dict[str, str]]

    async def ask(self, who: str, method: str, path: str, body: object = None) -> httpx2.Response:
        return await self.site.http.request(method, path, json=body, headers=self.headers[who])

    async def enqueue(self, who: str, **options: Any) -> dict[str, Any]:
        body = {"type": "add", "payload": {"a": 1}, **options}
        reply = await self.ask(who, "POST", f"{API}/tasks", body)
        assert reply.status_code == 202, reply.text
        task: dict[str, Any] = reply.json()
        return task


@pytest.fixture
async def guests() -> AsyncIterator[Guests]:
    app, _ = make_app()
    async with serving(app) as site:
        signer = Signer(app.engine)
        tokens = {
            "session": await signer.token(ALICE, user_id="u1"),
            "other": await signer.token(BOB),
            **{role: (await create_key(app.engine, role))[0]
               for role in ("client", "worker", "operator", "admin")},
            "reader": (await create_key(app.engine, "client", read_only=True))[0],
            "scoped": (await create_key(app.engine, "operator", queues=["default"]))[0],
        }  # fmt: skip
        headers = {who: {"authorization": f"Bearer {text}"} for who, text in tokens.items()}
        async with app:
            yield Guests(site, {**headers, "nobody": {}})


def _routes() -> list[APIRoute]:
    app, _ = make_app()
    routes: list[APIRoute] = create_api(app).state.routes
    return routes


def _name(route: APIRoute) -> str:
    [method] = route.methods
    return f"{method} {route.path}"


def test_every_route_is_behind_the_door_and_in_the_table() -> None:
    routes = _routes()
    assert all(isinstance(route, Guarded) for route in routes)
    assert {_name(route) for route in routes} == ROUTES.keys()


@pytest.mark.parametrize("name", ROUTES)
async def test_who_passes(guests: Guests, name: str) -> None:
    method, _, path = name.partition(" ")
    mine = (await guests.enqueue("client", session_id=ALICE))["id"]
    path = (
        path.replace("{task_id}", mine)
        .replace("{session_id:path}", ALICE)
        .replace("{key_id}", "k")
        .replace("{webhook_id}", "w")
        .replace("{content_id}", "gc_1")
    )
    path = path.replace("{name:path}", "x").replace("{key:path}", "y")
    path = path.replace("{schedule:path}", "s").replace("{workflow_id}", mine)
    bodies = {"tasks": {"type": "add", "payload": {"a": 1}}, "summarize": {"content": "A."},
              "batch": {"tasks": [{"type": "add", "payload": {"a": 1}}]},
              "workflows": {"name": "w", "nodes": [NODE]},
              "keys": {"role": "client"}, "y": {"slots": 1}, "ack": {"ids": []},
              "bulk": {"action": "retry", "filter": "status:dead"}}  # fmt: skip
    body = bodies.get(path.rpartition("/")[2], {}) if method in ("POST", "PUT") else None
    for who in ("nobody", "session", "client", "worker", "reader", "operator", "admin"):
        if path.endswith(("/stream", "/events")):
            async with guests.site.http.stream(method, path, headers=guests.headers[who]) as reply:
                status = reply.status_code
        else:
            status = (await guests.ask(who, method, path, body)).status_code
        if who in ROUTES[name]:
            assert status not in (401, 403), who
        else:
            assert status == (401 if who == "nobody" else 403), who


OF_A_TASK: Final = [name for name in ROUTES if "/tasks/{task_id}" in name]
NODE: Final = {"name": "sum", "type": "add", "payload": {"a": 1}}


@pytest.mark.parametrize("name", OF_A_TASK)
async def test_the_task_of_another_session_does_not_exist(guests: Guests, name: str) -> None:
    method, _, path = name.partition(" ")
    theirs = (await guests.enqueue("client", session_id=ALICE, user_id="u1"))["id"]
    nobodys = theirs[:-12] + "000000000000"
    path = path.replace("{name:path}", "x")
    for who in ("other", "session"):
        found = await guests.ask(who, method, path.replace("{task_id}", nobodys), None)
        if ROUTES[name] >= {"session"}:
            assert found.status_code == 404, who
            foreign = await guests.ask("other", method, path.replace("{task_id}", theirs), None)
            assert foreign.status_code == 404
            assert foreign.json() == {**found.json(), "detail": f"There is no task {theirs}."}
            assert foreign.headers.keys() == found.headers.keys()
        else:
            assert found.status_code == 403


async def test_an_end_user_enqueues_for_themselves_and_sees_only_that(guests: Guests) -> None:
    mine = await guests.enqueue("session")
    assert (mine["session_id"], mine["user_id"]) == (ALICE, "u1")
    elsewhere = await guests.enqueue("client", session_id="phone", user_id="u1")
    await guests.enqueue("other")
    listed = (await guests.ask("session", "GET", f"{API}/tasks")).json()["items"]
    assert [task["id"] for task in listed] == [mine["id"]]
    mine_too = (await guests.ask("session", "GET", f"{API}/tasks?user_id=u1")).json()["items"]
    assert {task["id"] for task in mine_too} == {mine["id"], elsewhere["id"]}
    others = (await guests.ask("session", "GET", f"{API}/tasks?session_id={BOB}")).json()["items"]
    assert others == []


@pytest.mark.parametrize(
    "option",
    [
        {"session_id": BOB},
        {"queue": "vip"},
        {"priority": "high"},
        {"id": "01988b3c-0000-7000-8000-000000000001"},
        {"parent_id": "01988b3c-0000-7000-8000-000000000001"},
    ],
)
async def test_an_end_user_chooses_little(guests: Guests, option: dict[str, str]) -> None:
    body = {"type": "add", "payload": {"a": 1}, **option}
    reply = await guests.ask("session", "POST", f"{API}/tasks", body)
    assert reply.status_code == 403, reply.text


async def test_a_session_has_the_priority_of_its_token_where_the_type_names_none(
    guests: Guests,
) -> None:
    app = guests.site.app

    @app.task(name="calm", priority="low")
    async def calm() -> None: ...

    reply = await guests.ask("admin", "POST", f"{API}/sessions/vip/token", {"priority": "high"})
    bearer = {"authorization": f"Bearer {reply.json()['token']}"}
    told = []
    for type, payload in (("add", {"a": 1}), ("calm", {})):
        made = await guests.site.post("/tasks", {"type": type, "payload": payload}, headers=bearer)
        told.append(made.json()["priority"])
    assert told == [1, 3]
    batch = {"tasks": [{"type": "add", "payload": {"a": 1}}]}
    made = await guests.site.post("/tasks/batch", batch, headers=bearer)
    assert [task["priority"] for task in made.json()["items"]] == [1]
    wrong = await guests.ask("admin", "POST", f"{API}/sessions/vip/token", {"priority": "soon"})
    assert (wrong.status_code, wrong.json()["field"]) == (422, "priority")


async def test_keys_that_are_the_same_text_do_not_meet_across_sessions(guests: Guests) -> None:
    first = await guests.enqueue("session", unique_key="once")
    assert (await guests.enqueue("session", unique_key="once"))["id"] == first["id"]
    assert (await guests.enqueue("other", unique_key="once"))["existing"] is False
    ids = set()
    for who in ("session", "other", "client", "operator", "session"):
        headers = {**guests.headers[who], "idempotency-key": '"k1"'}
        body = {"type": "add", "payload": {"a": 2}}
        reply = await guests.site.http.post(f"{API}/tasks", json=body, headers=headers)
        ids.add(reply.json()["id"])
    assert len(ids) == 4


async def test_sessions_whose_names_begin_alike_do_not_meet(guests: Guests) -> None:
    """`a` with the key `b:c` is not `a:b` with the key `c`."""
    signer, told = Signer(guests.site.app.engine), []
    for session, key in (("a:b", "c"), ("a", "b:c"), ("a", "b")):
        bearer = {"authorization": f"Bearer {await signer.token(session)}"}
        body = {"type": "add", "payload": {"a": 1}}
        reply = await guests.site.post("/tasks", body | {"unique_key": key}, headers=bearer)
        again = {**bearer, "idempotency-key": key}
        told += [reply, await guests.site.post("/tasks", body, headers=again)]
    assert [(reply.status_code, reply.json()["existing"]) for reply in told] == [(202, False)] * 6


@pytest.mark.parametrize("name", ["id", "unique_key"])
async def test_a_name_that_a_task_out_of_scope_has_tells_nothing_of_it(
    guests: Guests, name: str
) -> None:
    taken = await guests.enqueue("admin", queue="vip", unique_key="taken")
    body = {"type": "add", "payload": {"a": 1}, "queue": "default", name: taken[name]}
    for path, sent in (("/tasks", body), ("/tasks/batch", {"tasks": [body]})):
        reply = await guests.ask("scoped", "POST", API + path, sent)
        assert (reply.status_code, reply.json()["code"]) == (409, "conflict")
        assert taken["id"] not in reply.text
    assert (await guests.ask("admin", "POST", f"{API}/tasks", body)).json()["existing"] is True


@pytest.mark.parametrize("name", ["id", "unique_key"])
async def test_a_batch_with_a_name_that_is_taken_out_of_scope_changes_nothing(
    guests: Guests, name: str
) -> None:
    taken = await guests.enqueue("admin", queue="vip", unique_key="taken")
    one = {"type": "add", "payload": {"a": 1}, "queue": "default"}
    batch = {"tasks": [one, {**one, name: taken[name]}, one]}
    assert (await guests.ask("scoped", "POST", f"{API}/tasks/batch", batch)).status_code == 409
    assert (await guests.ask("scoped", "GET", f"{API}/tasks")).json()["items"] == []


async def test_a_key_for_one_queue_is_told_nothing_that_concerns_all(guests: Guests) -> None:
    """As it may not look at limits, it does not hear of their circuits."""
    start = (await guests.ask("admin", "GET", f"{API}/events/poll")).json()["next"]
    opened = NewEvent(kind="circuit", data=b'{"key":"vip","circuit":"open"}')
    await guests.site.app.engine.append([opened])
    await guests.enqueue("admin", session_id=BOB)
    for who, kinds in (("admin", ["circuit", "state"]), ("scoped", ["state"]), ("session", [])):
        told = (await guests.ask(who, "GET", f"{API}/events/poll?after={start}")).json()
        assert [item["event"] for item in told["items"]] == kinds


async def test_a_key_for_one_queue_reaches_no_other(guests: Guests) -> None:
    there = await guests.enqueue("admin", queue="vip")
    here = await guests.enqueue("admin", queue="default")
    assert (await guests.ask("scoped", "GET", f"{API}/tasks/{there['id']}")).status_code == 404
    assert (await guests.ask("scoped", "GET", f"{API}/tasks/{here['id']}")).status_code == 200
    listed = (await guests.ask("scoped", "GET", f"{API}/tasks")).json()["items"]
    assert [task["id"] for task in listed] == [here["id"]]
    for path, status in (("/queues/vip/pause", 403), ("/queues/default/pause", 200)):
        assert (await guests.ask("scoped", "POST", API + path, {})).status_code == status
    body = {"type": "add", "payload": {"a": 1}, "queue": "vip"}
    assert (await guests.ask("scoped", "POST", f"{API}/tasks", body)).status_code == 403
    assert (await guests.ask("scoped", "GET", f"{API}/limits")).status_code == 403


async def test_the_stream_of_all_shows_each_what_is_theirs(guests: Guests) -> None:
    site = guests.site
    seen: dict[str, list[str]] = {}

    async def follow(who: str, most: int, began: asyncio.Event) -> None:
        path = f"{API}/events"
        async with site.http.stream("GET", path, headers=guests.headers[who]) as reply:
            began.set()
            async for line in reply.aiter_lines():
                if line.startswith(("event:", "data:")):
                    seen.setdefault(who, []).append(line)
                if len(seen.get(who, ())) >= most:
                    return

    begun = [asyncio.Event() for _ in range(2)]
    following = [
        asyncio.create_task(follow("session", 2, begun[0])),
        asyncio.create_task(follow("admin", 6, begun[1])),
    ]
    await asyncio.gather(*(event.wait() for event in begun))
    await guests.enqueue("client", session_id=BOB)
    await guests.ask("operator", "POST", f"{API}/queues/x/pause", {})
    mine = await guests.enqueue("session")
    await asyncio.wait_for(asyncio.gather(*following), 30)
    assert mine["id"] in seen["session"][1]
    assert "event: audit" in seen["admin"]


async def test_what_operators_do_is_in_the_audit_log(guests: Guests) -> None:
    await guests.ask("operator", "POST", f"{API}/queues/x/pause", {})
    [audit] = (await guests.site.app.engine.events(EventQuery(kinds=("audit",)))).items
    assert b'"path":"/api/v1/queues/x/pause"' in audit.data
    assert b'"by":"operator"' in audit.data


async def test_a_revoked_key_is_out_within_seconds(guests: Guests) -> None:
    made = (await guests.ask("admin", "POST", f"{API}/keys", {"role": "client"})).json()
    assert made["key"].startswith(KEY)
    guests.headers["new"] = {"authorization": f"Bearer {made['key']}"}

    async def answered(status: int) -> bool:
        return (await guests.ask("new", "GET", f"{API}/tasks")).status_code == status

    await until(lambda: answered(200))
    listed = (await guests.ask("admin", "GET", f"{API}/keys")).text
    assert made["id"] in listed
    assert made["key"] not in listed
    await revoke_key(guests.site.app.engine, made["id"])
    await until(lambda: answered(401))


async def test_a_key_opens_and_is_revoked_at_once_where_it_was_made(guests: Guests) -> None:
    for _ in range(3):
        assert (await guests.ask("client", "GET", f"{API}/tasks")).status_code == 200
        made = (await guests.ask("admin", "POST", f"{API}/keys", {"role": "client"})).json()
        guests.headers["new"] = {"authorization": f"Bearer {made['key']}"}
        assert (await guests.ask("new", "GET", f"{API}/tasks")).status_code == 200
        gone = await guests.ask("admin", "DELETE", f"{API}/keys/{made['id']}")
        assert gone.status_code == 204
        assert (await guests.ask("new", "GET", f"{API}/tasks")).status_code == 401


async def test_the_end_of_the_last_key_opens_no_server_to_everybody() -> None:
    app, _ = make_app()
    async with app:
        _, key = await create_key(app.engine, "admin", expires="1h")
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(serve(app, port=0, on_ready=address.set_result))
        await asyncio.wait_for(asyncio.shield(address), 30)
        await revoke_key(app.engine, key.id)  # the server has not been asked anything yet
        async with httpx2.AsyncClient(base_url=address.result(), trust_env=False) as http:
            for method, path in (("GET", "tasks"), ("POST", "keys"), ("POST", "login")):
                reply = await http.request(method, f"{API}/{path}", json={"key": "x" * 16})
                assert reply.status_code == 401, reply.text
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("loopback_only", [True, False])
async def test_a_server_for_its_own_machine_is_open_again_without_keys(loopback_only: bool) -> None:
    app, _ = make_app()
    api = create_api(app, loopback_only=loopback_only)
    door = api.state.door
    async with app:
        assert await door.is_open()
        _, key = await create_key(app.engine, "admin")
        await door.keyring.reread()
        assert not await door.is_open()
        await revoke_key(app.engine, key.id)
        await door.keyring.reread()
        assert await door.is_open() is loopback_only


@pytest.mark.parametrize("expires", [None, "1h"])
async def test_what_a_key_has_opened_ends_with_it(guests: Guests, expires: str | None) -> None:
    """Revoked elsewhere, or by its time: nothing more is told, whichever way it is heard."""
    site = guests.site
    task = await guests.enqueue("client", delay="1h")
    last = f"{API}/tasks/{task['id']}"
    text, key = await create_key(site.app.engine, "admin", expires=expires)
    headers = {"authorization": f"Bearer {text}"}
    guests.headers["new"] = headers

    async def known() -> bool:
        return (await guests.ask("new", "GET", f"{API}/tasks")).status_code == 200

    await until(known)
    before = site.open_streams

    async def streamed(path: str) -> None:
        async with site.http.stream("GET", path, headers=headers) as reply:
            assert reply.status_code == 200
            await asyncio.wait_for(reply.aread(), 30)

    async def waited(method: str, path: str, body: object = None) -> None:
        begun = monotonic()
        reply = await site.http.request(
            method, path, json=body, headers={**headers, "prefer": "wait=60"}, timeout=60
        )
        assert reply.status_code == 200
        assert monotonic() - begun < 30

    async def pushed(path: str) -> None:
        address = f"ws://127.0.0.1:{site.port}{path}"
        async with connect(address, additional_headers=headers) as open:
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    await asyncio.wait_for(open.recv(), 30)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.reason == "The key or token is over."

    claim = {"worker": "w", "queues": ["none"], "wait": 60}
    ends = asyncio.gather(
        *map(streamed, (f"{API}/events", f"{last}/stream")),
        *map(pushed, (f"{API}/events/ws", f"{last}/ws", f"{API}/sessions/{ALICE}/ws")),
        waited("GET", last),
        waited("GET", f"{API}/events/poll?wait=60"),
        waited("POST", f"{API}/leases", claim),
    )
    await until(lambda: site.open_streams == before + 8)
    if expires is None:
        await revoke_key(site.app.engine, key.id)
    else:
        site.app.engine.skew_ms += 3_600_001
    await ends
    await until(lambda: site.open_streams == before)


async def test_who_came_before_there_were_keys_goes_when_there_are() -> None:
    app, _ = make_app()
    async with serving(app) as site, app, site.http.stream("GET", f"{API}/events") as reply:
        assert reply.status_code == 200
        await create_key(app.engine, "admin")
        await asyncio.wait_for(reply.aread(), 30)


async def test_a_reader_listens_to_a_session_and_acknowledges_nothing(guests: Guests) -> None:
    task = await guests.enqueue("client", session_id=ALICE)
    assert (await guests.ask("client", "POST", f"{API}/tasks/{task['id']}/cancel")).is_success
    wanted = {"types": ["task_cancelled"]}
    await guests.ask("client", "PUT", f"{API}/sessions/{ALICE}/preferences", wanted)
    address = f"ws://127.0.0.1:{guests.site.port}{API}/sessions/{ALICE}/ws"
    async with connect(address, additional_headers=guests.headers["reader"]) as open:
        pushed = json.loads(await asyncio.wait_for(open.recv(), 30))
        assert pushed["task_id"] == task["id"]
        await open.send(json.dumps({"ack": [pushed["notification_id"]]}))
        assert "may not do that" in json.loads(await asyncio.wait_for(open.recv(), 30))["error"]
    path = f"{API}/sessions/{ALICE}/notifications"
    [left] = (await guests.ask("session", "GET", path)).json()["items"]
    assert left["notification_id"] == pushed["notification_id"]


async def test_a_key_asks_no_oftener_than_its_rate(guests: Guests) -> None:
    text, _ = await create_key(guests.site.app.engine, "client", rate="2/h")
    guests.headers["slow"] = {"authorization": f"Bearer {text}"}

    async def known() -> bool:
        return (await guests.ask("slow", "GET", f"{API}/tasks")).status_code != 401

    await until(known)
    await guests.ask("slow", "GET", f"{API}/tasks")
    reply = await guests.ask("slow", "GET", f"{API}/tasks")
    assert reply.status_code == 429
    assert int(reply.headers["retry-after"]) > 60


@pytest.mark.parametrize(
    "text", ["", "Bearer", "Bearer x", "Basic YTpi", f"Bearer {TOKEN}", f"Bearer {TOKEN}e30.e30",
             f"Bearer {KEY}nothing", "bearer é", f"Bearer {TOKEN}{'A' * 20_000}"],
)  # fmt: skip
async def test_what_is_no_key_opens_nothing(guests: Guests, text: str) -> None:
    reply = await guests.site.http.get(f"{API}/tasks", headers={"authorization": text.encode()})
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"] == "Bearer"


async def test_a_token_ends_and_cannot_be_forged() -> None:
    async with Outlast("memory://") as app:
        signer = Signer(app.engine, {"OUTLAST_SECRET": "a secret of some length"})
        token = await signer.token(ALICE, ttl="1h")
        bearer = await signer.bearer(token)
        assert bearer is not None
        assert bearer.session_id == ALICE
        for place in (len(TOKEN) + 3, -3):
            forged = token[:place] + ("A" if token[place] != "A" else "B") + token[place:][1:]
            assert await signer.bearer(forged) is None
        other = Signer(app.engine, {"OUTLAST_SECRET": "another secret than that"})
        assert await other.bearer(token) is None
        both = Signer(
            app.engine, {"OUTLAST_SECRET": "a newer secret of 2026,a secret of some length"}
        )
        assert await both.bearer(token) == bearer
        app.engine.skew_ms += 3_600_001
        assert await signer.bearer(token) is None


async def test_servers_on_one_engine_share_their_secret() -> None:
    async with Outlast("memory://") as app:
        token = await Signer(app.engine, {}).token(ALICE)
        assert await Signer(app.engine, {}).bearer(token) is not None


async def test_keys_of_the_environment() -> None:
    async with Outlast("memory://") as app:
        ring = Keyring(
            app.engine, {"OUTLAST_KEYS": "admin:0123456789abcdef, worker:fedcba9876543210"}
        )
        assert await ring.exist()
        found = await ring.find("fedcba9876543210")
        assert found is not None
        assert found.role == "worker"
        assert not await Keyring(app.engine, {}).exist()
        for wrong in ("admin:short", "0123456789abcdef", "king:0123456789abcdef"):
            with pytest.raises(BadInput):
                Keyring(app.engine, {"OUTLAST_KEYS": wrong})


async def test_a_read_only_server_changes_nothing() -> None:
    app, _ = make_app()
    async with app:
        transport = httpx2.ASGITransport(create_api(app, read_only=True))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            assert (await http.get(f"{API}/tasks")).status_code == 200
            reply = await http.post(f"{API}/tasks", json={"type": "add", "payload": {"a": 1}})
            assert reply.status_code == 403
