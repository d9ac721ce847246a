"""Following a task: output as it comes, progress, and how it ended."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

import typer
from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from outlast.cli.output import STYLES, console, in_percent, note
from outlast.core.codec import dumps
from outlast.core.text import clean

if TYPE_CHECKING:
    from outlast.cli.operations import Operations, TaskEvent
    from outlast.http.schemas import Task

LAST_EVENTS_S = 2.0


class Screen(Protocol):
    """Where the events of one task are shown."""

    streamed: bool
    """The attempt that counts has put out chunks."""

    def tell(self, event: TaskEvent) -> None: ...

    def close(self) -> None: ...


async def follow(there: Operations, task_id: str, *, quiet: bool, within: str | None) -> Task:
    """The task once it is over. Unless `quiet` its events are shown, and its result at the end."""
    if quiet:
        return await there.wait(task_id, timeout=within)
    screen: Screen = Terminal() if sys.stdout.isatty() else Lines()
    showing = asyncio.create_task(_show(there, task_id, screen))
    try:
        task = await there.wait(task_id, timeout=within)
        await asyncio.wait({showing}, timeout=LAST_EVENTS_S)
    finally:
        showing.cancel()
        await asyncio.wait({showing})
        screen.close()
    if task.state == "completed" and not screen.streamed:
        typer.echo(clean(dumps(task.result).decode()))
    return task


async def _show(there: Operations, task_id: str, screen: Screen) -> None:
    async with aclosing(there.stream(task_id)) as events:
        async for event in events:
            screen.tell(event)


class Lines:
    """For a pipe: chunks on standard output, everything else a line on standard error."""

    def __init__(self) -> None:
        self.streamed = False

    def tell(self, event: TaskEvent) -> None:
        if event.kind == "chunk":
            self.streamed = True
            sys.stdout.write(chunk_text(event))
            sys.stdout.flush()
            return
        if event.kind == "rollback":
            self.streamed = False
        told = sentence(event)
        if told:
            note(told)

    def close(self) -> None:
        if self.streamed:
            typer.echo()


class Terminal:
    """A bar at the bottom; output runs above it, its unfinished line just above the bar."""

    def __init__(self) -> None:
        self.streamed = False
        self._console = console()
        self._line = Text()
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._row = self._bar.add_task("", total=100)
        self._live = Live(Group(self._line, self._bar), console=self._console, transient=True)
        self._live.start()

    def tell(self, event: TaskEvent) -> None:
        if event.kind == "chunk":
            self.streamed = True
            *done, rest = (self._line.plain + chunk_text(event)).split("\n")
            for line in done:
                self._console.print(Text(line))
            self._line.plain = rest
            return
        if event.kind == "rollback":
            self.streamed, self._line.plain = False, ""
        if event.kind == "progress":
            percent, message = progress_of(event)
            self._bar.update(self._row, completed=percent, description=clean(message))
            return
        told, status = sentence(event), str(event.data.get("status", ""))
        if told:
            self._console.print(Text(clean(told), style=STYLES.get(status, "dim")))

    def close(self) -> None:
        self._live.stop()
        if self._line.plain:
            self._console.print(Text(self._line.plain))


def chunk_text(event: TaskEvent) -> str:
    chunk = event.data.get("chunk")
    return (
        clean(chunk, lines=True) if isinstance(chunk, str) else clean(dumps(chunk).decode()) + "\n"
    )


def progress_of(event: TaskEvent) -> tuple[float, str]:
    told = event.data.get("progress")
    progress = told if isinstance(told, dict) else {}
    return float(progress.get("percent") or 0), str(progress.get("message") or "")


def sentence(event: TaskEvent) -> str | None:
    """One line about an event, or None when it says nothing to people."""
    data = event.data
    if event.kind in ("state", "done"):
        status = str(data.get("status"))
        number = f" (attempt {event.attempt})" if status == "running" else ""
        error = data.get("error")
        because = f"{error.get('type')}: {error.get('message')}" if isinstance(error, dict) else ""
        reason = because or data.get("reason")
        return f"{status}{number}" + (f": {reason}" if reason else "")
    if event.kind == "progress":
        percent, message = progress_of(event)
        return f"{in_percent(percent)} {message}".rstrip()
    if event.kind == "rollback":
        return f"attempt {event.attempt} failed: the output above does not count"
    if event.kind in ("overdue", "reset"):
        return {"overdue": "overdue, and still at work", "reset": "older events were pruned"}[
            event.kind
        ]
    return None
