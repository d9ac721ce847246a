"""Pictures of the dashboard: every screen, light and dark, on a desktop and on a phone.

A Chromium that is installed is driven by Playwright; the screens are those that the dashboard
itself names, and what the still life has put up beside them.
"""

from __future__ import annotations

import asyncio
import shutil
from base64 import b64decode
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outlast.core.errors import Unsupported
from outlast.demo.still import ASKER, Places

if TYPE_CHECKING:
    from playwright.async_api import Browser, CDPSession, Page, Route

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
SIZES: Final = {"desktop": (1280, 800), "phone": (380, 800)}
TALLEST: Final = 1_600
"""A screen that is longer than its window is shown as a longer window would, up to here."""
QUALITY: Final = 70
PATIENCE_MS: Final = 30_000
DRAWN: Final = (
    "() => document.fonts.ready.then(() =>"
    " new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))))"
)
SCREENS: Final = (
    "links => Object.fromEntries("
    "links.map(link => [link.textContent.toLowerCase(), link.getAttribute('href')]))"
)
TALL: Final = "document.documentElement.scrollHeight"
TASK: Final = "#/tasks/"
RUNNING: Final = "#/tasks?q=status%3Arunning%20type%3Asummarize"
REMEMBERED: Final = f"localStorage.setItem('outlast.ask.session', '{ASKER}')"


def browser() -> str:
    """The path of a Chromium, if pictures can be taken here."""
    from outlast.http import pages

    if not pages.is_built():
        raise Unsupported(f"There is nothing to take pictures of. {pages.UNBUILT}")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None or find_spec("playwright") is None:
        raise Unsupported(
            "--shots needs a Chromium on the PATH and Playwright, which drives it: install Chromium"
            " as your system does, then pip install playwright."
        )
    return path


async def shoot(path: str, address: str, places: Places, folder: Path) -> int:
    """A picture of each screen and of these places, into the folder; how many."""
    from playwright.async_api import async_playwright

    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    taken = 0
    async with async_playwright() as driver:
        chromium = await driver.chromium.launch(executable_path=path)
        for size in SIZES:
            for theme in ("light", "dark"):
                album = await _Album.opened(chromium, theme, size, folder)
                taken += await album.fill(address, places)
        await chromium.close()
    return taken


class _Album:
    """The pictures of one theme and one size."""

    def __init__(self, page: Page, camera: CDPSession, mark: str, size: str, folder: Path) -> None:
        self._page = page
        self._camera = camera
        self._mark = mark
        self._width, self._height = SIZES[size]
        self._folder = folder
        self._taken = 0

    @classmethod
    async def opened(cls, chromium: Browser, theme: str, size: str, folder: Path) -> _Album:
        width, height = SIZES[size]
        page = await chromium.new_page(
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
            reduced_motion="reduce",
        )
        camera = await page.context.new_cdp_session(page)
        return cls(page, camera, f"{theme}-{size}", size, folder)

    async def fill(self, address: str, places: Places) -> int:
        page = self._page
        await page.add_init_script(REMEMBERED)
        await page.goto(f"{address}/")
        await self._settled()
        screens = await page.eval_on_selector_all("nav a[href^='#']", SCREENS)
        for name, place in {**screens, **places}.items():
            await self._go(place)
            await self._take(name)
        await self._go(RUNNING)
        await page.locator("tbody a.id").first.click()
        await page.get_by_role("region", name="Stream").wait_for()
        await self._take("task")
        await page.goto(f"{address}/ask")
        await page.get_by_role("region", name="Answer").wait_for()
        await self._take("ask")
        await page.route("**/api/v1/queues/status", _fail)
        await page.goto(f"{address}/#/queues")
        await self._take("queues-failed")
        await page.route("**/api/v1/login", _refuse)
        await page.goto(f"{address}/")
        await self._take("login")
        await page.close()
        return self._taken

    async def _go(self, place: str) -> None:
        await self._page.evaluate("place => { location.hash = place }", place)
        if place.startswith(TASK):
            await self._page.locator("ol.log li").first.wait_for()  # its stream was read

    async def _take(self, name: str) -> None:
        page = self._page
        await self._settled()
        tall = min(max(await page.evaluate(TALL), self._height), TALLEST)
        await self._window(tall)
        options = {"format": "webp", "quality": QUALITY}
        image = await self._camera.send("Page.captureScreenshot", options)
        to = self._folder / f"{name}-{self._mark}.webp"
        await asyncio.to_thread(to.write_bytes, b64decode(image["data"]))
        await self._window(self._height)
        self._taken += 1

    async def _window(self, height: int) -> None:
        await self._page.set_viewport_size({"width": self._width, "height": height})
        await self._page.evaluate(DRAWN)

    async def _settled(self) -> None:
        """The screen is there, with what it reads."""
        from playwright.async_api import expect

        await self._page.evaluate(DRAWN)
        await self._page.locator("main h1, main .empty").first.wait_for()
        loading = self._page.locator("main .loading")
        await expect(loading).to_have_count(0, timeout=PATIENCE_MS)
        await self._page.evaluate(DRAWN)


async def _fail(route: Route) -> None:
    """As a server does whose engine is down."""
    told = {"detail": "The engine does not answer.", "status": 503, "code": "engine_down"}
    await route.fulfill(status=503, json=told, content_type="application/problem+json")


async def _refuse(route: Route) -> None:
    """As a server with keys does with whoever has none: the demo has none, to be open to all."""
    await route.fulfill(status=401, json={"title": "Unauthorized", "status": 401})
