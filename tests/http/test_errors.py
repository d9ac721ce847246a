"""Bad input: every error is a problem that says what is wrong, and changes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from outlast.core.model import TaskQuery
from outlast.http.body import MAX_BATCH_BODY, MAX_BODY

from .site import API, Site, make_app, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

GHOST = "01890a5d-ac96-774b-bcce-b302099a8057"
OK = {"type": "add", "payload": {"a": 1}}
JSON = {"content-type": "application/json"}


def is_problem(reply: httpx2.Response, status: int, code: str, field: str | None = None) -> None:
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    told = reply.json()
    assert told["status"] == status
    assert told["type"] == f"urn:outlast:{code}"
    assert told["code"] == code
    assert told["title"] and told["detail"]
    assert told.get("field") == field
    assert "Traceback" not in reply.text


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[Site]:
    """One server for them all: what is refused leaves nothing behind."""
    app, _ = make_app()
    async with serving(app) as site:
        yield site


@asynccontextmanager
async def unchanged(site: Site) -> AsyncIterator[None]:
    """Nothing is stored meanwhile."""
    before = await site.app.engine.count(TaskQuery())
    yield
    assert await site.app.engine.count(TaskQuery()) == before


# The form ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"nope",
        b'{"type": "add",}',
        b'{"type": "add"} x',
        b'{"type": "\xff"}',
        b'{"type": "\\ud800"}',
        b'"' + b"\\" * 1001,
        b"\x00",
    ],
)
async def test_what_is_no_json_is_refused(site: Site, body: bytes) -> None:
    async with unchanged(site):
        reply = await site.http.post(f"{API}/tasks", content=body, headers=JSON)
    is_problem(reply, 400, "bad_json")


@pytest.mark.parametrize("body", [b"[]", b"1", b'"add"', b"null", b"[{}]"])
async def test_a_body_that_is_no_object_is_refused(site: Site, body: bytes) -> None:
    reply = await site.http.post(f"{API}/tasks", content=body, headers=JSON)
    is_problem(reply, 422, "bad_input")


@pytest.mark.parametrize("path", ["/tasks", "/tasks/batch", "/tasks/summarize"])
async def test_no_body_is_an_empty_object(site: Site, path: str) -> None:
    reply = await site.post(path)
    assert reply.status_code == 422
    assert reply.json()["field"] in ("type", "tasks", "content")


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
@pytest.mark.parametrize("place", ["body", "payload", "option", "batch", "signal"])
async def test_deep_json_is_refused(site: Site, opening: bytes, place: str) -> None:
    deep = opening * 100_000
    id = (await site.enqueue("add", {"a": 1}))["id"]
    path, content = {
        "body": ("/tasks", deep),
        "payload": ("/tasks", b'{"type":"add","payload":%b' % deep),
        "option": ("/tasks", b'{"type":"add","tags":%b' % deep),
        "batch": ("/tasks/batch", b'{"tasks":[{"type":"add","payload":%b' % deep),
        "signal": (f"/tasks/{id}/signal/x", deep),
    }[place]
    reply = await site.http.post(API + path, content=content, headers=JSON)
    assert reply.status_code in (400, 422), reply.text
    assert (await site.http.get("/livez")).status_code == 200


async def test_nesting_has_a_bound_for_well_formed_json_too(site: Site) -> None:
    fine = json.loads("[" * 60 + "]" * 60)
    await site.enqueue("elsewhere", {"to": fine})
    for value in (b"[" * 70 + b"]" * 70, b"[" * 500 + b"]" * 500):
        content = b'{"type":"elsewhere","payload":{"to":%b}}' % value
        reply = await site.http.post(f"{API}/tasks", content=content, headers=JSON)
        is_problem(reply, 422, "bad_input")
        assert "deep" in reply.json()["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
async def test_bodies_are_json_and_say_so(site: Site, headers: dict[str, str]) -> None:
    content = json.dumps(OK).encode()
    async with unchanged(site):
        reply = await site.http.post(f"{API}/tasks", content=content, headers=headers)
    is_problem(reply, 415, "not_json")


@pytest.mark.parametrize(
    "type", ["application/json; charset=UTF-8", "application/merge-patch+json", None]
)
async def test_json_has_several_names(site: Site, type: str | None) -> None:
    headers = {} if type is None else {"content-type": type}
    reply = await site.http.post(f"{API}/tasks", content=json.dumps(OK).encode(), headers=headers)
    assert reply.status_code == 202


# The size ----------------------------------------------------------------------------------------


async def test_a_payload_may_have_a_mebibyte_and_no_byte_more(site: Site) -> None:
    room = 1_048_576 - len('{"content":""}')
    reply = await site.post("/tasks", {"type": "summarize", "payload": {"content": "x" * room}})
    assert reply.status_code == 202
    # httpx writes compact JSON, so one character more is one byte more.
    reply = await site.post(
        "/tasks", {"type": "summarize", "payload": {"content": "x" * (room + 1)}}
    )
    is_problem(reply, 413, "too_large")


async def test_a_body_above_the_bound_is_refused(site: Site) -> None:
    for path, most in (("/tasks", MAX_BODY), ("/tasks/batch", MAX_BATCH_BODY)):
        reply = await site.http.post(API + path, content=b" " * (most + 1), headers=JSON)
        is_problem(reply, 413, "too_large")


async def test_content_length_is_not_trusted(site: Site) -> None:
    """A chunked body tells no length; it is cut off when it has become too long."""

    async def endless() -> Any:
        for _ in range(200):
            yield b" " * 65_536

    reply = await site.http.post(f"{API}/tasks", content=endless(), headers=JSON)
    is_problem(reply, 413, "too_large")


async def test_a_body_that_announces_too_much_is_refused_before_it_comes(site: Site) -> None:
    head = b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    answer = await site.raw(head + b"Content-Length: 99999999999999999999\r\n\r\n")
    assert answer.startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 400 "))
    answer = await site.raw(head + b"Content-Length: 999999999999\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")


# The content -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"priority": "urgent"}, "priority"),
        ({"priority": -1}, "priority"),
        ({"priority": 32768}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"priority": True}, "priority"),
        ({"delay": "soon"}, "delay"),
        ({"delay": -1}, "delay"),
        ({"delay": 1e300}, "delay"),
        ({"run_at": "tomorrow"}, "run_at"),
        ({"run_at": "2027-01-01T00:00:00"}, "run_at"),
        ({"run_at": "2027-01-01T00:00:00Z", "delay": 1}, "run_at"),
        ({"queue": ""}, "queue"),
        ({"queue": "x" * 201}, "queue"),
        ({"queue": "a\nb"}, "queue"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": "3"}, "max_attempts"),
        ({"timeout": 0}, "timeout"),
        ({"unique_for": "1h"}, "unique_for"),
        ({"tags": "x"}, "tags"),
        ({"tags": ["x" * 201]}, "tags"),
        ({"tags": [str(n) for n in range(51)]}, "tags"),
        ({"id": "7"}, "id"),
        ({"after": ["7"]}, "id"),
        ({"after": [GHOST]}, "after"),
        ({"needs": "luck"}, "needs"),
        ({"hold": 1}, "hold"),
        ({"session_id": {"$ne": 1}}, "session_id"),
        ({"followed": "yes"}, "followed"),
        ({"within": 1}, "within"),
        ({"prioriti": 1}, "prioriti"),
        ({"state": "completed"}, "state"),
        ({"type": ""}, "type"),
        ({"type": 7}, "type"),
        ({"type": None}, "type"),
        ({"payload": {}}, "$.a"),
        ({"payload": {"a": "1"}}, "$.a"),
        ({"payload": {"a": 1, "c": 1}}, "$.c"),
        ({"payload": [1]}, "$"),
        ({"payload": None}, "$"),
    ],
)
async def test_what_is_wrong_is_named(site: Site, wrong: dict[str, Any], field: str) -> None:
    async with unchanged(site):
        reply = await site.post("/tasks", {**OK, **wrong})
    is_problem(reply, 422, "bad_input", field)


async def test_a_near_miss_gets_a_suggestion(site: Site) -> None:
    reply = await site.post("/tasks", {**OK, "prioriti": 1})
    assert "did you mean 'priority'?" in reply.json()["detail"]
    reply = await site.post("/tasks", {"type": "sumarize", "payload": {}})
    is_problem(reply, 422, "unknown_type")
    assert "did you mean 'summarize'?" in reply.json()["detail"]


@pytest.mark.parametrize("key", ["", "x" * 201, "a\tb"])
async def test_an_idempotency_key_is_a_short_text(site: Site, key: str) -> None:
    reply = await site.post("/tasks", OK, headers={"idempotency-key": key})
    is_problem(reply, 422, "bad_input", "Idempotency-Key")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=ten", "limit"),
        ("limit=-1", "limit"),
        ("limit=9" + "9" * 5000, "limit"),
        ("status=failed", "status"),
        ("status=dead,nope", "status"),
        ("cursor=nonsense", "cursor"),
        ("cursor=" + "9" * 100, "cursor"),
        ("stat=dead", "stat"),
    ],
)
async def test_a_filter_that_makes_no_sense_is_refused(site: Site, query: str, field: str) -> None:
    for path in ("/tasks", "/queues/dlq"):
        reply = await site.http.get(f"{API}{path}?{query}")
        is_problem(reply, 422, "bad_input", field)


@pytest.mark.parametrize("text", ["'; drop table task; --", '{"$ne": 1}', "%", "\\", "💣"])
async def test_filters_are_values_and_never_code(site: Site, text: str) -> None:
    async with unchanged(site):
        await _filter_by(site, text)


async def _filter_by(site: Site, text: str) -> None:
    for name in ("type", "queue", "session_id", "user_id", "tag", "workflow_id"):
        reply = await site.get("/tasks", params={name: text})
        assert (reply.status_code, reply.json()["items"]) == (200, []), name
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    for filter in (quoted, f"tag:{quoted}", f"payload.a:{quoted}"):
        reply = await site.get("/tasks", params={"q": filter})
        assert (reply.status_code, reply.json()["items"]) == (200, []), filter
    assert (await site.get("/tasks", params={"q": text})).status_code in (200, 422)


# The place ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", [GHOST, "nonsense", "1", "..%2f..%2fetc", "a" * 500, "%00"])
async def test_an_unknown_task_is_not_found_whatever_is_asked_of_it(site: Site, id: str) -> None:
    for method, path in (
        ("GET", ""),
        ("GET", "/why"),
        ("GET", "/stream"),
        ("POST", "/retry"),
        ("POST", "/cancel"),
        ("POST", "/signal/x"),
        ("DELETE", ""),
    ):
        reply = await site.http.request(method, f"{API}/tasks/{id}{path}")
        is_problem(reply, 404, "not_found")


async def test_an_unknown_path_is_a_problem_too(site: Site) -> None:
    for path in (
        "/nope",
        f"{API}/nope",
        f"{API}/tasks/x/y/z",
        "/static/nope.js",
        "/static/../api.py",
    ):
        is_problem(await site.http.get(path), 404, "not_found")


async def test_a_wrong_method_says_which_ones_are_right(site: Site) -> None:
    reply = await site.http.patch(f"{API}/tasks")
    is_problem(reply, 405, "method_not_allowed")
    assert reply.headers["allow"] == "GET, POST"
    reply = await site.http.put(f"{API}/tasks/{GHOST}")
    assert reply.headers["allow"] == "DELETE, GET"
    is_problem(await site.http.post("/health"), 405, "method_not_allowed")


@pytest.mark.parametrize("body", [{"reason": ""}, {"reason": 1}, {"reason": "x" * 300}, {"why": 1}])
async def test_a_cancel_takes_a_short_reason_and_nothing_else(site: Site, body: Any) -> None:
    id = (await site.enqueue("add", {"a": 1}))["id"]
    reply = await site.post(f"/tasks/{id}/cancel", body)
    is_problem(reply, 422, "bad_input", next(iter(body)))
    assert (await site.task(id))["status"] == "ready"


# The wire ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: many\r\n\r\n{}",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 2_000 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
    ],
)
async def test_what_is_no_http_or_has_no_end_is_refused(site: Site, data: bytes) -> None:
    answer = await site.raw(data)
    assert answer.startswith(b"HTTP/1.1 400 ")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    assert json.loads(body)["code"] == "bad_http"
    assert (await site.http.get("/livez")).status_code == 200


async def test_a_body_that_ends_early_harms_nobody(site: Site) -> None:
    head = b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    async with unchanged(site):
        _, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(head + b'Content-Length: 100\r\n\r\n{"type"')
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert (await site.http.get("/livez")).status_code == 200


# The engine --------------------------------------------------------------------------------------


async def test_an_engine_that_is_down_is_said_so_everywhere(tmp_path: Path) -> None:
    app, _ = make_app(f"sqlite:///{tmp_path / 'tasks.db'}")
    async with serving(app) as site:
        id = (await site.enqueue("add", {"a": 1}))["id"]
        await app.engine.close()
        for reply in (
            await site.post("/tasks", OK),
            await site.get("/tasks"),
            await site.get(f"/tasks/{id}"),
            await site.get(f"/tasks/{id}/stream"),
            await site.post(f"/tasks/{id}/cancel"),
            await site.get("/queues/status"),
            await site.http.get("/readyz"),
        ):
            is_problem(reply, 503, "engine_down")
            assert reply.headers["retry-after"]
        health = await site.http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "unhealthy")
        assert health.json()["components"]["engine"]["status"] == "down"
        assert (await site.http.get("/livez")).status_code == 200
        await app.engine.open()
        assert (await site.task(id))["status"] == "ready"


async def test_an_unexpected_error_tells_nothing_to_the_client(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("outlast.ops.queues_status", broken)
    reply = await site.get("/queues/status")
    is_problem(reply, 500, "unexpected")
    assert "secret" not in reply.text
    assert "secret" in caplog.text
