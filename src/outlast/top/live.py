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
        self.stale = asyncio.Event()
        self._said: Timer | None = None

    def on_mount(self) -> None:
        self._hush()
        self.run_worker(self._keep_reading())

    async def read(self) -> None:
        """Look, and show it."""
        raise NotImplementedError

    def troubled(self, told: str) -> None:
        """Nobody was there to be asked."""
        self.say(told, wrong=True)

    async def _keep_reading(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            self.stale.clear()
            began, wait_s = clock(), POLL_S
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self.read()
            except (*WRONG, TimeoutError) as problem:
                self.troubled(str(problem) or f"No answer within {PATIENCE_S:.0f} s.")
                wait_s = AWAY_S
            await asyncio.sleep(max(REST_S, (clock() - began) * REST_SHARE))
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stale.wait(), wait_s)

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
        return self.stale.set()

    def end(self, how: str, task: schemas.Task) -> None:
        """Cancel or retry it."""

        async def work() -> str:
            done = await (self.there.cancel if how == "cancel" else self.there.retry)(task.id)
            stopping = how == "cancel" and done.state == "running"
            return f"{task.type} {task.id} is {'asked to stop' if stopping else done.status}."

        self.act(work, f"{how.capitalize()} {task.type} {task.id}?")

    def say(self, told: str, *, wrong: bool = False) -> None:
        """A sentence in the last line, for a while."""
        line = Text.assemble("✕ " if wrong else "✓ ", cell(told), style="bold")
        self.query_one("#foot", Static).update(line)
        if self._said is not None:
            self._said.stop()
        self._said = self.set_timer(SAID_S, self._hush)

    def _hush(self) -> None:
        self.query_one("#foot", Static).update(Text(self.KEYS, style="dim"))


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
