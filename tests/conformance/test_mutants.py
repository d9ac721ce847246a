"""Every mutant of an engine must be caught, by the walks or by the test it names.

A survivor is a hole in the suite. OUTLAST_TEST_MUTANTS=all judges all of them; without it, all of
SQLite's and of each server's the first few.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants import TABLES, Mutant, copied, replaced

from .catcher import Catcher, Job
from .servers import SERVERS, started

# A walk takes a tenth of a second in memory and some seconds on MongoDB.
pytestmark = pytest.mark.timeout(900)

FEW = 4
"""Of each server: together they may take half a minute."""


def to_judge() -> list[tuple[str, Mutant]]:
    everything = os.environ.get("OUTLAST_TEST_MUTANTS") == "all"
    engines = os.environ.get("OUTLAST_TEST_ENGINES", ",".join(TABLES))
    engines = engines.replace("memory", "sqlite")  # one engine, one table
    return [
        (engine, mutant)
        for engine in TABLES
        if engine in engines.split(",")
        for mutant in TABLES[engine][: FEW if engine in SERVERS and not everything else None]
    ]


@pytest.fixture(scope="module")
def catcher() -> Iterator[Catcher]:
    with Catcher() as made:
        yield made


@pytest.mark.parametrize(
    ("engine", "mutant"), to_judge(), ids=lambda x: x if isinstance(x, str) else x.name
)
def test_the_suite_catches(engine: str, mutant: Mutant, tmp_path: Path, catcher: Catcher) -> None:
    job = Job(copied(mutant, tmp_path)["PYTHONPATH"], engine, test=mutant.caught_by)
    if engine in SERVERS:
        job.variable = SERVERS[engine]
        job.address = os.environ.get(job.variable) or started(engine)
    elif not job.test:
        job.engine = "memory"  # the same engine, in a tenth of the time
    found = catcher.judge(job)
    assert found.verdict == "caught", f"{found.verdict}: {mutant.file}, {mutant.new!r}\n{found.why}"


@pytest.mark.parametrize("engine", TABLES)
def test_every_mutant_can_be_made(engine: str) -> None:
    names = [mutant.name for mutant in TABLES[engine]]
    assert len(names) == len(set(names))
    for mutant in TABLES[engine]:
        assert replaced(mutant)


def test_a_mutant_whose_text_is_gone_or_not_alone_is_an_error(tmp_path: Path) -> None:
    for old in ("this text is not there", "return"):
        with pytest.raises(LookupError):
            copied(Mutant("gone", "sqlite/exchange.py", old, ""), tmp_path)


def test_a_copy_without_a_mutant_passes(tmp_path: Path, catcher: Catcher) -> None:
    same = Mutant("none", "sqlite/exchange.py", '"""exchange:', '"""exchange:')
    folder = copied(same, tmp_path)["PYTHONPATH"]
    for job in (Job(folder, "memory", walks=3), Job(folder, "memory", test="test_lanes.py")):
        found = catcher.judge(job)
        assert found.verdict == "missed", found.why
