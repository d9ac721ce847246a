"""The engine against the model: random commands, compared after every step."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from outlast.engine import Engine, connect

from .machine import COMMANDS, Coverage, EngineMachine, WentWrong, shortest, walk
from .servers import FILES, SHARED, url_for

# A store with a round trip of milliseconds needs minutes for what memory does in seconds.
pytestmark = pytest.mark.timeout(900 * int(os.environ.get("OUTLAST_TEST_DEEP", "1")))

DEEP = int(os.environ.get("OUTLAST_TEST_DEEP", "1"))
"""How many times as long to look: 1 is about half a minute per engine, 50 a good evening."""
STEPS = 60
STATUSES = {
    "ready", "scheduled", "retrying", "throttled", "blocked", "running", "stalled", "completed",
    "cancelled", "dead",
}  # fmt: skip


def looks(engine_name: str) -> tuple[int, int]:
    """How many walks, and how many of Hypothesis' examples: a server has a round trip to make."""
    walks, examples = (60, 25) if engine_name in FILES or engine_name == "memory" else (30, 10)
    return walks * DEEP, examples * DEEP


def machine_for(engine_name: str, folder: Path) -> type[EngineMachine]:
    processes = 2 if engine_name in SHARED else 1

    def make_engines() -> list[Engine]:
        url = url_for(engine_name, folder)
        return [connect(url) for _ in range(processes)]

    made = {"make_engines": staticmethod(make_engines), "coverage": Coverage()}
    return type("Machine", (EngineMachine,), made)


def test_the_engine_does_what_the_model_does(engine_name: str, tmp_path: Path) -> None:
    machine = machine_for(engine_name, tmp_path)
    first = 0 if DEEP == 1 else random.randrange(1_000_000)
    walks, _ = looks(engine_name)
    for seed in range(first, first + walks):
        try:
            walk(machine, seed, STEPS)
        except WentWrong as wrong:
            raise (shortest(machine, wrong.script) or wrong) from None
    sys.stdout.write(machine.coverage.table() + "\n")
    fired = {name for name, _ in machine.coverage.pairs}
    assert fired >= COMMANDS.keys(), f"never fired: {COMMANDS.keys() - fired}"
    met = {status for _, status in machine.coverage.pairs}
    assert met >= STATUSES, f"never occurred: {STATUSES - met}"
    assert machine.coverage.stale * 5 >= machine.coverage.steps, "too few stale or lapsed leases"


def test_hypothesis_finds_no_difference_either(engine_name: str, tmp_path: Path) -> None:
    _, examples = looks(engine_name)
    run_state_machine_as_test(
        machine_for(engine_name, tmp_path),
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            derandomize=DEEP == 1,
            suppress_health_check=list(HealthCheck),
        ),
    )
