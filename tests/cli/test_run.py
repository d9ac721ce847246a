"""`worker`, `serve` and `dev`: the commands that stay, and how they end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest


def get(url: str) -> dict[str, object] | None:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  # our own
            document: dict[str, object] = json.load(answer)
            return document
    except (urllib.error.URLError, OSError):
        return None


def address_in(log: str) -> str:
    found = re.search(r"http://[\d.]+:\d+", log)
    assert found, log
    return found[0]


def processes_in(folder: Path) -> set[int]:
    """Whatever still works in a folder."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(path / "cwd") == str(folder):
                found.add(int(path.name))
        except OSError:
            continue
    return found


# worker ------------------------------------------------------------------------------------------


def test_sigterm_lets_a_running_task_finish_and_starts_no_other(project, until):
    with project.worker("--concurrency", "1") as worker:
        running = project.id_of("gated", '{"name": "a"}')
        until((project.folder / "a.begun").exists)
        waiting = project.id_of("hello", '{"name": "Ada"}')
        worker.send_signal(signal.SIGTERM)
        until(lambda: "claims nothing more" in project.log("worker"))
        (project.folder / "a.go").touch()
        assert worker.wait(30) == 0
    assert project.status(running) == "completed"
    assert project.status(waiting) == "ready"
    assert processes_in(project.folder) == set()


def test_what_does_not_end_within_the_grace_is_given_back_at_no_cost(project, until):
    with project.worker("--grace", "100ms") as worker:
        running = project.id_of("gated", '{"name": "b"}')
        until((project.folder / "b.begun").exists)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    task = project.json("tasks", "show", running)
    assert (task["status"], task["attempt"]) == ("ready", 0)
    assert [attempt["outcome"] for attempt in task["attempts"]] == ["released"]


def test_a_worker_serves_the_queues_it_is_given(project):
    flags = (
        "-q",
        "llm=8",
        "-q",
        "default",
        "--processes",
        "2",
        "--lease",
        "5s",
        "--retry-share",
        "40%",
    )
    with project.worker("main:app", *flags):
        workers = project.json("workers")["items"]
        assert all(set(worker["queues"]) == {"llm", "default", "outlast"} for worker in workers)
        ran = project("enqueue", "hello", '{"name": "Ada"}', "--queue", "llm", "--wait")
        assert ran.code == 0


def test_a_worker_is_not_started_with_settings_that_make_no_sense(project):
    for args in (
        ("-q", "llm=none"), ("-q", "=3"), ("--retry-share", "much"), ("--lease", "1ms"),
        ("--lease", "long"), ("--grace", "x"), ("--log-level", "loud"), ("--concurrency", "0"),
    ):  # fmt: skip
        ran = project("worker", *args)
        assert ran.code == 2, (args, ran)
        assert "Traceback" not in ran.err


def test_a_worker_without_an_engine_is_exit_code_4(project):
    ran = project("worker", "--engine", "sqlite:///missing/jobs.db")
    assert ran.code == 4
    assert "Traceback" not in ran.err


# serve -------------------------------------------------------------------------------------------


def test_serve_answers_until_sigterm(project, until):
    with project.running("serve", "--port", "0") as server:
        until(lambda: "http://" in project.log("serve"), lambda: project.log("serve"))
        address = address_in(project.log("serve"))
        health = get(f"{address}/health")
        assert health is not None
        assert health["status"] == "degraded"  # no worker
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0


def test_serve_needs_no_app(outlast, until):
    with outlast.running("serve", "--port", "0"):
        until(lambda: "http://" in outlast.log("serve"), lambda: outlast.log("serve"))
        assert get(address_in(outlast.log("serve")) + "/health")


@pytest.mark.parametrize("command", ["serve", "dev"])
def test_a_port_that_is_taken_is_said_so(project, command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = project(command, "--port", str(taken.getsockname()[1]))
    assert ran.code == 2
    assert "--port" in ran.err
    assert processes_in(project.folder) == set()


# dev ---------------------------------------------------------------------------------------------


def started(outlast, until) -> str:
    until(lambda: "Next:" in outlast.log("dev"), lambda: outlast.log("dev"))
    return address_in(outlast.log("dev"))


def test_dev_runs_everything_and_ctrl_c_ends_everything(project, until):
    with project.running("dev", "--port", "0") as dev:
        address = started(project, until)
        assert project.log("dev").count(address) == 3
        assert """outlast enqueue hello '{"name":"…"}' --follow""" in project.log("dev")
        until(lambda: (get(f"{address}/health") or {}).get("status") == "healthy")
        ran = project("enqueue", "hello", '{"name": "Ada"}', "--wait")
        assert (ran.code, ran.out) == (0, '"hello Ada"\n')
        dev.send_signal(signal.SIGINT)
        assert dev.wait(20) == 0
    assert processes_in(project.folder) == set()
    assert "Traceback" not in project.log("dev")


def test_dev_starts_again_when_the_source_changes_and_survives_what_cannot_be_used(project, until):
    main = project.folder / "main.py"
    source = main.read_text()

    def hello() -> str:
        return project(
            "enqueue", "hello", '{"name": "Ada"}', "--wait", "--timeout", "20s", "--app", "main:app"
        ).out

    with project.running("dev", "--port", "0"):
        address = started(project, until)
        assert hello() == '"hello Ada"\n'
        main.write_text(source.replace("hello {name}", "welcome {name}"))
        until(lambda: "starting again" in project.log("dev"))
        until(lambda: hello() == '"welcome Ada"\n')
        until(lambda: get(f"{address}/health"))
        main.write_text(source + "\ndef (")
        until(lambda: "stays up" in project.log("dev"))
        assert "SyntaxError" in project.log("dev")
        assert get(f"{address}/health"), project.log("dev")
        main.write_text(source)
        until(lambda: project.log("dev").count("starting again") == 2)
        until(lambda: hello() == '"hello Ada"\n')


def test_dev_without_an_app_shows_the_sample_app_at_work(outlast, until):
    with outlast.running("dev", "--port", "0"):
        started(outlast, until)

        def completed() -> bool:
            return bool(outlast.json("tasks", "ls", "--status", "completed")["items"])

        until(completed)
        assert (outlast.folder / "outlast.db").exists()


def test_nothing_of_dev_outlives_it_when_it_is_killed(project, until):
    with project.running("dev", "--port", "0") as dev:
        started(project, until)
        dev.kill()
        dev.wait()
        until(lambda: processes_in(project.folder) == set(), lambda: project.log("dev"), 40)
