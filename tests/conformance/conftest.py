"""The fixtures of the conformance suite: `e`, the small language over one engine, and `another`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from outlast.engine import connect

from .language import Scene
from .servers import NO_TRANSACTION, chosen, cleared, url_for

_FAILED = pytest.StashKey[bool]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marked = metafunc.definition.iter_markers("parametrize")
    if "engine_name" in metafunc.fixturenames and not any(
        mark.args[0] == "engine_name" for mark in marked
    ):
        metafunc.parametrize("engine_name", chosen())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Joining a transaction is the one thing that an engine may refuse: Redis has none to join."""
    items[:] = [item for item in items if not _asks_for_what_is_not_there(item)]


def _asks_for_what_is_not_there(item: pytest.Item) -> bool:
    engine = getattr(item, "callspec", None) and item.callspec.params.get("engine_name")  # type: ignore[attr-defined]
    return engine in NO_TRANSACTION and "tx" in getattr(item, "fixturenames", ())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if call.when == "call":
        item.stash[_FAILED] = report.failed  # type: ignore[attr-defined]
    return report


@pytest.fixture
def url(engine_name: str, tmp_path: Path) -> Iterator[str]:
    """An empty namespace of the engine under test."""
    yield url_for(engine_name, tmp_path)
    cleared(engine_name)


@pytest.fixture
async def e(url: str, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    engine = connect(url)
    await engine.open()
    scene = Scene(engine)
    try:
        yield scene
        if request.node.stash.get(_FAILED, False):
            sys.stdout.write(await scene.story())
    finally:
        await engine.close()


@pytest.fixture
async def another(
    engine_name: str, tmp_path: Path
) -> AsyncIterator[Callable[[], Awaitable[Scene]]]:
    """A second, empty engine of the same kind."""
    async with AsyncExitStack() as stack:

        async def make() -> Scene:
            engine = connect(url_for(engine_name, tmp_path))
            await engine.open()
            stack.push_async_callback(engine.close)
            return Scene(engine)

        yield make
