"""What all screens do: read again when something has happened, act when told to, and say so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, Screen
from textual.timer import Timer
from textual.widgets import Static

from outlast.cli.operations import Operations
from outlast.core.errors import OutlastError
from outlast.http import schemas
from outlast.top.seen import cell

REST_S: Final = 0.5  # between two looks
REST_SHARE: Final = 5  # and so many times what a look took: a large engine is not kept busy by us
POLL_S: Final = 5.0  # for what no event tells: a worker lost, a time that has come
AWAY_S: Final = 1.0
PATIENCE_S: Final = 30.0
SAID_S: Final = 10.0
WRONG: Final = (OutlastError, OSError)


class Live(Screen[None]):
    """A screen over some operations."""

    KEYS = ""

    def __init__(self, there: Operations, *, read_only: bool) -> None:
        super().__init__()
        self.there = there
        self.read_only = read_only
        self.stale, self.asked = asyncio.Event(), asyncio.Event()
        self._said: Timer | None = None

    def on_mount(self) -> None:
        self.hush()
        self.run_worker(self._keep_reading())

    async def read(self) -> None:
        """Look, and show it."""
        raise NotImplementedError

    def troubled(self, told: str) -> None:
        """Nobody was there to be asked."""
        self.say(told, wrong=True)

    def hurry(self) -> None:
        """Look now: whoever pressed a key is not to wait."""
        self.stale.set()
        self.asked.set()

    async def _keep_reading(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            self.stale.clear()
            self.asked.clear()
            began = clock()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self.read()
            except (*WRONG, TimeoutError) as problem:
                self.troubled(str(problem) or f"No answer within {PATIENCE_S:.0f} s.")
                await _within(AWAY_S, self.asked)
                continue
            await _within(max(REST_S, (clock() - began) * REST_SHARE), self.asked)
            await _within(POLL_S, self.stale)

    def act(self, work: Callable[[], Awaitable[str]], question: str = "") -> None:
        """Do it, if it may be done and once it is agreed to; say what came of it."""
        self.run_worker(self._act(work, question))

    async def _act(self, work: Callable[[], Awaitable[str]], question: str) -> None:
        if self.read_only:
            return self.say("It was started with --read-only: nothing is changed.", wrong=True)
        if question and not await self.app.push_screen_wait(Ask(question)):
            return None
        try:
            self.say(await work())
        except WRONG as problem:
            self.say(str(problem), wrong=True)
        return self.hurry()

    def end(self, how: str, task: schemas.Task) -> None:
        """Cancel or retry it."""

        async def work() -> str:
            done = await (self.there.cancel if how == "cancel" else self.there.retry)(task.id)
            stopping = how == "cancel" and done.state == "running"
            return f"{task.type} {task.id} is {'asked to stop' if stopping else done.status}."

        self.act(work, f"{how.capitalize()} {task.type} {task.id}?")

    def say(self, told: str, *, wrong: bool = False) -> None:
        """A sentence in the last line, for a while."""
        self._foot(Text.assemble("✕ " if wrong else "✓ ", cell(told), style="bold"), said=True)
        if self._said is not None:
            self._said.stop()
        self._said = self.set_timer(SAID_S, self.hush)

    def hush(self) -> None:
        self._foot(Text(self.KEYS, style="dim"), said=False)

    def _foot(self, line: Text, *, said: bool) -> None:
        foot = self.query_one("#foot", Static)
        foot.set_class(said, "said")
        foot.update(line)


async def _within(seconds: float, event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


class Ask(ModalScreen[bool]):
    """A question, in front of everything."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)"),
        Binding("n,escape,q", "dismiss(False)"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        yield Static(Text.assemble(cell(self.question), "\n\n", ("y", "bold"), " yes   ",
                                   ("n", "bold"), " no"), classes="box")  # fmt: skip
