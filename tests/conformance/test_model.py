"""The engine against the model: random commands, compared after every step."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from outlast.engine import connect

from .machine import Coverage, EngineMachine
from .servers import url_for

EXAMPLES = int(os.environ.get("OUTLAST_TEST_EXAMPLES", "0"))
"""Runs per engine for a deep check (5000), which shrinks what it finds; 0: the fast profile."""
FAST = 120
STEPS = 50
STATUSES = {
    "ready", "scheduled", "retrying", "throttled", "blocked", "running", "stalled", "completed",
    "cancelled", "dead",
}  # fmt: skip


def drive(engine_name: str, folder: Path, examples: int, *, shrink: bool = True) -> Coverage:
    """Run the machine; raises at the first difference."""
    coverage = Coverage()
    machine = type(
        "Machine",
        (EngineMachine,),
        {
            "make_engine": staticmethod(lambda: connect(url_for(engine_name, folder))),
            "coverage": coverage,
        },
    )
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            derandomize=not shrink,
            phases=phases,
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        ),
    )
    return coverage


def rules() -> set[str]:
    return {
        name
        for name in vars(EngineMachine)
        if hasattr(vars(EngineMachine)[name], "hypothesis_stateful_rule")
    }


def test_the_engine_does_what_the_model_does(engine_name: str, tmp_path: Path) -> None:
    coverage = drive(engine_name, tmp_path, EXAMPLES or FAST, shrink=bool(EXAMPLES))
    sys.stdout.write(coverage.table() + "\n")
    assert {name for name, _ in coverage.pairs} >= rules() - {"begin"}, "a rule never fired"
    assert {status for _, status in coverage.pairs} >= STATUSES, "a status never occurred"
    assert coverage.stale >= coverage.steps / 5, "too few steps with stale or lapsed leases"
