"""A server with a worker, and both clients: every test is for `AsyncClient` and for `Client`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2
import pytest

from outlast.client import AsyncClient, Client
from tests.http.site import Site, make_app, serving


class Threaded:
    """A `Client` that tests can await: each call runs in a thread, as synchronous code would."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        if name in ("tasks", "dead", "session_tasks", "deliveries", "stream", "events"):
            return lambda *args, **kwargs: _aiter(method(*args, **kwargs))
        return lambda *args, **kwargs: asyncio.to_thread(method, *args, **kwargs)


async def _aiter(items: Iterator[Any]) -> AsyncIterator[Any]:
    try:
        while (item := await asyncio.to_thread(next, items, None)) is not None:
            yield item
    finally:
        items.close()  # type: ignore[attr-defined]


Maker = Callable[..., Any]


@pytest.fixture(params=["async", "sync"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Maker]:
    """`connect(address, …)` makes a client."""
    made: list[AsyncClient | Client] = []

    def connect(address: str, key: str | None = None, **options: Any) -> Any:
        if request.param == "async":
            made.append(AsyncClient(address, key, http=_http(httpx2.AsyncClient), **options))
            return made[-1]
        client = Client(address, key, http=_http(httpx2.Client), **options)
        made.append(client)
        return Threaded(client)

    yield connect
    for client in made:
        if isinstance(client, AsyncClient):
            await client.close()
        else:
            client.close()


def _http(kind: Callable[..., Any]) -> Any:
    return kind(trust_env=False)  # whatever proxy this machine may have


@pytest.fixture
async def busy() -> AsyncIterator[Site]:
    """With a worker."""
    app, gates = make_app()
    async with serving(app, working=True) as site:
        site.gates = gates
        yield site


@pytest.fixture
async def client(busy: Site, connect: Maker) -> Any:
    return connect(busy.address)
