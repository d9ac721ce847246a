"""`outlast init` and `outlast bench`: the first steps."""

from __future__ import annotations

import subprocess
import sys

from .conftest import Outlast


def test_the_first_app_runs_and_its_test_passes(outlast: Outlast) -> None:
    ran = outlast("init", "new", "--fastapi")
    assert (ran.code, "outlast dev" in ran.out) == (0, True)
    new = Outlast(outlast.folder / "new")
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=new.folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert tested.returncode == 0, tested.stdout
    with new.worker():
        told = new("enqueue", "shorten", '{"text": "once upon a time", "words": 2}', "--wait")
    assert told.out == '"once upon"\n', told.err
    served = [sys.executable, "-W", "error", "-c", "import api; assert api.site.routes"]
    subprocess.run(served, cwd=new.folder, timeout=60, check=True)  # noqa: S603  # our own


def test_nothing_is_overwritten(project: Outlast) -> None:
    before = (project.folder / "main.py").read_text()
    ran = project("init")
    assert (ran.code, "main.py: there already" in ran.err) == (2, True)
    assert (project.folder / "main.py").read_text() == before
    assert not (project.folder / "test_main.py").exists()
    assert project("init", "main.py/below").code == 2


def test_an_engine_is_measured_and_left_as_it_was(project: Outlast) -> None:
    kept = project.id_of("hello", '{"name": "Ada"}')
    measured = project.json("bench", "--tasks", "200")
    assert measured["durability"] == "fsync"
    assert all(float(str(measured[name])) > 0 for name in measured if name != "durability")
    assert [task["id"] for task in project.json("tasks", "ls")["items"]] == [kept]
