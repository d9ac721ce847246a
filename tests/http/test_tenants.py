"""Tenants, from the router: every route, verb and socket, for one's own and for another's.

What belongs to another session is answered as if there were nothing: the same status, the same
body, the same headers, in the same time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any, Final

import httpx2
import pytest
from fastapi.routing import APIRoute, APIWebSocketRoute
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from outlast import Context, TaskDead
from outlast.access import Signer, create_key
from outlast.core.ids import new_id
from outlast.http import events, sessions
from outlast.http.api import create_api

from .site import API, Site, make_app, serving

ALICE, BOB, NOBODY = "alice", "bobby", "carol"
"""Of the same length, so that nothing but what is told can differ; nobody has the last one."""
CANARY: Final = "canary-7f3a"
VERBS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


def _routes() -> list[APIRoute]:
    app, _ = make_app()
    routes: list[APIRoute] = create_api(app).state.routes
    return routes


ROUTES: Final = {f"{next(iter(r.methods))} {r.path_format}" for r in _routes()}
PATHS: Final = sorted({name.partition(" ")[2] for name in ROUTES})
SOCKETS: Final = sorted(
    route.path_format
    for part in (events, sessions)
    for route in part.router.routes
    if isinstance(route, APIWebSocketRoute)
)
OWNED: Final = sorted(n for n in ROUTES if re.search(r"\{(task_id|session_id|workflow_id)\}", n))


@dataclass
class Town:
    """Alice's tasks, Bob's, and headers for those who look."""

    site: Site
    headers: dict[str, dict[str, str]]
    tasks: dict[str, list[str]]

    async def ask(self, who: str, method: str, path: str, body: object = None) -> httpx2.Response:
        http, headers = self.site.http, self.headers[who]
        if not path.partition("?")[0].endswith(("/stream", f"{API}/events")):
            return await http.request(method, path, json=body, headers=headers)
        async with http.stream(method, path, headers=headers) as reply:
            if reply.status_code != 200:
                await reply.aread()
            return reply

    async def knock(self, who: str, path: str) -> tuple[int, dict[str, str], bytes]:
        """Open a socket; the answer to the handshake."""
        address = self.site.address.replace("http", "ws") + path
        try:
            async with connect(address, additional_headers=self.headers[who]):
                return 101, {}, b""
        except InvalidStatus as refused:
            reply = refused.response
            return reply.status_code, dict(reply.headers.raw_items()), bytes(reply.body or b"")


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    app, _ = make_app()
    async with serving(app) as site:
        signer = Signer(app.engine)
        keys = {
            "alice": await signer.token(ALICE, user_id="ua"),
            "bob": await signer.token(BOB, user_id="ub"),
            "bob_without_user": await signer.token(BOB),
            "bob_of_one_type": await signer.token(BOB, types=["add"]),
            "scoped": (await create_key(app.engine, "client", queues=["other"]))[0],
            **{role: (await create_key(app.engine, role))[0]
               for role in ("client", "worker", "operator", "admin")},
            "reader": (await create_key(app.engine, "client", read_only=True))[0],
        }  # fmt: skip
        headers = {who: {"authorization": f"Bearer {text}"} for who, text in keys.items()}
        town = Town(site, {**headers, "nobody": {}}, {})
        for who, session, user in (("alice", ALICE, "ua"), ("bob", BOB, "ub")):
            made = []
            for _ in range(2):
                body = {
                    "type": "summarize", "payload": {"content": f"{who} {CANARY}"},
                    "session_id": session, "user_id": user, "tags": [f"{who}-{CANARY}"],
                }  # fmt: skip
                made.append((await town.ask("client", "POST", f"{API}/tasks", body)).json()["id"])
            await town.ask("client", "POST", f"{API}/tasks/{made[1]}/cancel", {"reason": CANARY})
            town.tasks[who] = made
        yield town


def fill(path: str, task: str, session: str) -> str:
    path = path.replace("{task_id}", task).replace("{session_id}", session)
    return re.sub(r"\{\w+\}", "x", path)


def told(reply: httpx2.Response, *names: str) -> tuple[int, bytes, dict[str, str]]:
    """An answer without what was asked for, and without the time of day."""
    body = b"" if reply.is_stream_consumed is False else reply.content
    for name in names:
        body = body.replace(name.encode(), b"?")
    headers = {name: value for name, value in reply.headers.items() if name != "date"}
    return reply.status_code, body, headers


@pytest.mark.parametrize("path", PATHS)
async def test_a_verb_that_is_not_there_is_so_for_everybody(town: Town, path: str) -> None:
    mine = fill(path, town.tasks["alice"][0], ALICE)
    there = {name.partition(" ")[0] for name in ROUTES if name.partition(" ")[2] == path}
    for verb in set(VERBS) - there:
        statuses = {
            (await town.ask(who, verb, mine, {})).status_code
            for who in ("nobody", "bob", "client", "admin")
        }
        # A path such as /tasks/batch is also one of a task that there is not, and .../k/reset
        # one of a limit "k/reset", which an admin may set, if with a body that says something.
        named = {401, 403, 422} if path.startswith("/api/v1/limits/") else {401, 404}
        assert statuses in ({405}, {401, 403, 404}, {401, 404}, named), (verb, statuses)


@pytest.mark.parametrize("name", OWNED)
async def test_what_is_anothers_is_told_as_nothing(town: Town, name: str) -> None:
    method, _, path = name.partition(" ")
    body = {} if method in ("POST", "PUT") else None
    for theirs in town.tasks["alice"]:
        none = theirs[:-12] + "0" * 12
        for who in ("bob", "bob_without_user", "bob_of_one_type", "scoped"):
            foreign = await town.ask(who, method, fill(path, theirs, ALICE), body)
            nothing = await town.ask(who, method, fill(path, none, NOBODY), body)
            assert told(foreign, theirs, ALICE) == told(nothing, none, NOBODY), who
            assert foreign.status_code in (403, 404, 422), who
            assert CANARY not in foreign.text
    for id in town.tasks["alice"]:
        after = (await town.ask("admin", "GET", f"{API}/tasks/{id}")).json()
        assert after["status"] in ("ready", "cancelled"), "nobody has changed it"


@pytest.mark.parametrize("path", SOCKETS)
async def test_sockets_open_for_their_own_and_are_nothing_for_others(town: Town, path: str) -> None:
    theirs = town.tasks["alice"][0]
    for who, status in {
        "alice": 101, "client": 101, "operator": 101, "admin": 101, "reader": 101,
        "nobody": 401, "worker": 403,
    }.items():  # fmt: skip
        assert (await town.knock(who, fill(path, theirs, ALICE)))[0] == status, who
    if "{" not in path:
        return
    none = theirs[:-12] + "0" * 12
    for who in ("bob", "bob_without_user", "scoped"):
        answers = []
        for task, session in ((theirs, ALICE), (none, NOBODY)):
            status, headers, body = await town.knock(who, fill(path, task, session))
            body = body.replace(task.encode(), b"?").replace(session.encode(), b"?")
            answers.append((status, {n: v for n, v in headers.items() if n != "Date"}, body))
        assert answers[0] == answers[1], who
        assert answers[0][0] in (403, 404)


@pytest.mark.parametrize("path", [p for p in PATHS if f"GET {p}" in ROUTES])
async def test_nothing_of_alice_is_in_what_bob_reads(town: Town, path: str) -> None:
    mine = town.tasks["bob"][0]
    queries = ["", "?after=0"] if path.endswith(("/events", "/poll")) else [
        "", f"?session_id={ALICE}", "?user_id=ua", f"?tag=alice-{CANARY}", f"?q={CANARY}",
    ]  # fmt: skip
    for query in queries:
        reply = await town.ask("bob", "GET", fill(path, mine, BOB) + query)
        if reply.is_stream_consumed is False or not reply.is_success:
            continue
        for word in (ALICE, f"alice {CANARY}", f"alice-{CANARY}", '"ua"', *town.tasks["alice"]):
            assert word not in reply.text, (query, word)


async def test_streams_and_polls_tell_bob_of_his_own_only(town: Town) -> None:
    start = (await town.ask("bob", "GET", f"{API}/events/poll")).json()["next"]
    address = town.site.address.replace("http", "ws") + f"{API}/events/ws?after={start}"
    body = {"type": "summarize", "payload": {"content": CANARY}}
    made = {}
    for who in ("alice", "bob", "alice", "bob"):
        made[who] = (await town.ask(who, "POST", f"{API}/tasks", body)).json()["id"]
    polled = (await town.ask("bob", "GET", f"{API}/events/poll?after={start}")).text
    async with connect(address, additional_headers=town.headers["bob"]) as socket:
        heard = "".join([str(await asyncio.wait_for(socket.recv(), 30)) for _ in range(3)])
    for text in (polled, heard):
        assert made["bob"] in text
        assert made["alice"] not in text
        assert ALICE not in text


async def test_why_names_only_tasks_of_whoever_asks(town: Town) -> None:
    body = {"type": "wait", "payload": {"gate": "g"}}
    held = (await town.ask("alice", "POST", f"{API}/tasks", body)).json()["id"]
    claim = {"worker": "w", "types": ["wait"]}
    taken = (await town.ask("worker", "POST", f"{API}/leases", claim)).json()["items"]
    assert [one["task"]["id"] for one in taken] == [held]
    waits = (await town.ask("bob", "POST", f"{API}/tasks", body)).json()["id"]
    nothing = (await town.ask("worker", "POST", f"{API}/leases", claim)).json()["items"]
    assert nothing == [], "it was found to wait"
    told = (await town.ask("bob", "GET", f"{API}/tasks/{waits}/why")).json()
    assert (told["waits_for"], told["holders"]) == ("slots", [])
    assert "taken, by 1 other task;" in told["text"]
    told = (await town.ask("client", "GET", f"{API}/tasks/{waits}/why")).json()
    assert told["holders"] == [held]
    assert f"taken, by {held};" in told["text"]


@pytest.mark.parametrize("path", ["tasks?", "sessions/bobby/tasks?", "queues/dlq?", "workflows?"])
async def test_the_order_of_the_line_tells_of_nobody_else(town: Town, path: str) -> None:
    """Whose task is ahead of which is asked of one's own tasks only."""
    first = {"type": "add", "payload": {"a": 1}, "priority": "critical", "session_id": BOB}
    ahead = (await town.ask("client", "POST", f"{API}/tasks", first)).json()["id"]

    async def asked(who: str, filter: str) -> list[str]:
        reply = await town.ask(who, "GET", f"{API}/{path}q={filter}")
        return [task["id"] for task in reply.json().get("items", ())]

    (hers, _), (his, _), none = town.tasks["alice"], town.tasks["bob"], new_id()
    for who in ("bob", "bob_without_user", "scoped"):
        for sign in ("", "-"):
            unknown = await asked(who, f"{sign}ahead_of:{none}")
            assert await asked(who, f"{sign}ahead_of:{hers}") == unknown
    if path == "tasks?":
        assert await asked("bob", f"ahead_of:{his}") == [ahead]
        assert await asked("bob", f"ahead_of:{hers},{his}") == [ahead]
        assert set(await asked("client", f"ahead_of:{his}")) == {ahead, hers}


async def test_nobody_waits_for_what_they_may_not_see(town: Town) -> None:
    theirs = town.tasks["alice"][0]
    none = theirs[:-12] + "0" * 12
    body = {"type": "add", "payload": {"a": 1}, "queue": "other"}
    answers = []
    for id in (theirs, none):
        one = await town.ask("scoped", "POST", f"{API}/tasks", {**body, "after": [id]})
        batch = {"tasks": [{**body, "after": [id]}]}
        many = await town.ask("scoped", "POST", f"{API}/tasks/batch", batch)
        assert one.status_code == many.status_code == 422
        answers.append((told(one, id), told(many, id)))
    assert answers[0] == answers[1]
    mine = (await town.ask("scoped", "POST", f"{API}/tasks", body)).json()["id"]
    both = {"tasks": [{**body, "id": none}, {**body, "after": [none, mine]}]}
    assert (await town.ask("scoped", "POST", f"{API}/tasks/batch", both)).status_code == 202


async def test_end_users_see_what_went_wrong_and_no_traceback() -> None:
    app, _ = make_app()
    async with serving(app, working=True) as site:
        keys = {
            "bob": await Signer(app.engine).token(BOB),
            "client": (await create_key(app.engine, "client"))[0],
        }
        headers = {who: {"authorization": f"Bearer {text}"} for who, text in keys.items()}
        town = Town(site, headers, {})
        made = await town.ask("bob", "POST", f"{API}/tasks", {"type": "doomed"})
        path = f"{API}/tasks/{made.json()['id']}"
        waiting = {**headers["bob"], "prefer": "wait=30"}
        error = (await site.http.get(path, headers=waiting)).json()["error"]
        assert (error["message"], error["traceback"]) == ("it cannot be", None)
        for place in (path, f"{API}/tasks", f"{API}/sessions/{BOB}/tasks", f"{path}/events"):
            text = (await town.ask("bob", "GET", place)).text
            assert "it cannot be" in text
            assert "Traceback" not in text
        streamed = (await site.http.get(f"{path}/stream", headers=headers["bob"])).text
        assert "it cannot be" in streamed
        assert "Traceback" not in streamed
        for place in (path, f"{path}/events"):
            assert "Traceback" in (await town.ask("client", "GET", place)).text


async def test_nor_of_what_their_workflows_and_calls_died_of() -> None:
    app, _ = make_app()

    @app.task(max_attempts=1)
    async def caller(ctx: Context) -> str:
        with suppress(TaskDead):
            await ctx.call(app.handlers["doomed"])
        return "went on"

    async with serving(app, working=True) as site:
        keys = {
            "bob": await Signer(app.engine).token(BOB),
            "client": (await create_key(app.engine, "client"))[0],
        }
        headers = {who: {"authorization": f"Bearer {text}"} for who, text in keys.items()}
        town = Town(site, headers, {})
        graph = {"name": "w", "nodes": [{"name": "a", "type": "doomed"}]}
        flow = (await town.ask("bob", "POST", f"{API}/workflows", graph)).json()["id"]
        task = (await town.ask("bob", "POST", f"{API}/tasks", {"type": "caller"})).json()["id"]
        for id in (flow, task):
            waiting = {**headers["bob"], "prefer": "wait=30"}
            await site.http.get(f"{API}/tasks/{id}", headers=waiting)
        for place in (f"workflows/{flow}", "workflows", f"tasks/{task}/steps"):
            for who in ("bob", "client"):
                text = (await town.ask(who, "GET", f"{API}/{place}")).text
                assert "it cannot be" in text
                assert ("Traceback" in text) is (who == "client"), place


async def test_what_undoes_their_work_is_not_for_end_users_to_run_or_to_stop() -> None:
    app, _ = make_app()

    @app.task
    async def refund() -> None: ...

    @app.task
    async def order(ctx: Context) -> None:
        await ctx.step("pay", lambda: None, undo=refund)
        await ctx.wait_for("shipped")

    async with serving(app, working=True) as site:
        keys = {
            "bob": await Signer(app.engine).token(BOB),
            "client": (await create_key(app.engine, "client"))[0],
        }
        headers = {who: {"authorization": f"Bearer {text}"} for who, text in keys.items()}
        town = Town(site, headers, {})
        made = (await town.ask("bob", "POST", f"{API}/tasks", {"type": "order"})).json()["id"]
        events = f"{API}/tasks/{made}/events?wait=30&after="
        cursor, seen = "", set[str | None]()
        while "blocked" not in seen:
            page = (await town.ask("bob", "GET", events + cursor)).json()
            seen |= {item["data"].get("status") for item in page["items"]}
            cursor = page["next"]
        [undo] = (await town.ask("bob", "GET", f"{API}/tasks?type=refund")).json()["items"]
        path = f"{API}/tasks/{undo['id']}"
        for verb in ("signal/undo", "cancel"):
            assert (await town.ask("bob", "POST", f"{path}/{verb}", {})).status_code == 403
        assert (await town.ask("bob", "GET", path)).json()["version"] == undo["version"]
        assert (await town.ask("bob", "POST", f"{API}/tasks/{made}/cancel", {})).status_code == 200
        waiting = {**headers["bob"], "prefer": "wait=30"}
        assert (await site.http.get(path, headers=waiting)).json()["status"] == "completed"


async def test_a_key_for_a_queue_follows_the_bulk_that_it_has_begun_and_no_other() -> None:
    app, _ = make_app()
    async with serving(app, working=True) as site:
        made = {
            who: await create_key(app.engine, role, queues=queues)
            for who, role, queues in (
                ("scoped", "operator", ["other"]),
                ("second", "operator", ["other"]),
                ("admin", "admin", []),
            )
        }
        headers = {who: {"authorization": f"Bearer {key}"} for who, (key, _) in made.items()}
        town = Town(site, headers, {})
        task = {"type": "add", "payload": {"a": 1}, "delay": "1h"}
        batch = {"tasks": [{**task, "queue": queue} for queue in ("other", "other", "default")]}
        await town.ask("admin", "POST", f"{API}/tasks/batch", batch)
        ids = []
        for who in ("scoped", "admin"):
            asked = {"action": "cancel", "filter": "age>0s"}
            reply = await town.ask(who, "POST", f"{API}/tasks/bulk", asked)
            ids.append(reply.json()["id"])
            waiting = {**headers[who], "prefer": "wait=30"}
            end = (await site.http.get(f"{API}/tasks/{ids[-1]}", headers=waiting)).json()
            assert end["result"] == {"changed": 2 if who == "scoped" else 1}
        streamed = await site.http.get(f"{API}/tasks/{ids[0]}/stream", headers=headers["scoped"])
        assert "event: done" in streamed.text
        for who, id in (("second", ids[0]), ("scoped", ids[1])):
            foreign = await town.ask(who, "GET", f"{API}/tasks/{id}")
            nothing = await town.ask(who, "GET", f"{API}/tasks/{id[:-12]}{'0' * 12}")
            assert told(foreign, id) == told(nothing, f"{id[:-12]}{'0' * 12}")
            assert foreign.status_code == 404


async def test_a_key_for_a_queue_sees_the_dead_of_that_queue(town: Town) -> None:
    body = {"type": "elsewhere", "payload": {"to": "x"}, "max_attempts": 1}
    ids = {}
    for queue in ("other", "third"):
        made = await town.ask("client", "POST", f"{API}/tasks", {**body, "queue": queue})
        ids[queue] = made.json()["id"]
        claim = {"worker": "w", "queues": [queue]}
        [item] = (await town.ask("worker", "POST", f"{API}/leases", claim)).json()["items"]
        end = f"{API}/leases/{item['lease']}/fail"
        await town.ask("worker", "POST", end, {"error": {"message": f"{queue} failed"}})
    dead = await town.ask("scoped", "GET", f"{API}/queues/dlq")
    assert [task["id"] for task in dead.json()["items"]] == [ids["other"]]
    groups = await town.ask("scoped", "GET", f"{API}/queues/dlq?group_by=fingerprint")
    assert [(one["count"], one["example"]) for one in groups.json()["items"]] == [(1, ids["other"])]
    assert (await town.ask("bob", "GET", f"{API}/queues/dlq")).status_code == 403


async def test_it_takes_no_longer_to_find_what_is_anothers(town: Town) -> None:
    theirs = town.tasks["alice"][0]
    paths = [f"{API}/tasks/{id}" for id in (theirs, theirs[:-12] + "0" * 12)]

    async def told_apart() -> bool:
        spent: dict[str, list[float]] = {path: [] for path in paths}
        for _ in range(50):  # in turns: the machine may be busy
            for path in paths:
                since = perf_counter()
                assert (await town.ask("bob", "GET", path)).status_code == 404
                spent[path].append(perf_counter() - since)
        foreign_s, nothing_s = (median(times) for times in spent.values())
        return abs(foreign_s - nothing_s) >= max(0.25 * nothing_s, 0.000_5)

    # What takes longer does so each time; a machine that is busy may look so now and then.
    assert not all([await told_apart() for _ in range(5)])


def test_the_matrix_is_whole() -> None:
    assert len(SOCKETS) == 3
    assert {f"{API}/tasks/{{task_id}}/ws", f"{API}/events/ws"} <= set(SOCKETS)
    everywhere: list[Any] = _routes()
    assert len(everywhere) == len(ROUTES)
