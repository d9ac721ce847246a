"""A Valkey of these tests' own: the names of the streams are fixed, so it is shared with nobody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from outlast import Outlast
from tests.conformance.servers import server

from .site import make_app


@pytest.fixture(scope="session")
def valkey() -> Iterator[str]:
    made = server("redis").Server()
    made.run()
    yield made.url
    made.stop()


@pytest.fixture
def streams(valkey: str) -> Iterator[redis.Redis]:
    """A client of a server that is empty."""
    with redis.Redis.from_url(valkey, decode_responses=True) as client:
        client.flushall()
        yield client


@pytest.fixture
def app(tmp_path: Path) -> Outlast:
    return make_app(f"sqlite:///{tmp_path}/tasks.db")
