"""One task: its record, why it is where it is, its error, and its last events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import aclosing, suppress
from typing import ClassVar, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from outlast.cli.follow import sentence
from outlast.cli.operations import Operations, TaskEvent
from outlast.cli.tasks import facts_of
from outlast.core.codec import dumps
from outlast.core.states import FINAL, Ms
from outlast.core.text import clean
from outlast.http import schemas
from outlast.top.live import WRONG, Live
from outlast.top.seen import mark

EVENTS: Final = 30
OUTPUT: Final = "output"
LONGEST: Final = 4_000  # characters of one value: `outlast tasks show` has all of them

Said = tuple[str, str]
"""The kind of an event, and what it says."""


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
        self.events: deque[Said] = deque(maxlen=EVENTS)
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
                    heard(self.events, event)
                    self.stale.set()
        self.following = False

    def action_change(self, how: str) -> None:
        self.end(how, self.task_)


def heard(events: deque[Said], event: TaskEvent) -> None:
    """One event more; what is put out piece by piece is one text."""
    if event.kind != "chunk":
        return events.append((event.kind, sentence(event) or dumps(event.data).decode()))
    chunk = event.data.get("chunk")
    said = chunk if isinstance(chunk, str) else f"{dumps(chunk).decode()}\n"
    before = events.pop()[1] if events and events[-1][0] == OUTPUT else ""
    return events.append((OUTPUT, (before + said)[-LONGEST:]))


def story(task: schemas.Task, why: schemas.Why, events: Sequence[Said], now: Ms) -> Group:
    """All of it, from top to bottom: what is most asked for first."""
    told = Text.assemble(mark(task.status), "  ", (f"{shown(task.type)}\n", "bold"))
    told.append(f"{shown(why.text)}\n")
    if task.error is not None:
        told.append(f"\n{failure(task.error)}\n", style="bold red")
    facts = [(name, shown(value)) for name, value in facts_of(task, now)]
    for one in task.attempts:
        failed = f": {failure(one.error)}" if one.error else ""
        facts.append((f"attempt {one.number}", f"{one.outcome} on {shown(one.worker)}{failed}"))
    parts: list[RenderableType] = [told, pairs(facts)]
    if events:
        lines = [(shown(kind), shown(text, lines=kind == OUTPUT)) for kind, text in events]
        parts += [Text("\nlast events", style="bold"), pairs(lines)]
    if task.error is not None and task.error.traceback:
        trace = shown(task.error.traceback[-LONGEST:], lines=True)
        parts.append(Text(f"\n{trace}", style="dim"))
    return Group(*parts)


def pairs(told: Iterable[tuple[str, str]]) -> Table:
    """Names and values; a value of several lines stays in its column."""
    drawn = Table.grid(padding=(0, 2, 0, 0))
    drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in told:
        drawn.add_row(Text(name, style="bold"), Text(value))
    return drawn


def failure(error: schemas.AttemptError) -> str:
    return f"{shown(error.type)}: {shown(error.message)}"


def shown(value: object, *, lines: bool = False) -> str:
    told = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    text = clean(told, lines=lines)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"
