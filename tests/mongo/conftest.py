"""The mongod of these tests: the one that the conformance suite starts."""

from __future__ import annotations

import gc
import warnings
from collections.abc import AsyncIterator, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from outlast.core.ids import new_id
from outlast.engines.mongo.db import Link
from outlast.engines.mongo.engine import MongoEngine

_path = Path(__file__).parent.parent / "servers" / "mongodb.py"
_spec = spec_from_file_location("tests_servers_mongodb", _path)
assert _spec is not None and _spec.loader is not None
servers: Any = module_from_spec(_spec)
_spec.loader.exec_module(servers)


@pytest.fixture(scope="session")
def address() -> str:
    started: str = servers.start()
    return started


@pytest.fixture
def url(address: str) -> str:
    return str(servers.namespace(address, f"t{new_id().replace('-', '')}"))


@pytest.fixture
def unreachable() -> Iterator[None]:
    """PyMongo forgets the sockets that were connecting when its client is closed."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
async def engine(url: str) -> AsyncIterator[MongoEngine]:
    engine = MongoEngine(Link(url))
    await engine.open()
    yield engine
    await engine.close()
