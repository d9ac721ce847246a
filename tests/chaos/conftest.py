"""A fleet in an empty folder, on SQLite or the engine that a test names; what is left is killed."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.servers import cleared, url_for

from .fleet import Fleet


@pytest.fixture
async def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fleet]:
    name: str = getattr(request, "param", "sqlite")
    fleet = Fleet(tmp_path, url_for(name, tmp_path))
    await fleet.engine.open()
    try:
        yield fleet
    finally:
        fleet.end()
        await fleet.engine.close()
        for process in fleet.processes:  # pytest shows it when the test failed
            sys.stdout.write(f"--- {process.log.name}\n{process.output}")
        cleared(name)
