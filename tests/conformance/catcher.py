"""Judges copies of Outlast, each in a process of its own: does the suite notice what is wrong?

Run as a program, it takes jobs as lines of JSON and answers each with one. The processes are forked
from one that has imported everything but Outlast: a new one would need half a second.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

import msgspec
import pytest

PRELOADED: Final = ("apsw", "asyncpg", "hypothesis.stateful", "msgspec", "pymongo", "redis.asyncio")
MOST_S: Final = 600


class Job(msgspec.Struct):
    """What is wrong with the engine in the copy of Outlast that the folder has?"""

    folder: str
    engine: str
    variable: str = ""
    """The environment variable for the address of the engine's server."""
    address: str = ""
    test: str = ""
    """The test that must fail; empty: walks of the model test."""
    walks: int | None = None
    """At most so many; None: as many as the model test takes."""


class Found(msgspec.Struct):
    """`broke`: it does not differ from what it should be, it does not work at all."""

    verdict: Literal["caught", "missed", "broke"]
    why: str = ""


class Catcher:
    """The program at work, for as long as the block lasts."""

    def __enter__(self) -> Catcher:
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", f"{__package__}.catcher"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def judge(self, job: Job) -> Found:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(msgspec.json.encode(job) + b"\n")
        stdin.flush()
        return msgspec.json.decode(stdout.readline(), type=Found)


# in the copy -------------------------------------------------------------------------------------


def judged(job: Job) -> Found:
    sys.path.insert(0, job.folder)
    os.environ["PYTHONPATH"] = job.folder  # for the processes that tests start
    if job.variable:
        os.environ[job.variable] = job.address
    try:
        return _by_test(job) if job.test else _by_walks(job)
    except BaseException:
        return Found("broke", traceback.format_exc())


def _by_walks(job: Job) -> Found:
    from .machine import WentWrong, walk
    from .test_model import STEPS, looks, machine_for

    with tempfile.TemporaryDirectory() as folder:
        machine = machine_for(job.engine, Path(folder))
        # What these do not catch, `make test` does not catch.
        for seed in range(looks(job.engine)[0] if job.walks is None else job.walks):
            try:
                walk(machine, seed, STEPS)
            except WentWrong as wrong:
                return Found("caught", f"seed {seed}: {wrong}")
    return Found("missed")


def _by_test(job: Job) -> Found:
    os.environ["OUTLAST_TEST_ENGINES"] = job.engine
    failures = Failures()
    test = str(Path(__file__).parent / job.test)
    known = "ignore::pytest.PytestAssertRewriteWarning"  # Hypothesis is there already
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-W", known, test], plugins=[failures])
    if code == pytest.ExitCode.OK:
        return Found("missed")
    wrong = [f for f in failures.found if f.errisinstance((AssertionError, pytest.fail.Exception))]
    return Found("caught" if wrong else "broke", "\n".join(f.exconly() for f in failures.found))


class Failures:
    """Collects what tests fail with."""

    def __init__(self) -> None:
        self.found: list[pytest.ExceptionInfo[BaseException]] = []

    def pytest_exception_interact(self, call: pytest.CallInfo[Any]) -> None:
        if call.excinfo is not None:
            self.found.append(call.excinfo)


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # what a test prints is no answer
    for name in PRELOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            signal.alarm(MOST_S)
            found = judged(msgspec.json.decode(line, type=Job))
            os.write(answers, msgspec.json.encode(found) + b"\n")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            ended = Found("broke", f"ended with {os.waitstatus_to_exitcode(status)}")
            os.write(answers, msgspec.json.encode(ended) + b"\n")


if __name__ == "__main__":
    main()
