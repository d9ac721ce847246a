"""`outlast demo`: the show on real processes, and its judge, who believes nobody."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from outlast.core.model import Event
from outlast.demo.app import Line
from outlast.demo.judge import Evidence, Past, Seen, judge


@contextmanager
def playing(folder: Path, *flags: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """The command, with `folder` for all that it writes."""
    folder.mkdir(exist_ok=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith("OUTLAST_")}
    with subprocess.Popen(  # noqa: S603  # ourselves
        [sys.executable, "-m", "outlast", "demo", "--port", "0", *flags],
        cwd=folder, env={**env, "TMPDIR": str(folder), **more}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as show:  # fmt: skip
        try:
            yield show
        finally:
            show.kill()


def test_one_seed_is_one_show_in_which_everything_comes_true(tmp_path):
    flags = ("--headless", "--seconds", "90", "--seed", "11", "--json")
    with playing(tmp_path / "a", *flags) as one, playing(tmp_path / "b", *flags) as other:
        told = []
        for show in (one, other):
            out, err = show.communicate(timeout=110)
            assert (show.returncode, err) == (0, ""), out + err
            told.append(json.loads(out))
    assert told[0]["claims"] == told[1]["claims"]
    found = {claim["name"]: claim["told"] for claim in told[0]["claims"]}
    assert found["tasks"] == "39 of 39 done, 0 lost, 0 ended twice"
    assert found["steps"] == "0 of 30 repeated"
    assert found["killed worker"] == "1 by SIGKILL, 3 tasks went on at step 3 of 5"
    assert [*(tmp_path / "a").iterdir()] == [], "something was left behind"


def test_a_show_without_time_says_what_did_not_come_true(tmp_path):
    with playing(tmp_path, "--headless", "--seconds", "1") as show:
        out, _ = show.communicate(timeout=60)
    assert show.returncode == 1
    assert "FAILED: the time was up" in out
    assert "FAILED: circuit: it never opened." in out


def test_whoever_watches_ends_it_with_ctrl_c(tmp_path):
    with playing(tmp_path) as show:
        assert show.stdout is not None
        assert any("summaries" in line for line in show.stdout), "it ended before it began"
        show.send_signal(signal.SIGINT)
        show.communicate(timeout=60)
    assert show.returncode == 0
    assert [*tmp_path.iterdir()] == [], "something was left behind"


def test_pictures_need_a_browser_and_a_dashboard(tmp_path):
    """Told before anything is started."""
    with playing(tmp_path, "--shots", "pictures", PATH="") as show:
        out, err = show.communicate(timeout=30)
    assert (show.returncode, out) == (2, "")
    assert "--shots needs a Chromium" in err or "The dashboard is not built" in err


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://127.0.0.1:9/jobs",
        "redis://127.0.0.1:9",
        "mongodb://127.0.0.1:9/jobs?serverSelectionTimeoutMS=500",
    ],
)
def test_an_engine_that_cannot_be_reached_is_told_as_everywhere(tmp_path, url):
    with playing(tmp_path, "--headless", "--engine", url) as show:
        _, err = show.communicate(timeout=60)
    assert show.returncode == 4, err
    assert "127.0.0.1:9" in err
    assert "cannot be reached" in err


def test_seconds_are_for_those_who_do_not_watch(tmp_path):
    with playing(tmp_path, "--seconds", "9") as show:
        _, err = show.communicate(timeout=30)
    assert show.returncode == 2
    assert "--seconds is for --headless" in err


# the judge ---------------------------------------------------------------------------------------

KILLED, OTHER = 101, 102


def event(kind: str, task: str | None = None, attempt: int = 1, **data: object) -> Event:
    told = json.dumps(data).encode()
    return Event(cursor="", kind=kind, at=0, data=told, task_id=task, attempt=attempt)


def done(task: str, status: str = "completed") -> Event:
    return event("done", task, status=status)


def good() -> Evidence:
    """A small show in which all went well."""
    stalled = (Past(number=1, outcome="stalled"), Past(number=2))
    refused = Past(
        number=1, started_at=90, ended_at=100, outcome="waiting", error={"code": "rate_limit"}
    )
    tasks = {
        "s": Seen(
            type="summarize", result="a b",
            attempts=(refused, Past(number=2, started_at=2_100, ended_at=2_200)),
        ),
        "e": Seen(type="embed", result=5),
        "a": Seen(type="ask", result="yes"),
        "r1": Seen(type="report", attempts=stalled),
        "r2": Seen(type="report"),
        "g": Seen(type="agent", result="did delete it"),
        "i": Seen(type="invoice"),
    }  # fmt: skip
    parts = [f"part {n}" for n in range(1, 6)]
    log = [
        event("chunk", "s", 2, chunk="a "),
        event("chunk", "s", 2, chunk="b"),
        event("circuit", key="parrot-b", circuit="open"),
        event("circuit", key="parrot-b", circuit="closed"),
        *(event("step", task, step=part) for task in ("r1", "r2") for part in parts),
        event("question", "g"),
        event("signal", "g"),
        done("i", "dead"),
        *map(done, tasks),
    ]
    ledger = [
        *(Line("r1", part, KILLED if n < 2 else OTHER) for n, part in enumerate(parts)),
        *(Line("r2", part, OTHER) for part in parts),
        Line("g", "plan", OTHER),
        Line("g", "act", OTHER),
    ]
    return Evidence(
        acknowledged=tuple(tasks), tasks=tasks, log=tuple(log), ledger=tuple(ledger),
        misbehaved={"rate_limit": 1}, killed=KILLED, rest_ms=2_000,
    )  # fmt: skip


def with_task(e: Evidence, id: str, **change: Any) -> Evidence:
    return replace(e, tasks={**e.tasks, id: replace(e.tasks[id], **change)})


def without(e: Evidence, *kinds: str) -> Evidence:
    return replace(e, log=tuple(event for event in e.log if event.kind not in kinds))


DOCTORED: dict[str, tuple[str, Callable[[Evidence], Evidence]]] = {
    "a task is not there": (
        "tasks", lambda e: replace(e, tasks={k: v for k, v in e.tasks.items() if k != "a"})
    ),
    "a task still waits": ("tasks", lambda e: with_task(e, "a", status="ready")),
    "a task ended twice": ("tasks", lambda e: replace(e, log=(*e.log, done("a")))),
    "an end is not in the log": ("tasks", lambda e: without(e, "done")),
    "a piece was streamed twice": ("streams", lambda e: replace(e, log=(e.log[0], *e.log))),
    "a summary was not begun": (
        "streams", lambda e: with_task(e, "s", status="ready", result=None, attempts=())
    ),
    "a refusal is not recorded": ("throttle", lambda e: replace(e, misbehaved={"rate_limit": 2})),
    "a refusal cost an attempt": ("throttle", lambda e: with_task(e, "s", attempt=2)),
    "somebody did not wait": (
        "throttle",
        lambda e: with_task(e, "e", attempts=(Past(number=1, started_at=1_000),)),
    ),
    "the circuit stayed closed": ("circuit", lambda e: without(e, "circuit")),
    "the circuit stays open": (
        "circuit",
        lambda e: replace(e, log=(*e.log, event("circuit", key="parrot-b", circuit="open"))),
    ),
    "a step was done twice": (
        "steps", lambda e: replace(e, ledger=(*e.ledger, Line("r1", "part 2", OTHER)))
    ),
    "a step was not done": (
        "steps", lambda e: replace(e, ledger=tuple(x for x in e.ledger if x.deed != "part 4"))
    ),
    "nobody was killed": ("killed worker", lambda e: replace(e, killed=None)),
    "the loss is not recorded": (
        "killed worker", lambda e: with_task(e, "r1", attempts=(Past(number=1),))
    ),
    "the killed one went on": (
        "killed worker",
        lambda e: replace(
            e, ledger=tuple(replace(x, pid=KILLED if x.task == "r1" else x.pid) for x in e.ledger)
        ),
    ),
    "a question has no answer": ("approval", lambda e: without(e, "signal")),
    "it acted without leave": (
        "approval", lambda e: with_task(e, "g", result="did not delete it")
    ),
    "one is still dead": (
        "redrive",
        lambda e: replace(
            e, log=tuple(x for x in e.log if x.task_id != "i" or b"completed" not in x.data)
        ),
    ),
}  # fmt: skip


def test_the_judge_finds_nothing_wrong_with_what_went_well():
    assert [claim for claim in judge(good()) if claim.wrong] == []


@pytest.mark.parametrize("what", DOCTORED)
def test_the_judge_notices(what):
    name, doctor = DOCTORED[what]
    [wrong] = [c.wrong for c in judge(doctor(good())) if c.name == name]
    assert wrong, what
    assert re.fullmatch(r"[^.]+", wrong), "one sentence, to be ended by who prints it"
