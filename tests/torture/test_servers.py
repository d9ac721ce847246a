"""Torture of the engines on servers: through a proxy, and with the server killed in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest

from .harness import target, torture

KINDS = "pause group,pause worker,kill worker,kill server,lose replies,kill producer,black hole"


@pytest.mark.parametrize("engine", ["redis", "postgresql", "mongodb"])
def test_a_server_bears_it(engine: str, tmp_path: Path) -> None:
    with target(engine, tmp_path) as at:
        result = torture(
            at, "--tasks", 1_000, "--faults", 10, "--kinds", KINDS, "--lease", "1s", "--seed", 1
        )
    assert (result.code, result.broken, result.report["unseen"]) == (0, {}, [])
    assert len(result.report["faults"]) == 7
    assert result.report["recovery_ms"]["kill server"] < 2_000
