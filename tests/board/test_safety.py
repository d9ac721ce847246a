"""What the page must bear: hostile text in every field, any path, little room, a screen reader."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx2
import pytest
from fastapi import FastAPI
from playwright.async_api import Browser, Page, expect

from outlast import Outlast
from outlast.http import pages
from outlast.http.api import create_api
from outlast.http.serve import Server, listen
from tests.http.site import Site, until

from . import chromium
from .conftest import Opened

ROOT: Final = Path(__file__).resolve().parents[2]
AXE: Final = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
CORPUS: Final = (
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<svg/onload=window.pwned=1>",
    '"><iframe srcdoc="<script>parent.pwned=1</script>">',
    "javascript:window.pwned=1//",
    "{{constructor.constructor('window.pwned=1')()}}",
    "</textarea><script>window.pwned=1</script>",
    "]]><!--<script>window.pwned=1</script>",
    "\u202e<b onmouseover=window.pwned=1>gpj.exe",
    "<style>@import 'http://127.0.0.1:1/x'</style><a href=javascript:window.pwned=1>x</a>",
)
SCREENS: Final = (
    "/", "/tasks", "/failures", "/approvals", "/queues", "/limits", "/workflows", "/schedules",
    "/types", "/types?type=draw", "/sessions", "/sessions?session=s-1", "/workers", "/usage",
    "/webhooks", "/settings",
)  # fmt: skip


async def filled(site: Site, text: str = "x") -> dict[str, str]:
    """Something on every screen, with the text wherever a task can carry one; the tasks' ids."""
    name = text[:200]
    told = {"session_id": name, "user_id": name, "tags": [name], "unique_key": name}
    draw = await site.enqueue("draw", {"prompt": text, "style": text}, **told)
    dead = await site.enqueue("fails", {"note": text, "mended": False}, tags=[name])
    asks = await site.enqueue("cautious", {"folder": text})
    streams = await site.enqueue("summarize", {"content": f"{text} {text}"})
    await site.enqueue("spends", {"prompt": text}, user_id=name)
    for task in (draw, dead, streams):
        await site.ended(task["id"])
    queued = await site.enqueue("draw", {"prompt": "x"}, queue=name, delay="1h")
    await site.post(f"/tasks/{queued['id']}/cancel", {"reason": name})
    await site.http.put("/api/v1/limits/" + httpx2.URL(path=f"/{name}").path[1:], json={"slots": 1})
    hourly = {"name": name, "type": "draw", "payload": {"prompt": text}, "every": "1h"}
    await site.post("/schedules", hourly)
    node = {"name": name, "type": "draw", "payload": {"prompt": text}}
    flow = (await site.post("/workflows", {"name": name, "nodes": [node]})).json()

    async def asked() -> bool:
        return bool((await site.get("/approvals")).json()["items"])

    await until(asked, 30)
    ids = {"draw": draw, "dead": dead, "asks": asks, "streams": streams, "cancelled": queued}
    return {**{key: task["id"] for key, task in ids.items()}, "flow": flow["id"]}


async def worked(site: Site, text: str) -> list[str]:
    """What a worker over HTTP, a handler and a webhook's subscriber may say; the tasks' ids."""
    name = text[:100]
    node = {"name": "one", "type": "elsewhere", "payload": {}}
    await site.post("/workflows", {"name": "by others", "nodes": [node]})
    ask = {"worker": name, "types": ["elsewhere"], "queues": ["default"], "max": 1, "wait": 20}
    [item] = (await site.post("/leases", ask)).json()["items"]
    lease = f"/leases/{item['lease']}"
    progress = {"percent": 7, "message": name, "data": {text: [text]}}
    assert (await site.post(f"{lease}/progress", progress)).status_code == 200
    for chunk in (text, {text: text}):
        assert (await site.post(f"{lease}/emit", {"chunk": chunk})).status_code == 200
    error = {"type": name, "message": text, "details": {text: text}, "traceback": text}
    assert (await site.post(f"{lease}/fail", {"error": error, "retry": False})).status_code == 200
    says = (await site.enqueue("says", {"text": text}))["id"]
    await site.post(f"/tasks/{says}/signal/{quote(name, safe='')}", {"text": text})
    await site.ended(says)
    hook = {"url": f"https://example.com/{text}?{text}", "filter": "type:nobody"}
    await site.post("/webhooks", hook)
    return [item["task"]["id"], says]


async def settled(page: Page) -> None:
    """What the screen reads has come."""
    await expect(page.locator("main h1").first).to_be_attached()
    await expect(page.locator(".loading")).to_have_count(0)


async def test_hostile_text_in_every_field_is_only_text(site: Site, opened: Opened) -> None:
    text = " ".join(CORPUS)
    ids = await filled(site, text)
    for one in CORPUS:
        name = one.replace("\u202e", "")  # names are printable
        await site.enqueue("elsewhere", {one: one}, tags=[name], queue=name, delay="1h")
    told = [id for one in CORPUS for id in await worked(site, one.replace("\u202e", ""))]
    page = await opened("/")
    tasks = [f"/tasks/{id}" for id in (*told, *(ids[name] for name in ids if name != "flow"))]
    flow = f"/workflows/{ids['flow']}"
    for screen in (*SCREENS, *tasks, flow, "/tasks?q=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"):
        await page.goto(f"/#{screen}")
        await settled(page)
        assert await page.evaluate("window.pwned") is None, screen
        assert await page.locator("main :is(script, iframe, img, style)").count() == 0, screen
        links = await page.evaluate("[...document.links].map((one) => one.protocol)")
        assert set(links) == {"http:"}, screen
    await expect(page.get_by_role("alert")).to_contain_text("There is no filter 'src'")
    await page.goto("/#/tasks?q=type%3Afails")
    await expect(page.locator("main")).to_contain_text("<img src=x")  # it is there to be seen
    ask = await opened(path="/ask", screen="")
    await ask.get_by_role("combobox", name="What").select_option("summarize")
    await ask.get_by_role("textbox", name="Text").fill(text)
    await ask.get_by_role("button", name="Start").click()
    await expect(ask.get_by_role("region", name="Answer")).to_contain_text("ONERROR")
    assert await ask.evaluate("window.pwned") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious(scheme: str, site: Site, opened: Opened) -> None:
    ids = await filled(site)
    page = await opened("/", color_scheme=scheme, bypass_csp=True)
    await page.add_script_tag(content=AXE.read_text())
    screens = [*SCREENS, f"/tasks/{ids['dead']}", f"/tasks/{ids['asks']}"]
    for screen in (*screens, f"/workflows/{ids['flow']}"):
        await page.goto(f"/#{screen}")
        await settled(page)
        assert await serious(page, scheme) == [], screen
    ask = await opened(path="/ask", screen="", color_scheme=scheme, bypass_csp=True)
    await expect(ask.get_by_text("Nothing yet.")).to_be_visible()
    await ask.add_script_tag(content=AXE.read_text())
    assert await serious(ask, scheme) == []


async def serious(page: Page, scheme: str) -> list[str]:
    """In the dark only colours differ."""
    only = "runOnly: ['color-contrast']," if scheme == "dark" else ""
    found: dict[str, Any] = await page.evaluate(
        f"axe.run(document, {{ {only} resultTypes: ['violations'] }})"
    )
    return [
        f"{one['id']}: {node['html'][:200]} {node['failureSummary']}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("width", [380, 1280])
async def test_nothing_is_wider_than_the_screen(width: int, site: Site, opened: Opened) -> None:
    ids = await filled(site, "a-word-that-is-much-too-long-to-fit-" * 5)
    page = await opened("/", viewport={"width": width, "height": 800})
    for screen in (*SCREENS, *(f"/tasks/{ids[name]}" for name in ("draw", "dead", "asks"))):
        await page.goto(f"/#{screen}")
        await settled(page)
        wider = await page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert wider <= 0, screen
    if width == 380:
        await page.get_by_role("button", name="Menu").click()
        await page.get_by_role("link", name="Queues").click()
        await expect(page.get_by_role("heading", name="Queues")).to_be_visible()


async def test_it_works_under_any_path(site: Site, opened: Opened) -> None:
    async with mounted(site.app, "/a/b") as address:
        page = await opened("/", path="/a/b/", address=address)
        await expect(page.locator("[data-live]")).to_have_attribute("data-live", "live")
        await page.get_by_role("link", name="Types").click()
        await page.get_by_role("button", name="draw").click()
        await page.get_by_label("prompt").fill("far away")
        await page.get_by_role("button", name="Enqueue").click()
        await expect(page.get_by_role("region", name="Result")).to_contain_text("far away")
        assert page.url.startswith(f"{address}/a/b/#/tasks/")
        await page.goto("/a/b/ask")
        await expect(page.get_by_role("heading", name="What shall be done?")).to_be_visible()
        await page.context.close()


async def test_it_works_over_plain_http_from_another_machine(site: Site, browser: Browser) -> None:
    """Where a browser keeps some of its functions back, as it does for all but HTTPS and
    loopback."""
    async with mounted(site.app, "/a/b", loopback_only=False) as address:
        there = address.replace("127.0.0.1", chromium.ELSEWHERE)
        page = await browser.new_page(base_url=there)  # its console is to complain of plain HTTP
        await page.goto("/a/b/#/types?type=draw")
        assert await page.evaluate("isSecureContext") is False
        await page.get_by_label("prompt").fill("over there")
        await page.get_by_role("button", name="Enqueue").click()
        await expect(page.get_by_role("region", name="Result")).to_contain_text("over there")
        await page.goto("/a/b/ask")
        await page.get_by_role("combobox", name="What").select_option("summarize")
        await page.get_by_role("textbox", name="Text").fill("plain words")
        await page.get_by_role("button", name="Start").click()
        await expect(page.get_by_role("region", name="Answer")).to_contain_text("PLAIN WORDS")
        await page.close()


@asynccontextmanager
async def mounted(app: Outlast, path: str, loopback_only: bool = True) -> AsyncIterator[str]:
    outer = FastAPI()
    outer.mount(path, create_api(app, loopback_only=loopback_only))
    listener = listen("127.0.0.1", 0)
    server = Server(create_api(app))
    server.config.app = outer
    server.config.load()
    running = asyncio.create_task(server.serve([listener]))
    try:
        await until(lambda: server.started)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


async def test_a_screen_that_cannot_be_loaded_leaves_the_others(
    site: Site, browser: Browser
) -> None:
    """As after an upgrade of the server, whose files have other names."""
    page = await browser.new_page(base_url=site.address)  # its console is to complain
    await page.goto("/")
    await expect(page.get_by_role("heading", name="Needs you")).to_be_visible()
    await page.route("**/assets/Queues-*.js", lambda route: route.abort())
    await page.get_by_role("link", name="Queues", exact=True).click()
    await expect(page.get_by_role("alert")).to_contain_text("Queues-")
    await page.get_by_role("link", name="Limits", exact=True).click()
    await expect(page.get_by_role("region", name="Definitions of limits")).to_be_visible()
    await page.unroute("**/assets/Queues-*.js")
    await page.get_by_role("link", name="Queues", exact=True).click()
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_text("No queue yet")).to_be_visible()
    await page.close()


async def test_files_are_packed_and_kept_for_ever(site: Site) -> None:
    html = (await site.http.get("/")).text
    script = next(part for part in html.split('"') if part.endswith(".js"))
    plain = await site.http.get(script, headers={"accept-encoding": "identity"})
    packed = await site.http.get(script, headers={"accept-encoding": "gzip"})
    assert packed.content == plain.content
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(plain.content) / 2
    for reply in (plain, packed):
        assert reply.headers["content-type"].startswith("text/javascript")
        assert "immutable" in reply.headers["cache-control"]
        assert reply.headers["x-content-type-options"] == "nosniff"
    assert "no-store" in (await site.http.get("/")).headers["cache-control"]
    assert (await site.http.get("/assets/../api.py")).status_code == 404


async def test_without_the_dashboard_one_sentence_says_so(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pages, "BOARD", tmp_path)
    for path in ("/", "/ask"):
        reply = await site.http.get(path)
        assert "the dashboard is not built here" in reply.text
    assert not pages.is_built()
    assert json.loads((await site.http.get("/livez")).text) == {"status": "alive"}
