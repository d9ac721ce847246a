"""Browsers: logging in with a cookie that no other site can use, and pages of other origins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from outlast.access import create_key, revoke_key
from outlast.core.errors import BadInput
from outlast.core.limits import Limit
from outlast.http.api import create_api
from outlast.http.guard import check_origin

from .site import API, Site, make_app, serving, until

BODY = {"type": "add", "payload": {"a": 1}}
COOKIE = "outlast_login"


@dataclass
class Browser:
    """Somebody who has logged in; the cookie is sent by hand, so that tests can leave it out."""

    site: Site
    key: str
    key_id: str
    cookie: str
    set_cookie: str

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> int:
        told = {"cookie": self.cookie, **{n.replace("_", "-"): v for n, v in headers.items()}}
        reply = await self.site.http.request(method, API + path, json=body, headers=told)
        self.site.http.cookies.clear()
        return reply.status_code


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    app, _ = make_app()
    async with serving(app) as site:
        text, key = await create_key(app.engine, "operator", name="ops")
        reply = await site.post("/login", {"key": text})
        assert reply.json() == {"role": "operator", "name": "ops", "read_only": False}
        set_cookie = reply.headers["set-cookie"]
        site.http.cookies.clear()
        yield Browser(site, text, key.id, set_cookie.partition(";")[0], set_cookie)


async def test_a_login_is_a_cookie_that_scripts_and_other_sites_do_not_get(
    browser: Browser,
) -> None:
    parts = {part.strip().lower() for part in browser.set_cookie.split(";")}
    assert {"httponly", "samesite=strict", "path=/", "max-age=43200"} <= parts
    assert browser.key not in browser.set_cookie
    assert await browser.ask("GET", "/tasks") == 200
    assert await browser.ask("GET", "/login") == 200
    assert (await browser.site.get("/tasks")).status_code == 401
    kept = await browser.site.app.engine.get("login")
    assert browser.cookie.partition("=")[2].encode() not in repr(kept).encode()
    forwarded = {"x-forwarded-proto": "https"}
    reply = await browser.site.post("/login", {"key": browser.key}, headers=forwarded)
    assert "; secure" in reply.headers["set-cookie"].lower()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec_fetch_site": "same-origin"}, 202),
        ({"origin": "SELF"}, 202),
        ({}, 403),  # a cookie alone
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "cross-site", "origin": "SELF"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
async def test_a_page_of_another_site_changes_nothing_with_it(
    browser: Browser, headers: dict[str, str], status: int
) -> None:
    at = browser.site.address
    headers = {name: at if value == "SELF" else value for name, value in headers.items()}
    assert await browser.ask("POST", "/tasks", BODY, **headers) == status
    key = {"authorization": f"Bearer {browser.key}"}
    tasks = (await browser.site.get("/tasks", headers=key)).json()["items"]
    assert len(tasks) == (status == 202)


async def test_another_site_reads_nothing_with_it_either(browser: Browser) -> None:
    for site in ("cross-site", "same-site"):
        assert await browser.ask("GET", "/tasks", sec_fetch_site=site) == 401
    assert await browser.ask("GET", "/tasks", origin="https://evil.example") == 401


async def test_streams_and_sockets_take_the_cookie_from_their_own_origin(browser: Browser) -> None:
    cookie = {"cookie": browser.cookie}
    async with browser.site.http.stream("GET", f"{API}/events", headers=cookie) as reply:
        assert reply.status_code == 200
    address = browser.site.address.replace("http", "ws") + f"{API}/events/ws"
    async with connect(address, additional_headers=cookie, origin=browser.site.address):
        pass
    for origin, status in (("https://evil.example", 403), ("null", 403)):
        with pytest.raises(InvalidStatus) as refused:
            async with connect(address, additional_headers=cookie, origin=origin):
                pass
        assert refused.value.response.status_code == status


async def test_it_ends_with_a_logout(browser: Browser) -> None:
    assert await browser.ask("POST", "/logout", sec_fetch_site="cross-site") == 403
    assert await browser.ask("GET", "/tasks") == 200
    assert await browser.ask("POST", "/logout", sec_fetch_site="same-origin") == 204
    assert await browser.ask("GET", "/tasks") == 401
    assert await browser.ask("POST", "/logout", sec_fetch_site="same-origin") == 204


async def test_it_ends_with_its_key_and_after_half_a_day(browser: Browser) -> None:
    other = await browser.site.post("/login", {"key": browser.key})
    browser.site.http.cookies.clear()

    async def is_out() -> bool:
        return await browser.ask("GET", "/tasks") == 401

    await create_key(browser.site.app.engine, "admin")  # there are keys, whatever happens
    await revoke_key(browser.site.app.engine, browser.key_id)
    await until(is_out)
    browser.cookie = other.headers["set-cookie"].partition(";")[0]
    assert await is_out()


async def test_half_a_day_ends_it(browser: Browser) -> None:
    browser.site.app.engine.skew_ms += 12 * 3_600_000 + 1
    assert await browser.ask("GET", "/tasks") == 401


async def test_wrong_keys_cannot_be_tried_without_bound(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that was right here before goes on; one that is new has to wait, or the answer would
    tell that it is right."""
    monkeypatch.setattr("outlast.http.door._WRONG", Limit("wrong", rate="20/h"))
    site = browser.site
    new, _ = await create_key(site.app.engine, "client")

    async def log_in(key: str) -> int:
        reply = await site.post("/login", {"key": key})
        site.http.cookies.clear()
        return reply.status_code

    assert [await log_in(f"wrong{n}") for n in range(20)] == [401] * 20
    reply = await site.post("/login", {"key": "wrong"})
    assert (reply.status_code, reply.json()["code"]) == (429, "too_many_requests")
    assert 0 < int(reply.headers["retry-after"]) <= 180
    assert [await log_in(key) for key in ("wrong", new, browser.key)] == [429, 429, 200]
    wrong = {"authorization": "Bearer wrong"}
    assert (await site.get("/tasks", headers=wrong)).status_code == 401
    site.app.engine.skew_ms += 3_600_000
    assert await log_in("wrong") == 401
    site.server.config.app.state.door.keyring._read_at = float("-inf")  # type: ignore[union-attr]
    assert await log_in(new) == 200


@pytest.mark.parametrize("key", ["", "olk_nothing", "x" * 5_000])
async def test_no_key_no_login(browser: Browser, key: str) -> None:
    reply = await browser.site.post("/login", {"key": key})
    assert (reply.status_code, "set-cookie" in reply.headers) == (401, False)
    browser.cookie = f"{COOKIE}={key or 'x'}"
    assert await browser.ask("GET", "/tasks") == 401


async def test_without_keys_nobody_needs_to_log_in(site: Site) -> None:
    reply = await site.post("/login", {"key": "anything"})
    assert (reply.json()["role"], "set-cookie" in reply.headers) == ("admin", False)


# Other origins -----------------------------------------------------------------------------------

APP = "https://app.example.com"
PREFLIGHT = {
    "origin": APP,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization, content-type",
}


@pytest.fixture
async def shared() -> AsyncIterator[httpx2.AsyncClient]:
    app, _ = make_app()
    transport = httpx2.ASGITransport(create_api(app, cors=[APP]))
    async with app, httpx2.AsyncClient(transport=transport, base_url="http://api.test") as http:
        text, _ = await create_key(app.engine, "client")
        http.headers["authorization"] = f"Bearer {text}"
        yield http


async def test_an_origin_that_is_named_may_use_the_api(shared: httpx2.AsyncClient) -> None:
    before = await shared.options(f"{API}/tasks", headers=PREFLIGHT)
    assert before.status_code == 204
    assert before.headers["access-control-allow-origin"] == APP
    assert "Authorization" in before.headers["access-control-allow-headers"]
    headers = {"origin": APP, "sec-fetch-site": "cross-site"}
    made = await shared.post(f"{API}/tasks", json=BODY, headers=headers)
    assert made.status_code == 202
    for reply in (before, made):
        assert "access-control-allow-credentials" not in reply.headers
        assert "Origin" in reply.headers["vary"]
    assert "Location" in made.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    "origin",
    ["https://app.example.com.evil.example", "http://app.example.com", "https://app.example.com:1",
     "https://evil.example", "null", "https://sub.app.example.com"],
)  # fmt: skip
async def test_no_other_origin_may(shared: httpx2.AsyncClient, origin: str) -> None:
    before = await shared.options(f"{API}/tasks", headers={**PREFLIGHT, "origin": origin})
    made = await shared.post(f"{API}/tasks", json=BODY, headers={"origin": origin})
    read = await shared.get(f"{API}/tasks", headers={"origin": origin})
    assert (before.status_code, made.status_code) == (405, 403)
    for reply in (before, made, read):
        assert "access-control-allow-origin" not in reply.headers


async def test_an_origin_that_is_named_gets_no_cookies(shared: httpx2.AsyncClient) -> None:
    key = shared.headers.pop("authorization").removeprefix("Bearer ")
    login = await shared.post(f"{API}/login", json={"key": key})
    assert COOKIE in login.cookies
    shared.cookies.clear()
    headers = {"cookie": login.headers["set-cookie"].partition(";")[0], "origin": APP}
    assert (await shared.get(f"{API}/tasks", headers=headers)).status_code == 401
    assert (await shared.post(f"{API}/tasks", json=BODY, headers=headers)).status_code == 401


@pytest.mark.parametrize(
    "origin", ["*", "https://*.example.com", "app.example.com", "https://a.example/", "https://",
               "https://a.example/path", "null", "https://User@a.example", "ftp://a.example", ""],
)  # fmt: skip
def test_only_exact_origins_can_be_named(origin: str) -> None:
    with pytest.raises(BadInput, match="exact origins"):
        check_origin(origin)


async def test_who_am_i_says_that_the_server_is_read_only() -> None:
    api = create_api(make_app()[0], read_only=True)
    transport = httpx2.ASGITransport(api)
    async with (
        api.state.outlast,
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http,
    ):
        assert (await http.get("/api/v1/login")).json()["read_only"] is True
