"""One browser for all tests, a server and a page for each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    async_playwright,
    expect,
)

from outlast.http import pages
from tests.conformance.servers import cleared, url_for
from tests.http.site import Site, serving

from . import chromium
from .app import make_app

PATIENCE_MS = 30_000
Opened = Callable[..., Awaitable[Page]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A browser lives in one event loop: so do the tests that share it."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and "asyncio" in item.keywords:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    program = chromium.find()
    if program is None:
        pytest.fail(chromium.NEEDED)
    if not pages.is_built():
        pytest.fail("The dashboard is not built: `make board` builds it.")
    expect.set_options(timeout=PATIENCE_MS)
    async with async_playwright() as playwright:
        flags = list(chromium.FLAGS)
        made = await playwright.chromium.launch(executable_path=program, args=flags)
        yield made
        await made.close()


@pytest.fixture
def engine_name() -> str:
    """Where the tasks are; a test that is to hold on several says so by `parametrize`."""
    return "sqlite"


@pytest_asyncio.fixture(loop_scope="session")
async def site(engine_name: str, tmp_path: Path) -> AsyncIterator[Site]:
    """A server, with a worker."""
    app, gates = make_app(url_for(engine_name, tmp_path), tmp_path / "content")
    try:
        async with serving(app, working=True) as site:
            site.gates = gates
            yield site
    finally:
        cleared(engine_name)


class Watcher:
    """What a page does that it should not: errors, and requests to anywhere else."""

    def __init__(self) -> None:
        self._addresses: list[str] = []
        self.complaints: list[str] = []

    def look_at(self, context: BrowserContext, address: str) -> None:
        self._addresses.append(address)
        context.on("console", self._said)
        context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        context.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        refused = message.text.startswith("Failed to load resource")  # a 401 or 404 is no fault
        if message.type in ("error", "warning") and not refused:
            self.complaints.append(message.text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(tuple(self._addresses)):
            self.complaints.append(f"asked {request.url}")


@pytest_asyncio.fixture(loop_scope="session")
async def opened(browser: Browser, site: Site) -> AsyncIterator[Opened]:
    """`await opened("/queues")`: a page of its own, on that screen. What it complains about, or
    asks of anyone else, fails the test."""
    watcher = Watcher()
    async with AsyncExitStack() as stack:

        async def open_page(
            screen: str = "/", path: str = "/", address: str = site.address, **options: Any
        ) -> Page:
            context = await browser.new_context(base_url=address, **options)
            stack.push_async_callback(context.close)
            watcher.look_at(context, address)
            context.set_default_timeout(PATIENCE_MS)
            page = await context.new_page()
            await page.goto(f"{path}#{screen}")
            return page

        yield open_page
    assert watcher.complaints == []
