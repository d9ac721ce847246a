"""Workflows over HTTP: a graph as JSON, looked at, cancelled, taken up again, and refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from outlast import Outlast, Permanent
from outlast.access import Signer, create_key
from outlast.core.model import TaskQuery

from .site import API, Site, serving, until

broken: set[str] = set()


def make_app() -> Outlast:
    app = Outlast("memory://")

    @app.task
    async def fetch(url: str) -> dict[str, object]:
        return {"url": url, "words": ["one", "two", "three"]}

    @app.task
    async def shout(text: str, mark: str = "!") -> str:
        if text in broken:
            raise Permanent(f"{text} is broken")
        return text.upper() + mark

    @app.task
    async def join(parts: list[str | None], name: str = "") -> str:
        return name + "+".join(str(part) for part in parts)

    @app.task
    async def hush(text: str, mark: str = "!") -> None: ...

    app.external("elsewhere", schema={"type": "object", "properties": {"to": {"type": "string"}}})
    return app


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    broken.clear()
    async with serving(make_app(), working=True) as site:
        yield site


@pytest.fixture
async def still() -> AsyncIterator[Site]:
    """Without a worker."""
    async with serving(make_app()) as site:
        yield site


GRAPH: Final[dict[str, Any]] = {
    "name": "ingest",
    "session_id": "s-1",
    "priority": "high",
    "nodes": [
        {  # before what it comes after: the order is free
            "name": "all", "type": "join", "needs": "any",
            "payload": {"parts": [{"$from": "loud"}, {"$from": "each", "path": [2]}], "name": "x"},
        },
        {"name": "page", "type": "fetch", "payload": {"url": "u"}},
        {"name": "loud", "type": "shout", "payload": {"text": {"$from": "page", "path": "url"}},
         "undo": "hush", "options": {"priority": "low", "tags": ["own"]}},
        {"name": "each", "type": "shout", "over": {"$from": "page", "path": "words"},
         "payload": {"mark": "?"}},
        {"name": "never", "type": "shout", "payload": {"text": "n"},
         "when": {"$from": "page", "path": "words.0", "test": "==", "value": "two"}},
    ],
}  # fmt: skip


async def post(site: Site, body: dict[str, Any], **options: Any) -> dict[str, Any]:
    reply = await site.post("/workflows", body, **options)
    assert reply.status_code == 202, reply.text
    flow: dict[str, Any] = reply.json()
    assert reply.headers["location"] == f"{API}/workflows/{flow['id']}"
    return flow


async def over(site: Site, id: str) -> dict[str, Any]:
    """The workflow once it is over."""
    await site.ended(id)
    flow: dict[str, Any] = (await site.get(f"/workflows/{id}")).json()
    return flow


def by_name(flow: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {node["name"]: node for node in flow["nodes"] if node["kind"] != "child"}


async def test_a_graph_is_run_and_drawn(site: Site) -> None:
    made = await post(site, GRAPH)
    assert (made["name"], made["existing"]) == ("ingest", False)
    flow = await over(site, made["id"])
    assert (flow["status"], flow["percent"]) == ("completed", 100)
    assert flow["result"] == {"all": "xU!+THREE?", "never": None}
    assert flow["counts"] == {"completed": 7, "cancelled": 1}
    nodes = by_name(flow)
    assert nodes["page"]["after"] == []
    assert nodes["loud"]["after"] == [nodes["page"]["id"]]
    assert set(nodes["all"]["after"]) == {nodes["loud"]["id"], nodes["each"]["id"]}
    assert nodes["each"]["kind"] == "map"
    assert nodes["each"]["after"] == [nodes["page"]["id"]]
    assert nodes["loud"]["undo"] == "hush"
    assert (nodes["loud"]["priority"], nodes["page"]["priority"]) == (3, 1)
    assert nodes["never"]["reason"] == "skipped"
    assert nodes["never"]["when"] == {
        "id": nodes["page"]["id"], "path": ["words", 0], "test": "==", "value": "two",
    }  # fmt: skip
    children = [node for node in flow["nodes"] if node["kind"] == "child"]
    assert {node["parent_id"] for node in children} == {nodes["each"]["id"]}
    assert len(children) == 3


async def test_lists_are_filtered_and_paged(site: Site) -> None:
    one = {"name": "one", "nodes": [{"name": "a", "type": "shout", "payload": {"text": "a"}}]}
    ids = [(await post(site, {**one, "session_id": f"s-{n % 2}"}))["id"] for n in range(4)]
    broken.add("b")
    dead = {**one, "nodes": [{"name": "b", "type": "shout", "payload": {"text": "b"}}]}
    ids.append((await post(site, dead))["id"])
    for id in ids:
        await site.ended(id)

    async def listed(query: str) -> list[str]:
        reply = await site.get(f"/workflows{query}")
        assert reply.status_code == 200, reply.text
        return [item["id"] for item in reply.json()["items"]]

    assert await listed("") == ids[::-1]
    assert await listed("?status=dead") == ids[4:]
    assert await listed("?status=completed,dead&session_id=s-1") == [ids[3], ids[1]]
    assert await listed("?status=running,undone") == []
    first = (await site.get("/workflows?limit=2")).json()
    assert await listed(f"?limit=2&cursor={first['next']}") == [ids[2], ids[1]]
    for wrong in ("status=gone", "colour=red", "limit=0"):
        reply = await site.get(f"/workflows?{wrong}")
        assert (reply.status_code, reply.json()["field"]) == (422, wrong.partition("=")[0])


def node(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "shout", "payload": {"text": name}, **more}


WRONG: Final[list[tuple[list[Any], str, str]]] = [
    ([], "nodes", "a workflow needs one"),
    ([node("a")] * 10_001, "nodes", "at most 10,000 nodes"),
    ([{"name": "a"}], "nodes[0].type", "a type is needed"),
    ([{"name": "a", "nodes": []}], "nodes[0].nodes", "a workflow needs one"),
    ([{"name": "a", "nodes": [node("b", after="c")]}], "nodes[0].nodes[0].after", "no node 'c'"),
    ([{"name": "a", "type": "shout", "nodes": [node("b")]}], "nodes[0].nodes", "takes no type"),
    (
        [node("a", after="p"), {"name": "p", "nodes": [node("b", when={"$from": "a"})]}],
        "nodes[0].after",
        "comes after itself",
    ),
    ([node("a", after="b"), node("b", after="a")], "nodes[0].after", "'a' comes after itself"),
    ([node("a", after=["a"])], "nodes[0].after", "comes after itself"),
    ([node("page"), node("b", after="pge")], "nodes[1].after", "did you mean 'page'?"),
    ([node("a", payload={"text": {"$from": "b"}})], "nodes[0].payload", "no node 'b'"),
    ([node("a", when={"$from": "b"})], "nodes[0].when", "no node 'b'"),
    ([node("a", over={"$from": "b"}, payload={})], "nodes[0].over", "no node 'b'"),
    ([node("a"), node("a")], "nodes[1].name", "two nodes 'a'"),
    ([node("a", type="shut")], "nodes[0].type", "did you mean 'shout'?"),
    ([node("a", undo="hsh")], "nodes[0].type", "did you mean 'hush'?"),
    ([node("a", undo="join")], "nodes[0].undo", "has no argument 'text'"),
    ([node("a", type="outlast.bulk")], "nodes[0].type", "Outlast's own"),
    ([node("a", payload={"text": 5})], "nodes[0].text", "Expected str"),
    ([node("a", payload={"self": "b"})], "nodes[0].self", "no argument 'self'"),
    ([node("a", payload={"text": {"$from": 5}})], "nodes[0].payload", "a reference is"),
    ([node("a", payload={"text": {"$from": "a", "x": 1}})], "nodes[0].payload", "a reference"),
    ([node("a", colour="red")], "nodes[0]", "unknown field colour"),
    ([node("a", needs="some")], "nodes[0]", "Invalid enum value"),
    ([node("a", options={"unique_key": "k"})], "nodes[0].options", "a node may have"),
    ([node("a", options={"priority": "soon"})], "nodes[0].priority", "priority='soon'"),
    ([node("a", over=[], undo="hush")], "nodes[0].over", "no undo"),
    ([node("a", over=[], payload={}, options={"hold": "go"})], "nodes[0].hold", "not for each"),
    ([node("a"), 5], "nodes", "a list of objects"),
]


async def test_what_is_wrong_is_told_and_nothing_enqueued(still: Site) -> None:
    for nodes, field, words in WRONG:
        reply = await still.post("/workflows", {"name": "wrong", "nodes": nodes})
        assert (reply.status_code, reply.json()["field"]) == (422, field), reply.text
        assert words in reply.json()["detail"]
    for body in (
        {"nodes": [node("a")]},
        {"name": "a"},
        {"name": "a", "nodes": [node("a")], "unique_key": "k"},
        {"name": "a", "nodes": [node("a")], "x": 1},
        {"name": "a", "nodes": [node("a")], "escalate": [{"dead": 1}]},
        {"name": "a", "nodes": [node("a")], "escalate": [{"dead": 1, "stop": True, "x": 1}]},
        {
            "name": "a",
            "nodes": [node("a")],
            "escalate": [{"dead": 1, "spawn": {"type": "outlast.bulk"}}],
        },
    ):
        assert (await still.post("/workflows", body)).status_code == 422
    assert not (await still.app.engine.tasks(TaskQuery())).items


async def test_a_key_makes_it_once(still: Site) -> None:
    headers = {"idempotency-key": '"k1"'}
    first = await post(still, GRAPH, headers=headers)
    again = await post(still, GRAPH, headers=headers)
    assert (again["id"], again["existing"]) == (first["id"], True)
    assert len((await still.app.engine.tasks(TaskQuery.of(workflow_id=first["id"]))).items) == 6
    other = await still.post("/workflows", {**GRAPH, "name": "other"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "mismatch")
    named = {**GRAPH, "id": first["id"]}
    assert (await post(still, named))["existing"] is True
    both = await still.post("/workflows", named, headers=headers)
    assert both.status_code == 422


async def test_types_of_other_programs_take_results(still: Site) -> None:
    nodes = [node("a"), {"name": "b", "type": "elsewhere", "payload": {"to": {"$from": "a"}}}]
    flow = await post(still, {"name": "away", "nodes": nodes})
    assert flow["counts"] == {"ready": 1, "blocked": 1}


async def test_nodes_are_drawn_in_their_order(still: Site) -> None:
    nodes = [node("a")] + [node(f"n{n}", after=f"n{n - 1}" if n else "a") for n in range(9)]
    for key in ("one", "two", "three"):
        headers = {"idempotency-key": key}
        flow = await post(still, {"name": "chain", "nodes": nodes[::-1]}, headers=headers)
        drawn = (await still.get(f"/workflows/{flow['id']}")).json()["nodes"]
        assert [one["name"] for one in drawn] == [one["name"] for one in nodes]


async def test_cancel_all_or_from_a_node(still: Site) -> None:
    nodes = [node("a"), node("b", after="a"), node("c", after="b"), node("d", after="a")]
    flow = await post(still, {"name": "chain", "nodes": nodes})
    path = f"/workflows/{flow['id']}"
    told = (await still.post(f"{path}/cancel", {"from": "b", "reason": "not b"})).json()
    assert told["counts"] == {"ready": 1, "blocked": 1, "cancelled": 2}
    drawn = by_name((await still.get(path)).json())
    assert (drawn["b"]["reason"], drawn["c"]["reason"]) == ("not b", "upstream")
    wrong = await still.post(f"{path}/cancel", {"from": "x"})
    assert (wrong.status_code, wrong.json()["field"]) == (422, "from")
    told = (await still.post(f"{path}/cancel", {})).json()
    assert told["status"] == "cancelled"
    assert (await still.post(f"{path}/cancel")).status_code == 409


async def test_retry_where_it_died_and_from_a_node(site: Site) -> None:
    broken.add("B")
    nodes = [node("a"), node("b", payload={"text": "B", "mark": {"$from": "a"}}),
             node("c", payload={"text": {"$from": "b"}}, when={"$from": "b"})]  # fmt: skip
    made = await post(site, {"name": "dies", "session_id": "s-1", "nodes": nodes})
    flow = await over(site, made["id"])
    assert flow["status"] == "dead"
    assert "'b' died: Permanent: B is broken" in flow["error"]["message"]
    assert by_name(flow)["b"]["error"]["message"] == "B is broken"
    broken.clear()
    path = f"/workflows/{flow['id']}/retry"
    assert (await site.post(path, {})).json()["id"] == flow["id"]
    flow = await over(site, made["id"])
    assert (flow["status"], flow["result"]) == ("completed", "BA!!")
    assert (await site.post(path, {})).status_code == 409
    again = (await site.post(path, {"from": "b"})).json()
    assert (again["origin"], again["session_id"]) == (flow["id"], "s-1")
    second = await over(site, again["id"])
    assert (second["status"], second["result"]) == ("completed", "BA!!")
    assert {n["name"] for n in second["nodes"]} == {"b", "c"}
    assert by_name(second)["b"]["after"] == [by_name(flow)["a"]["id"]]


async def test_undoing_is_drawn(site: Site) -> None:
    broken.add("b")
    nodes = [node("a", undo="hush"), node("b", after="a")]
    made = await post(site, {"name": "saga", "nodes": nodes})
    flow = await over(site, made["id"])
    assert flow["status"] == "undone"
    [undo] = [n for n in flow["nodes"] if n["kind"] == "undo"]
    assert (undo["id"], undo["parent_id"]) == (flow["undo"][0], by_name(flow)["a"]["id"])
    refused = await site.post(f"/workflows/{flow['id']}/retry", {"from": "a"})
    assert refused.status_code == 409


async def test_sessions_see_their_own(still: Site) -> None:
    signer = Signer(still.app.engine)
    who = {
        "ada": await signer.token("s-ada"),
        "bob": await signer.token("s-bob"),
        "typed": await signer.token("s-ada", types=["shout"]),
        "scoped": (await create_key(still.app.engine, "operator", queues=["default"]))[0],
    }
    headers = {name: {"authorization": f"Bearer {text}"} for name, text in who.items()}
    body = {"name": "mine", "nodes": [node("a")]}
    mine = await post(still, body, headers=headers["ada"])
    assert mine["session_id"] == "s-ada"
    path = f"/workflows/{mine['id']}"
    assert (await still.get(path, headers=headers["ada"])).status_code == 200
    for name in ("typed", "scoped"):
        assert (await still.get(path, headers=headers[name])).status_code == 403
        assert (await still.post("/workflows", body, headers=headers[name])).status_code == 403
    for method, where in (("GET", ""), ("POST", "/cancel")):
        reply = await still.http.request(method, API + path + where, headers=headers["bob"])
        assert reply.status_code == 404, where
    assert (await still.get("/workflows", headers=headers["bob"])).json()["items"] == []
    assert len((await still.get("/workflows", headers=headers["ada"])).json()["items"]) == 1
    vip = [node("a", options={"queue": "vip"})]
    for wrong in (
        {"queue": "vip"},
        {"nodes": vip},
        {"nodes": [{"name": "part", "nodes": vip}]},
        {"escalate": [{"dead": 1, "stop": True}]},
    ):
        reply = await still.post("/workflows", {**body, **wrong}, headers=headers["ada"])
        assert reply.status_code == 403, reply.text
    task = (await still.get("/tasks", headers=headers["ada"])).json()["items"][-1]["id"]
    assert (await still.get(f"/workflows/{task}", headers=headers["ada"])).status_code == 404


async def test_an_id_that_is_taken_lets_nothing_in(still: Site) -> None:
    """Else a workflow would get tasks of another graph, which nobody waits for."""
    mine = await post(still, {"name": "mine", "nodes": [node("a")]})
    task = (await still.post("/tasks", {"type": "hush", "payload": {"text": "b"}})).json()
    before = sum(count.n for count in await still.app.engine.count(TaskQuery()))
    other = {"name": "other", "nodes": [node("b")]}
    again = await post(still, {**other, "id": mine["id"]})
    assert (again["existing"], again["name"]) == (True, "mine")
    reply = await still.post("/workflows", {**other, "id": task["id"]})
    assert (reply.status_code, reply.json()["code"]) == (409, "conflict")
    assert "is that of a hush" in reply.json()["detail"]
    assert sum(count.n for count in await still.app.engine.count(TaskQuery())) == before


async def test_work_of_outlasts_own_is_not_enqueued_by_others(still: Site) -> None:
    body = {"type": "outlast.bulk", "payload": {"action": "cancel", "terms": []}}
    reply = await still.post("/tasks", body)
    assert (reply.status_code, reply.json()["field"]) == (422, "type")


async def test_a_node_may_be_a_workflow(site: Site) -> None:
    inside = [
        node("x", payload={"text": {"$from": "a"}}),
        node("y", payload={"text": {"$from": "x"}}),
    ]
    nodes = [
        node("z", payload={"text": {"$from": "part"}}),
        {"name": "part", "nodes": inside, "options": {"priority": "low"}},
        node("a"),
        {"name": "never", "nodes": [node("n")], "when": {"$from": "a", "test": "==", "value": "b"}},
    ]
    flow = await over(site, (await post(site, {"name": "whole", "nodes": nodes}))["id"])
    assert (flow["status"], flow["result"]) == ("completed", {"z": "A!!!!", "never": None})
    drawn = by_name(flow)
    assert {name: one["kind"] for name, one in drawn.items()} == {
        "a": "node", "part": "workflow", "z": "node", "never": "workflow",
    }  # fmt: skip
    part = (await site.get(f"/workflows/{drawn['part']['id']}")).json()
    assert (part["within"], part["result"], part["priority"]) == (flow["id"], "A!!!", 3)
    assert drawn["never"]["when"]["id"] == drawn["a"]["id"]
    assert len((await site.get("/workflows")).json()["items"]) == 1


async def test_rules_of_escalation(site: Site) -> None:
    broken.add("a")
    rule = {
        "dead": 1,
        "notify": "a is broken",
        "spawn": {"type": "shout", "payload": {"text": "x"}},
    }
    body = {"name": "night", "session_id": "s-1", "nodes": [node("a")], "escalate": [rule]}
    flow = await over(site, (await post(site, body))["id"])
    assert flow["counts"] == {"dead": 1}

    async def told() -> bool:
        items = (await site.get("/sessions/s-1/notifications")).json()["items"]
        return "Your night: a is broken" in [item["message"] for item in items]

    await until(told, 30)
    spawned = (await site.get("/tasks?type=shout&session_id=s-1&status=completed")).json()["items"]
    assert [task["parent_id"] for task in spawned] in ([], [flow["id"]])


async def test_a_graph_that_enters_in_pieces_can_be_repeated_too(still: Site) -> None:
    nodes = [node(f"n{n}") for n in range(1_200)]
    flow = await post(still, {"name": "large", "nodes": nodes}, headers={"idempotency-key": "big"})
    assert sum(flow["counts"].values()) == 1_200
    again = await post(still, {"name": "large", "nodes": nodes}, headers={"idempotency-key": "big"})
    assert (again["id"], again["existing"]) == (flow["id"], True)
    assert sum(again["counts"].values()) == 1_200
