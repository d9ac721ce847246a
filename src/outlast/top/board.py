"""The screen of `outlast top`: a head, five panels of which one is open, and a line of keys.

In a terminal of 44 lines or more all panels show rows, in one of less than 16 there is but the open
one.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import aclosing, suppress
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.strip import Strip
from textual.widgets import Input, OptionList, Static

from outlast.cli.operations import Operations
from outlast.http import schemas
from outlast.top.live import POLL_S, WRONG, Live
from outlast.top.seen import (
    WIDE,
    Row,
    Seen,
    Table,
    cell,
    counted,
    counts,
    head,
    lines,
    look,
    tables,
)
from outlast.top.task import TaskScreen

PANELS: Final = ("tasks", "queues", "workers", "limits", "failures")
LOW: Final = 16
TALL: Final = 44
CHOSEN: Final = Style(color="default", bgcolor="default", reverse=True)
MEANT: Final = {
    "pause": "a queue (2 shows them)",
    "cancel": "a task (1 shows them)",
    "retry": "a task (1 shows them) or a failure (5)",
}
HELP: Final = """\
tab  1–5   the next panel, or the one of that number
↑ ↓        the next row; also page up and down, home, end
enter      open a task; find those of a queue or of a failure
/          filter tasks, as in status:dead age>1h -queue:bulk
escape     no filter any more
p          pause the selected queue, or resume it
c          cancel the selected task
r          retry the selected task; redrive all of a failure
q          quit

▶ running  ● ready  ↻ retrying  ◷ scheduled  ≡ throttled
‖ blocked  ! stalled  ✕ dead  – cancelled  ✓ completed"""


class Rows(OptionList):
    """A line for each row. The chosen one is reversed: that every terminal can show, in its own
    colours."""

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        if not self.has_focus or self.scroll_offset.y + y != self.highlighted:
            return strip
        return Strip(Segment.apply_style(strip, post_style=CHOSEN), strip.cell_length)


class Panel(Vertical):
    """One kind of things: a heading, and rows when there is room for them."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__(id=name)
        self.title = f"{number} {name.capitalize()}"
        self.rows: tuple[Row, ...] = ()
        self.heading, self.columns = Static(classes="heading"), Static(classes="columns")
        self.list = Rows(compact=True)

    def compose(self) -> ComposeResult:
        yield from (self.heading, self.columns, self.list)

    async def on_click(self) -> None:
        await self.run_action(f"screen.open('{self.id}')")

    @property
    def chosen(self) -> object:
        at = self.list.highlighted
        return None if at is None or at >= len(self.rows) else self.rows[at].of

    def tell(self, table: Table, width: int) -> None:
        """Other rows. Who has chosen one keeps it wherever it goes, but whoever is at the first
        task stays there, to see new ones come."""
        at = self.list.highlighted or 0
        key = self.rows[at].key if at < len(self.rows) and (at or self.id != "tasks") else None
        self.rows = table.rows
        sign = "▾" if self.has_class("open") else "▸"
        self.heading.update(Text.assemble((f"{sign} {self.title}", "bold"), "  ", cell(table.gist)))
        columns, told = lines(table, width)
        self.columns.update(columns)
        self.set_class(not told, "empty")
        for n, line in enumerate(told):
            if n >= self.list.option_count:
                self.list.add_option(line)
            elif self.list.get_option_at_index(n).prompt != line:
                self.list.replace_option_prompt_at_index(n, line)
        while self.list.option_count > len(told):
            self.list.remove_option_at_index(self.list.option_count - 1)
        there = next((n for n, row in enumerate(self.rows) if row.key == key), at)
        self.list.highlighted = min(there, len(told) - 1) if told else None


class Board(Live):
    """Everything at a glance."""

    KEYS = "? help  q quit  tab panel  enter open  / filter  p pause  c cancel  r retry"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "turn(1)"),
        Binding("shift+tab", "turn(-1)"),
        *(Binding(str(n), f"open('{name}')") for n, name in enumerate(PANELS, 1)),
        Binding("slash", "ask_filter", priority=True),  # before the next key is dealt with
        Binding("escape", "leave"),
        Binding("p", "change('pause')"),
        Binding("c", "change('cancel')"),
        Binding("r", "change('retry')"),
        Binding("question_mark", "help"),
        Binding("q", "app.quit"),
    ]

    def __init__(self, there: Operations, seen: Seen, filter: str, *, read_only: bool) -> None:
        super().__init__(there, read_only=read_only)
        self.seen, self.filter = seen, filter
        self.trouble = ""
        self.opened = PANELS[0]

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Static(id="counts")
        yield from (Panel(name, n) for n, name in enumerate(PANELS, 1))
        yield Input(id="filter", placeholder="status:dead age>1h type:summarize", compact=True)
        yield Static(id="foot")

    def on_mount(self) -> None:
        self.query_one("#filter").display = False
        self.action_open(self.opened)
        super().on_mount()

    def on_resize(self) -> None:
        self.show()

    async def read(self) -> None:
        self.seen = await look(self.there, self.filter, max(self.size.height, 50))
        self.trouble = ""
        self.show()

    def troubled(self, told: str) -> None:
        self.trouble = told
        self.show()

    def show(self) -> None:
        told = head(self.there.place, self.seen, self.trouble, read_only=self.read_only)
        self.query_one("#head", Static).set_class(bool(self.trouble), "troubled").update(told)
        self.query_one("#counts", Static).update(counts(self.seen, self.size.width))
        shown = tables(self.seen, self.filter, wide=self.size.width >= WIDE)
        for name, table in shown.items():
            self.query_one(f"#{name}", Panel).tell(table, self.size.width - 1)  # the scrollbar

    # keys ----------------------------------------------------------------------------------------

    def action_open(self, name: str) -> None:
        self.opened = name
        for panel in self.query(Panel):
            panel.set_class(panel.id == name, "open")
        self.show()
        self.query_one(f"#{name}", Panel).list.focus()

    def action_turn(self, by: int) -> None:
        self.action_open(PANELS[(PANELS.index(self.opened) + by) % len(PANELS)])

    def action_ask_filter(self) -> None:
        asked = self.query_one("#filter", Input)
        asked.value, asked.display = self.filter, True
        self.set_focus(asked)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A slash in a filter is a letter."""
        return action != "ask_filter" or not self.query_one("#filter").display

    def action_leave(self) -> None:
        """Back from the filter; or without one."""
        if not self.query_one("#filter").display:
            self.find("")
        self.query_one("#filter").display = False
        self.query_one(f"#{self.opened}", Panel).list.focus()

    def on_input_submitted(self, told: Input.Submitted) -> None:
        self.run_worker(self._try(told.value.strip()))

    async def _try(self, filter: str) -> None:
        """A filter that is refused stays there, to be put right."""
        try:
            await self.there.page(q=filter, limit=1)
        except WRONG as problem:
            return self.say(str(problem), wrong=True)
        self.query_one("#filter").display = False
        self.hush()
        return self.find(filter)

    def find(self, filter: str) -> None:
        self.filter = filter
        self.action_open("tasks")
        self.hurry()

    def on_option_list_option_selected(self) -> None:
        match self.chosen:
            case schemas.Task() as task:
                self.app.push_screen(TaskScreen(self.there, task, read_only=self.read_only))
            case (str() as name, schemas.Queue()):
                self.find(f"queue:{quoted(name)}")
            case schemas.DeadGroup() as group:
                self.find(dead_of(group))

    @property
    def chosen(self) -> object:
        return self.query_one(f"#{self.opened}", Panel).chosen

    def action_change(self, how: str) -> None:
        match how, self.chosen:
            case "pause", (str() as name, schemas.Queue() as queue):
                self.act(lambda: self._pause(name, paused=not queue.paused))
            case (("cancel" | "retry"), schemas.Task() as task):
                self.end(how, task)
            case "retry", schemas.DeadGroup() as group:
                self.run_worker(self._redrive(dead_of(group)))
            case _:
                self.say(f"Select {MEANT[how]} to {how}.", wrong=True)

    async def _pause(self, name: str, *, paused: bool) -> str:
        told = await (self.there.pause if paused else self.there.resume)(name)
        return f"{name} is {'paused' if told.paused else 'open'}."

    async def _redrive(self, filter: str) -> None:
        async def tell(done: int) -> None:
            self.say(f"{done:,} of {n:,} redriven …")

        async def work() -> str:
            await tell(0)
            return f"{await self.there.change('retry', filter, tell=tell):,} redriven."

        try:
            n = await self.there.matching("retry", filter)
        except WRONG as problem:
            return self.say(str(problem), wrong=True)
        return self.act(work, f"Redrive {counted(n, 'dead task')}? {filter}")

    def action_help(self) -> None:
        self.app.push_screen(Help())


class Help(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss")]

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box"):
            yield Static(Text(HELP))


class Top(App[None]):
    """The whole of it, in the colours of the terminal."""

    ENABLE_COMMAND_PALETTE = False
    VERTICAL_BREAKPOINTS = [(0, "-low"), (LOW, "-middle"), (TALL, "-tall")]  # noqa: RUF012  # as textual has it
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "quit", priority=True)]
    CSS = """
    Screen { overflow: hidden; }
    Static, OptionList { text-wrap: nowrap; text-overflow: ellipsis; }
    #head, #counts, #foot, #story, .box { height: auto; }
    #head.troubled, #foot.said, #story, .box { text-wrap: wrap; }
    #foot { dock: bottom; max-height: 3; }
    Panel, Panel OptionList { height: auto; }
    .-low Panel { display: none; }
    .-low Panel.open { display: block; }
    Panel .columns, Panel OptionList { display: none; }
    Panel OptionList { scrollbar-size-vertical: 1; max-height: 5; }
    Panel.open { height: 1fr; }
    Panel.open .columns, .-tall .columns, Panel.open OptionList, .-tall OptionList {
        display: block;
    }
    Panel.open OptionList { height: 1fr; max-height: 100%; }
    Panel.empty .columns { display: none; }
    OptionList > .option-list--option-highlighted,
    OptionList:focus > .option-list--option-highlighted {
        color: ansi_default; background: ansi_default;
    }
    ModalScreen { align: center middle; }
    .box { width: auto; max-width: 100%; padding: 0 2; border: round ansi_default; }
    .box Static { width: auto; max-width: 100%; height: auto; text-wrap: wrap; }
    """

    def __init__(self, there: Operations, board: Board) -> None:
        super().__init__()
        self.there, self.board = there, board
        self.theme = "ansi-dark"
        self.problem: BaseException | None = None

    def get_default_screen(self) -> Screen[None]:
        return self.board

    def on_mount(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit)
        self.run_worker(self._listen())

    async def _listen(self) -> None:
        """Screens look again when something has happened; without hints they look now and then."""
        while True:
            with suppress(*WRONG):
                async with aclosing(self.there.changes()) as hints:
                    async for _ in hints:
                        for screen in self.screen_stack:
                            if isinstance(screen, Live):
                                screen.stale.set()
            await asyncio.sleep(POLL_S)

    def _fatal_error(self) -> None:
        """Ends it, for the command to tell: textual would print the values of local variables."""
        self.problem = sys.exception()
        self._close_messages_no_wait()


async def watch(there: Operations, filter: str, *, read_only: bool) -> None:
    """Until it is quit. What is wrong from the start is told before the screen is taken."""
    seen = await look(there, filter, 50)
    if "tasks" in seen.refused:
        raise seen.refused["tasks"]
    top = Top(there, Board(there, seen, filter, read_only=read_only))
    await top.run_async()
    if top.problem is not None:
        raise top.problem


def dead_of(group: schemas.DeadGroup) -> str:
    mark = f" error:{group.fingerprint}" if group.fingerprint else ""
    return f"status:dead type:{quoted(group.type)}{mark}"


def quoted(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
