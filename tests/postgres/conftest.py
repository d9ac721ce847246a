"""The server of these tests, a schema for each of them, and servers that may be killed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from outlast.core.ids import new_id
from outlast.engines.postgres.engine import PostgresEngine, connect

_SPEC = spec_from_file_location(
    "tests_servers_postgresql", Path(__file__).parent.parent / "servers" / "postgresql.py"
)
assert _SPEC is not None and _SPEC.loader is not None
_SERVERS = module_from_spec(_SPEC)
_SPEC.loader.exec_module(_SERVERS)

Open = Callable[..., Awaitable[PostgresEngine]]


@pytest.fixture(scope="session")
def server() -> Iterator[Any]:
    server = _SERVERS.Server(autovacuum="off")
    try:
        server.run()
        yield server
    finally:
        server.stop()


@pytest.fixture
def own_server() -> Iterator[Callable[..., Any]]:
    """`own_server(synchronous_commit="off")`, running."""
    with ExitStack() as stack:

        def make(**settings: str) -> Any:
            server = _SERVERS.Server(**settings)
            stack.callback(server.stop)
            server.run()
            return server

        yield make


@pytest.fixture
def url(server: Any) -> str:
    """An empty schema."""
    return f"{server.url}?schema=t{new_id().replace('-', '')}"


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """`await opened(url)`, closed at the end."""
    async with AsyncExitStack() as stack:

        async def make(url: str) -> PostgresEngine:
            engine = connect(url)
            assert isinstance(engine, PostgresEngine)
            stack.push_async_callback(engine.close)
            await engine.open()
            return engine

        yield make


@pytest.fixture
async def engine(url: str, opened: Open) -> PostgresEngine:
    return await opened(url)
