"""Pictures of the dashboard: every screen, light and dark, on a desktop and on a phone.

A Chromium that is installed is driven by Playwright; the screens are those that the dashboard
itself names.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outlast.core.errors import Unsupported
from outlast.core.model import TaskId

if TYPE_CHECKING:
    from playwright.async_api import Page

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
SIZES: Final = {"desktop": (1280, 800), "phone": (380, 800)}
DRAWN: Final = (
    "() => document.fonts.ready.then(() =>"
    " new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))))"
)
SCREENS: Final = (
    "links => links.map(link => [link.textContent.toLowerCase(), link.getAttribute('href')])"
)


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


async def shoot(path: str, address: str, task: TaskId, folder: Path) -> int:
    """A picture of each screen, and of this task, into the folder; how many."""
    from playwright.async_api import async_playwright

    taken = 0
    async with async_playwright() as driver:
        chromium = await driver.chromium.launch(executable_path=path)
        for size, (width, height) in SIZES.items():
            for theme in ("light", "dark"):
                page = await chromium.new_page(
                    viewport={"width": width, "height": height},
                    color_scheme="dark" if theme == "dark" else "light",
                    reduced_motion="reduce",
                )
                await page.goto(f"{address}/")
                await _settled(page)
                found = await page.eval_on_selector_all("nav a[href^='#']", SCREENS)
                for name, place in [*found, ("task", f"#/tasks/{task}")]:
                    await _take(page, place, folder / f"{name}-{theme}-{size}.png")
                    taken += 1
                await page.close()
        await chromium.close()
    return taken


async def _take(page: Page, place: str, to: Path) -> None:
    await page.evaluate("place => { location.hash = place }", place)
    await _settled(page)
    await page.screenshot(path=to)


async def _settled(page: Page) -> None:
    """The screen is there, with what it reads."""
    from playwright.async_api import expect

    await page.evaluate(DRAWN)
    await page.locator("main h1").first.wait_for()
    await expect(page.locator("main .loading")).to_have_count(0)
    await page.evaluate(DRAWN)
