"""Every mutant of the engine must be caught by the machine: a survivor is a hole in the suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from .machine import WentWrong, walk
from .mutants import MUTANTS, Mutant, applied
from .test_model import STEPS, WALKS, machine_for


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_machine_catches(mutant: Mutant, tmp_path: Path) -> None:
    machine = machine_for("memory", tmp_path)
    with applied(mutant), pytest.raises(WentWrong):
        for seed in range(WALKS):  # what these do not catch, `make test` does not catch
            walk(machine, seed, STEPS)


def test_a_mutant_leaves_nothing_behind(tmp_path: Path) -> None:
    for mutant in MUTANTS:
        with applied(mutant):
            pass
    walk(machine_for("memory", tmp_path), 0, STEPS)


def test_a_mutant_whose_text_is_gone_is_an_error() -> None:
    gone = Mutant("gone", "exchange:apply", "this text is not there", "")
    with pytest.raises(LookupError), applied(gone):
        pass
