"""What every request passes: Host, cross-site requests, trailing slashes, headers."""

from __future__ import annotations

import httpx2
import pytest
from fastapi import FastAPI

from outlast.http.api import create_api
from outlast.http.guard import is_loopback

from .site import API, Site, make_app

BODY = {"type": "add", "payload": {"a": 1}}


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:80", "127.0.0.1", "127.9.9.9:1", "[::1]", "[::1]:5278", "x.localhost"],
)
async def test_names_of_this_machine_are_answered(site: Site, host: str) -> None:
    assert (await site.http.get("/livez", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:5278", "127.0.0.1.evil.example", "localhost.evil.example", "",
     "192.168.0.1", "[::1", "localhost@evil.example:x", "notlocalhost"],
)  # fmt: skip
async def test_other_names_that_point_here_are_not(site: Site, host: str) -> None:
    for path in ("/livez", "/", f"{API}/tasks"):
        reply = await site.http.get(path, headers={"host": host})
        assert (reply.status_code, reply.json()["code"]) == (421, "wrong_host")


def test_loopback_is_this_machine_and_nothing_else() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.1.2.3", "::1", "a.localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "", "10.0.0.1", "localhost.")))  # noqa: S104


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 202),
        ({"sec-fetch-site": "same-origin"}, 202),
        ({"sec-fetch-site": "none"}, 202),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "cross-site", "origin": "SELF"}, 403),
        ({"origin": "SELF"}, 202),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
async def test_a_page_of_another_site_changes_nothing(
    site: Site, headers: dict[str, str], status: int
) -> None:
    headers = {name: site.address if value == "SELF" else value for name, value in headers.items()}
    reply = await site.post("/tasks", BODY, headers=headers)
    assert reply.status_code == status
    assert len((await site.get("/tasks", headers=headers)).json()["items"]) == (status == 202)
    assert "access-control-allow-origin" not in reply.headers


async def test_a_trailing_slash_never_matters(site: Site) -> None:
    id = (await site.post("/tasks/", BODY)).json()["id"]
    for path in ("/tasks", f"/tasks/{id}", f"/tasks/{id}/why", "/queues/status", "/types"):
        with_slash, without = await site.get(f"{path}/"), await site.get(path)
        assert (with_slash.status_code, with_slash.history) == (200, []), path
        assert with_slash.json().keys() == without.json().keys()
    assert (await site.post(f"/tasks/{id}/cancel//")).status_code == 200
    assert (await site.http.get(f"{API}/tasks/?limit=1")).status_code == 200


async def test_every_answer_carries_its_headers(site: Site) -> None:
    for path in (
        "/",
        "/docs",
        "/static/docs.js",
        "/openapi.json",
        f"{API}/tasks",
        "/nope",
        "/livez",
    ):
        headers = (await site.http.get(path)).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


async def test_mounted_into_another_application_it_keeps_its_paths() -> None:
    """As a part of a user's own API: that one opens the app, and owns the host name."""
    app, _ = make_app()
    outer = FastAPI()
    outer.mount("/outlast", create_api(app))
    transport = httpx2.ASGITransport(app=outer)
    async with app, httpx2.AsyncClient(transport=transport, base_url="http://my.site") as http:
        reply = await http.post("/outlast/api/v1/tasks/", json=BODY)
        assert reply.status_code == 202
        assert reply.headers["location"] == f"/outlast{API}/tasks/{reply.json()['id']}"
        assert (await http.get(reply.headers["location"])).json()["status"] == "ready"
        assert (await http.get("/outlast/")).status_code == 200


async def test_probes_ask_with_head_or_without_a_host(site: Site) -> None:
    for path in ("/health", "/livez", "/readyz"):
        reply = await site.http.head(path)
        assert (reply.status_code, reply.content) == (200, b""), path
    assert (await site.raw(b"GET /livez HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200")
