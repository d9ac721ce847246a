"""What commands print: one JSON document, or tables and text with control characters escaped."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

from outlast.core.errors import BadInput
from outlast.core.text import clean

STYLES: Final[dict[str, str]] = {
    "ready": "cyan",
    "scheduled": "blue",
    "retrying": "yellow",
    "throttled": "yellow",
    "blocked": "magenta",
    "running": "bold cyan",
    "stalled": "bold yellow",
    "completed": "green",
    "cancelled": "dim",
    "dead": "bold red",
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
}
WIDE: Final = 10_000  # columns of a pipe: nothing there is to be wrapped or cut


def emit(view: object) -> None:
    """The one JSON document of a command; indented for people, in one line for programs."""
    import msgspec

    from outlast.views import to_json

    data = to_json(view)
    if sys.stdout.isatty():
        data = msgspec.json.format(data, indent=2)
    typer.echo(data.decode())


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def say(text: str, *, lines: bool = False) -> None:
    typer.echo(clean(text, lines=lines))


def note(text: str) -> None:
    """For the person, not for the pipe."""
    typer.echo(clean(text), err=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """A table; a column called ID is never cut, for it is there to be copied."""
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        drawn.add_column(column, no_wrap=True, overflow="fold" if column == "ID" else "ellipsis",
                         min_width=36 if column == "ID" else None)  # fmt: skip
    for row in rows:
        drawn.add_row(*map(cell, row))
    if drawn.row_count:
        console().print(drawn)
    else:
        note(empty)


def facts(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values, one pair a line; values that are None are left out."""
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, show_header=False)
    drawn.add_column(style="bold", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None:
            drawn.add_row(name, cell(value))
    console().print(drawn)


def cell(value: object) -> Text:
    from rich.text import Text

    if isinstance(value, Text):
        return value
    text = "" if value is None else clean(str(value))
    return Text(text, style=STYLES.get(text, ""))


def age(ms: int) -> str:
    """A duration to glance at: its largest unit only."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if ms >= size:
            return f"{ms // size}{unit}"
    return f"{max(ms, 0)}ms"


def in_percent(percent: float) -> str:
    """How far something is, to glance at."""
    return f"{round(percent)} %"


def agreed(question: str, yes: bool) -> bool:
    """May it be done? Asks a person, if there is one."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise BadInput(f"{question} Nobody can be asked here: add --yes, or look with --dry-run.")
    return typer.confirm(question, err=True)


@contextmanager
def counting(verb: str, total: int) -> Iterator[Callable[[int], Awaitable[None]]]:
    """A bar for work on many things, on a terminal; nothing elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(verb, total=total)

        async def tell(done: int) -> None:
            bar.update(task, completed=done)

        yield tell
