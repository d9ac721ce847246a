"""Torture of SQLite: the right engine passes, wrong ones do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import TABLES, copied

from .harness import target, torture
from .wrong import QUICK, TRAPS

MUTANTS = {mutant.name: mutant for mutant in TABLES["sqlite"]}


def test_sqlite_bears_it(tmp_path: Path) -> None:
    kinds = (
        "pause group,pause worker,kill worker,kill group,kill producer,lose replies,kill everything"
    )
    with target("sqlite", tmp_path) as at:
        result = torture(
            at, "--tasks", 1_500, "--faults", 14, "--kinds", kinds, "--lease", "1s", "--seed", 1
        )
    assert (result.code, result.broken, result.report["unseen"]) == (0, {}, [])
    assert len(result.report["faults"]) == 7
    assert result.report["seen"]["stale writes refused"] >= 7
    assert list(tmp_path.iterdir()) == [], "something was left behind"


@pytest.mark.parametrize("name", QUICK)
def test_a_wrong_engine_does_not_pass(name: str, tmp_path: Path) -> None:
    trap = TRAPS[name]
    with target("sqlite", tmp_path) as at:
        result = torture(
            at, "--tasks", trap.tasks, "--faults", trap.faults, "--kinds", trap.kinds,
            "--lease", "1s", "--seed", 7, env=copied(MUTANTS[name], tmp_path / "copy"),
        )  # fmt: skip
    assert result.code == 1, result.said
    assert result.broken, result.report["unseen"]
