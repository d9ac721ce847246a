"""One task: its record, why it is where it is, its error, and its last events."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing, suppress
from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from outlast.cli.follow import chunk_text, sentence
from outlast.cli.operations import Operations, TaskEvent
from outlast.cli.tasks import facts_of
from outlast.core.codec import dumps
from outlast.core.states import FINAL, Ms
from outlast.core.text import clean
from outlast.http import schemas
from outlast.top.live import WRONG, Live
from outlast.top.seen import cell, mark

EVENTS: Final = 30
LONGEST: Final = 4_000  # characters of one value: `outlast tasks show` has all of them


class TaskScreen(Live):
    """It stays live: read again after each event."""

    KEYS = "escape back  ↑↓ scroll  c cancel  r retry"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace", "app.pop_screen"),
        Binding("c", "change('cancel')"),
        Binding("r", "change('retry')"),
    ]

    def __init__(self, there: Operations, task: schemas.Task, *, read_only: bool) -> None:
        super().__init__(there, read_only=read_only)
        self.task_ = task
        self.events: deque[str] = deque(maxlen=EVENTS)
        self.following = False

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="story")
        yield Static(id="foot")

    async def read(self) -> None:
        id = self.task_.id
        self.task_, why, now = await asyncio.gather(
            self.there.get(id), self.there.why(id), self.there.now()
        )
        if not self.following and (not self.events or self.task_.state not in FINAL):
            self.following = True
            self.run_worker(self._follow())
        self.query_one("#story", Static).update(story(self.task_, why, self.events, now))

    async def _follow(self) -> None:
        """Its events, anew from the first: they are read until it is over."""
        self.events.clear()
        with suppress(*WRONG):
            async with aclosing(self.there.stream(self.task_.id)) as events:
                async for event in events:
                    self.events.append(line_of(event))
                    self.stale.set()
        self.following = False

    def action_change(self, how: str) -> None:
        self.end(how, self.task_)


def line_of(event: TaskEvent) -> str:
    if event.kind == "chunk":
        return f"output: {chunk_text(event)}"
    return sentence(event) or f"{event.kind} {dumps(event.data).decode()}"


def story(task: schemas.Task, why: schemas.Why, events: deque[str], now: Ms) -> Text:
    """All of it, from top to bottom: what is most asked for first."""
    told = Text.assemble(mark(task.status), "  ", cell(task.type), style="bold")
    told = Text.assemble(told, "\n", cell(why.text), "\n")
    if task.error is not None:
        told.append(f"\n{shown(task.error.type)}: {shown(task.error.message)}\n", style="bold red")
    told.append("\n")
    for name, value in facts_of(task, now):
        told.append(f"{name:<14}", style="bold")
        told.append(f"{shown(value)}\n")
    for one in task.attempts:
        failed = f": {shown(one.error.type)}: {shown(one.error.message)}" if one.error else ""
        told.append(f"{'attempt ' + str(one.number):<14}", style="bold")
        told.append(f"{one.outcome} on {shown(one.worker)}{failed}\n")
    told.append("\nlast events\n" if events else "", style="bold")
    told.append("".join(f"{shown(line)}\n" for line in events))
    if task.error is not None and task.error.traceback:
        told.append(f"\n{clean(task.error.traceback[-LONGEST:], lines=True)}", style="dim")
    return told


def shown(value: object) -> str:
    text = clean(str(value))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"
