"""`outlast queues metrics`, and the log of a worker as JSON, with the real commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .conftest import Outlast

Until = Callable[..., None]


def test_a_worker_logs_json_and_its_counts_stay(project: Outlast, until: Until) -> None:
    with project.worker("--log-format", "json"):
        done = project.id_of("hello", '{"name": "canary"}')
        dead = project.id_of("fail", '{"message": "a canary sang"}', "--session", "s-1")
        until(lambda: "Task failed" in project.log("worker") and done in project.log("worker"))
    lines = [json.loads(line) for line in project.log("worker").splitlines()]
    life = {
        task_id: [line["event"] for line in lines if line.get("task_id") == task_id]
        for task_id in (done, dead)
    }
    assert life == {done: ["processing", "completed"], dead: ["processing", "failed"]}
    for line in lines:
        assert {"timestamp", "level", "logger", "message", "pid"} <= line.keys()
        if line["logger"] == "outlast.tasks":
            assert "canary" not in json.dumps(line)
    [failed] = [line for line in lines if line.get("event") == "failed"]
    assert (failed["level"], failed["error_code"], failed["type"]) == ("error", "permanent", "fail")

    # The worker and both who enqueued are gone; what they counted is not.
    rows: Any = project.json("queues", "metrics", "--by", "hour")["items"]
    told = {row["type"]: row for row in rows}
    assert (told["hello"]["enqueued"], told["hello"]["completed"]) == (1, 1)
    assert (told["fail"]["enqueued"], told["fail"]["dead"], told["fail"]["error_rate"]) == (1, 1, 1)
    shown = project("queues", "metrics")
    assert shown.code == 0
    assert "hello" in shown.out and "100.0%" in shown.out


def test_text_has_a_line_per_step_only_when_asked(project: Outlast, until: Until) -> None:
    for flags, wanted in (((), False), (("--log-tasks",), True)):
        with project.worker(*flags):
            task_id = project.id_of("hello", '{"name": "ada"}')
            until(lambda task_id=task_id: project.status(task_id) == "completed")
        log = project.log("worker")
        assert (f"Task completed: task_id={task_id}" in log) == wanted, log


def test_what_cannot_be_asked_is_refused(project: Outlast) -> None:
    ran = project("queues", "metrics", "--by", "week")
    assert (ran.code, "hour or day" in ran.err) == (2, True)
    ran = project("worker", "--log-format", "xml")
    assert (ran.code, "text or json" in ran.err) == (2, True)


def test_nothing_has_happened_yet(project: Outlast) -> None:
    assert project.json("queues", "metrics") == {"items": [], "next": None}
