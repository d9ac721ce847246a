"""Servers to talk to: one that only stores, one with a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from .site import Site, make_app, serving


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """Nothing runs here: tasks stay as they are."""
    app, _ = make_app()
    async with serving(app) as site:
        yield site


@pytest.fixture
async def busy() -> AsyncIterator[Site]:
    """With a worker."""
    app, gates = make_app()
    async with serving(app, working=True) as site:
        site.gates = gates
        yield site
