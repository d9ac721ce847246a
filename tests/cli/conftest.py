"""The real command in a folder of its own: `outlast("tasks", "ls")` gives what came of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

APP = '''
import asyncio
from pathlib import Path
from outlast import Context, Outlast, Permanent

app = Outlast()

@app.task
async def hello(name: str) -> str:
    return f"hello {name}"

@app.task
async def fail(message: str = "no") -> None:
    raise Permanent(message)

@app.task
async def story(ctx: Context) -> str:
    await ctx.progress(149 / 3, "half way")
    while not (await app.handle(ctx.task_id).refresh()).progress:
        await asyncio.sleep(0.02)  # what is told in the turn that ends a task is not news
    for word in ("once ", "upon ", "a time"):
        await ctx.emit(word)
    return "the end"

@app.task
async def gated(name: str) -> str:
    """Runs until somebody writes the file <name>.go; says so in <name>.begun."""
    Path(f"{name}.begun").touch()
    while not Path(f"{name}.go").exists():
        await asyncio.sleep(0.02)
    return name
'''


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str

    def json(self) -> dict[str, object]:
        document: dict[str, object] = json.loads(self.out)
        return document


class Outlast:
    """The command, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("OUTLAST_")}
        self.address = ""

    def __call__(self, *args: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Ran:
        done = subprocess.run(  # noqa: S603  # ourselves
            [sys.executable, "-m", "outlast", *args],
            cwd=self.folder, env={**self.env, **(env or {})}, input=stdin,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return Ran(done.returncode, done.stdout, done.stderr)

    def json(self, *args: str) -> dict[str, object]:
        ran = self(*args, "--json")
        assert ran.code == 0, ran.err
        return ran.json()

    def id_of(self, *args: str) -> str:
        ran = self("enqueue", *args)
        assert ran.code == 0, ran.err
        return ran.out.strip()

    def status(self, task_id: str) -> object:
        return self.json("tasks", "show", task_id)["status"]

    def write_app(self, name: str = "main.py", text: str = APP) -> None:
        (self.folder / name).write_text(text)

    @contextmanager
    def running(self, *args: str) -> Iterator[subprocess.Popen[str]]:
        """A command that stays; its output is in `<command>.log`."""
        log = self.folder / f"{args[0]}.log"
        with log.open("w") as file:
            process = subprocess.Popen(  # noqa: S603  # ourselves
                [sys.executable, "-m", "outlast", *args], cwd=self.folder, env=self.env,
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, text=True,
            )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def log(self, command: str) -> str:
        return (self.folder / f"{command}.log").read_text()

    @contextmanager
    def worker(self, *args: str) -> Iterator[subprocess.Popen[str]]:
        with self.running("worker", *args) as process:
            until(lambda: "ready" in self.log("worker"), lambda: self.log("worker"))
            yield process


def until(
    holds: Callable[[], object], tell: Callable[[], str] = lambda: "", seconds: float = 30
) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s. {tell()}"
        time.sleep(0.05)


@pytest.fixture(name="until")
def until_fixture() -> Callable[..., None]:
    return until


@pytest.fixture
def outlast(tmp_path: Path) -> Outlast:
    """An empty folder."""
    return Outlast(tmp_path)


@pytest.fixture
def project(outlast: Outlast) -> Outlast:
    """A folder with an app and no worker."""
    outlast.write_app()
    return outlast


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outlast]:
    """A folder with an app and a worker, shared by the tests of a file."""
    outlast = Outlast(tmp_path_factory.mktemp("busy"))
    outlast.write_app()
    with outlast.worker():
        yield outlast
