"""Servers of their own for what a shared one must not suffer: kills, full memory, settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from outlast.engines.redis.engine import RedisEngine, connect

_SPEC = spec_from_file_location(
    "tests_servers_redis", Path(__file__).parent.parent / "servers" / "redis.py"
)
assert _SPEC is not None and _SPEC.loader is not None
_SERVERS = module_from_spec(_SPEC)
_SPEC.loader.exec_module(_SERVERS)

MakeServer = Callable[..., Any]


@pytest.fixture
def make_server() -> Iterator[MakeServer]:
    """`make_server(fsync="always", settings=("--maxmemory", "3mb"))`, running."""
    with ExitStack() as stack:

        def make(**options: Any) -> Any:
            server = _SERVERS.Server(**options)
            stack.callback(server.stop)
            server.run()
            return server

        yield make


@pytest.fixture(scope="session")
def shared_url() -> Iterator[str]:
    server = _SERVERS.Server()
    server.run()
    yield server.url
    server.stop()


@pytest.fixture
async def engine(shared_url: str, request: pytest.FixtureRequest) -> AsyncIterator[RedisEngine]:
    """An open engine in a namespace of its own."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:60]
    made = connect(f"{shared_url}?namespace={name}")
    assert isinstance(made, RedisEngine)
    await made.open()
    yield made
    await made.close()
