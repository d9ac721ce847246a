"""A fleet in an empty folder; whatever a test leaves running is killed."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .fleet import Fleet


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    fleet = Fleet(tmp_path)
    await fleet.engine.open()
    try:
        yield fleet
    finally:
        fleet.end()
        await fleet.engine.close()
        for process in fleet.processes:  # pytest shows it when the test failed
            sys.stdout.write(f"--- {process.log.name}\n{process.output}")
