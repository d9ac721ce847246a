"""`outlast engine`: what is done with whole engines."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from outlast.cli.output import console, emit, note, table
from outlast.cli.settings import JsonFlag
from outlast.core.errors import BadInput
from outlast.core.text import safe_url

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from outlast.engine import Engine
    from outlast.moving import Moved, Tell

app = typer.Typer(help="Whole engines: move to another one.", no_args_is_help=True)

EVERY_S: Final = 5.0
"""Between two lines about the same phase, where nobody can see a bar."""
SKEW_MS: Final = 1_000
PHASES: Final[dict[str, str]] = {
    "drain": "waiting for what runs",
    "record": "records",
    "gauge": "limits",
    "task": "tasks",
    "edge": "dependencies",
    "event": "log",
    "check source": "reading the source back",
    "check target": "reading the target back",
}


@app.callback()
def group() -> None:
    """Makes `copy` a command of a group, though it is alone in it."""


@app.command("copy")
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", show_default=False, help="Its URL.")],
    target: Annotated[
        str, typer.Argument(metavar="TO", show_default=False, help="Its URL; must be empty.")
    ],
    resume: Annotated[
        bool, typer.Option("--resume", help="Only go on with an interrupted copy, begin none.")
    ] = False,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain", help="Pause every queue of FROM for good, and wait for what runs there."
        ),
    ] = False,
    drain_timeout: Annotated[
        str, typer.Option("--drain-timeout", metavar="DURATION", help="How long it waits for that.")
    ] = "5m",
    json: JsonFlag = False,
) -> None:
    """Copy everything from one engine into another, empty one, and compare the two.

    Tasks in every state, the log, limits, records. A copy that was interrupted goes on where it
    was. Nothing may run on FROM, and nothing may write to either meanwhile: that is noticed, and
    the copy refused. FROM keeps everything.
    """
    from outlast.core.durations import to_ms

    drain_ms = to_ms(drain_timeout) if drain else None
    moved = asyncio.run(_copy(source, target, resume, drain_ms))
    if json:
        emit(moved)
    else:
        _report(moved)


async def _copy(source: str, target: str, resume: bool, drain_ms: int | None) -> Moved:
    from outlast.engine import connect
    from outlast.moving import move

    async with AsyncExitStack() as stack:
        here, there = connect(source), connect(target)
        _must_exist(here)
        for engine in (here, there):
            stack.push_async_callback(engine.close)
            await engine.open()
        if drain_ms is not None:
            note(f"Pausing every queue of {safe_url(source)}; they stay paused when it is copied.")
        tell = stack.enter_context(_telling())
        name = safe_url(source)
        return await move(here, there, name, resume=resume, drain_ms=drain_ms, tell=tell)


def _must_exist(engine: Engine) -> None:
    """Opening a SQLite file makes one; a misspelt source would be an empty one."""
    path = getattr(engine, "path", ":memory:")
    if path != ":memory:" and not Path(path).exists():
        raise BadInput(f"There is no SQLite file {path!r} to copy from: correct the URL.")


def _report(moved: Moved) -> None:
    rows = ((kind, f"{n:,}", moved.checksums[kind]) for kind, n in moved.counts.items())
    table(("COPIED", "COUNT", "CHECKSUM OF BOTH"), rows, "There was nothing to copy.")
    for what in moved.left:
        note(f"Did not travel: {what}.")
    if abs(moved.skew_ms) > SKEW_MS:
        note(f"The clocks differ by {moved.skew_ms:+} ms: due times are kept, so they shift by it.")
    if moved.paused:
        note("The queues of the source stay paused, so that nothing runs twice.")
    else:
        note("The source is as it was: start workers on one of the two only.")


# Progress ----------------------------------------------------------------------------------------


class _Lines:
    """A line per phase, and one every few seconds."""

    def __init__(self) -> None:
        self._phase = ""
        self._at = 0.0

    def __call__(self, phase: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if phase != self._phase or now - self._at > EVERY_S or done == total:
            self._phase, self._at = phase, now
            note(f"{PHASES[phase]}: {done:,}" + (f" of {total:,}" if total is not None else ""))


class _Bars:
    """A bar for each phase."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bars: dict[str, TaskID] = {}

    def __call__(self, phase: str, done: int, total: int | None) -> None:
        if phase not in self._bars:
            self._bars[phase] = self._progress.add_task(PHASES[phase], total=total)
        self._progress.update(self._bars[phase], completed=done, total=total)


@contextmanager
def _telling() -> Iterator[Tell]:
    """Bars for a person, lines for a log."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console(stderr=True)) as progress:
        yield _Bars(progress)
