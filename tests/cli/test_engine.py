"""`outlast engine copy`: the real command, killed and run again, watched and drained."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
import threading
import time

import pytest

from outlast.core.ids import new_id
from outlast.core.model import NewTask, TaskQuery
from outlast.engine import connect

A, B = "sqlite:///a.db", "sqlite:///b.db"


def fill(folder, n):
    async def enqueue():
        engine = connect(f"sqlite:///{folder}/a.db")
        await engine.open()
        tasks = [NewTask(id=new_id(), type="hello", payload=b'{"name":"x"}') for _ in range(n)]
        await engine.enqueue(tasks)
        await engine.close()

    asyncio.run(enqueue())


def count(folder, name):
    async def counted():
        engine = connect(f"sqlite:///{folder}/{name}.db")
        await engine.open()
        found = await engine.count(TaskQuery())
        await engine.close()
        return sum(one.n for one in found)

    return asyncio.run(counted())


def test_what_was_copied_is_told_and_can_be_worked_on(project):
    for name in ("ada", "bob"):
        project.id_of("hello", f'{{"name": "{name}"}}', "--engine", A)
    ran = project("engine", "copy", A, B)
    assert ran.code == 0, ran
    assert "task pending" in ran.out
    assert "tasks: 2 of 2" in ran.err
    assert "Did not travel: leases and workers" in ran.err
    assert "cursors of the log" in ran.err
    with project.worker("--engine", B):
        [first, _] = project.json("tasks", "ls", "--engine", B)["items"]
        assert project("tasks", "watch", first["id"], "--engine", B).code == 0


def test_one_json_document_says_counts_and_checksums(project):
    project.id_of("hello", '{"name": "ada"}', "--engine", A)
    told = project.json("engine", "copy", A, B)
    assert told["counts"]["task pending"] == 1
    assert set(told["checksums"]) == set(told["counts"])
    assert (told["resumed"], told["paused"]) == (False, False)


def test_killed_in_the_middle_it_goes_on_and_doubles_nothing(project):
    fill(project.folder, 10_000)
    copying = subprocess.Popen(  # noqa: S603  # ourselves
        [sys.executable, "-m", "outlast", "engine", "copy", A, B],
        cwd=project.folder, env=project.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while not (project.folder / "b.db").exists() or not count(project.folder, "b"):
            assert time.monotonic() < deadline
    finally:
        copying.send_signal(signal.SIGKILL)
        copying.wait()
    half = count(project.folder, "b")
    assert 0 < half < 10_000
    assert project("queues", "--engine", B).out.count("paused") == 1
    told = project.json("engine", "copy", A, B, "--resume")
    assert told["resumed"] is True
    assert told["counts"]["task pending"] == count(project.folder, "b") == 10_000
    assert "paused" not in project("queues", "--engine", B).out.replace("PAUSED", "")


def test_a_person_sees_a_bar(project):
    fill(project.folder, 10)
    ours, theirs = pty.openpty()
    with subprocess.Popen(  # noqa: S603  # ourselves
        [sys.executable, "-m", "outlast", "engine", "copy", A, B],
        cwd=project.folder, env=project.env, stdout=subprocess.DEVNULL, stderr=theirs,
    ) as copying:  # fmt: skip
        assert copying.wait(60) == 0
    os.close(theirs)
    shown = b""
    while b"Did not travel" not in shown:
        shown += os.read(ours, 65_536)
    os.close(ours)
    assert "━" in shown.decode(errors="replace")
    assert "10/10" in shown.decode(errors="replace")


def test_running_tasks_are_refused_or_drained(project, until):
    with project.worker("--engine", A, "--concurrency", "1"):
        project.id_of("gated", '{"name": "one"}', "--engine", A)
        until(lambda: (project.folder / "one.begun").exists())
        project.id_of("gated", '{"name": "two"}', "--engine", A)
        ran = project("engine", "copy", A, B)
        assert ran.code == 2
        assert "--drain" in ran.err
        assert len(ran.err.splitlines()) == 1

        ran = project("engine", "copy", A, B, "--drain", "--drain-timeout", "1s")
        assert ran.code == 124
        assert "as they were again" in ran.err

        def end_it_once_paused():
            until(lambda: "paused" in project("queues", "--engine", A).out)
            (project.folder / "one.go").touch()

        ending = threading.Thread(target=end_it_once_paused)
        ending.start()
        ran = project("engine", "copy", A, B, "--drain")
        ending.join()
        assert ran.code == 0, ran
        assert "stay paused" in ran.err
        assert "paused" in project("queues", "--engine", A).out
    (project.folder / "two.go").touch()
    [two] = project.json("tasks", "ls", "--engine", B, "--status", "ready")["items"]
    with project.worker("--engine", B):
        assert project("tasks", "watch", two["id"], "--engine", B, "--timeout", "20s").code == 0


@pytest.mark.parametrize(
    ("urls", "code", "told"),
    [
        (("sqlite:///typo.db", B), 2, "no SQLite file 'typo.db'"),
        ((A, A), 2, "same engine"),
        ((A, "nosuch://x"), 2, "Known are"),
        ((A, "postgresql://ada:hunter2@127.0.0.1:1/db"), 4, "cannot be reached"),
    ],
)
def test_what_cannot_be_copied_is_one_sentence(project, urls, code, told):
    project.id_of("hello", '{"name": "ada"}', "--engine", A)
    ran = project("engine", "copy", *urls)
    assert ran.code == code
    assert told in ran.err
    assert len(ran.err.splitlines()) == 1
    assert "hunter2" not in ran.err
    assert not (project.folder / "typo.db").exists()
