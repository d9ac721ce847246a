"""`outlast top`: the terminal twin of the dashboard."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from outlast.cli.settings import Where, somewhere
from outlast.cli.tasks import FilterArgument
from outlast.core.errors import BadInput, OutlastError

if TYPE_CHECKING:
    from outlast.cli.operations import Operations


@somewhere
def top(
    where: Where,
    filter: FilterArgument = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Only look: its keys change nothing.")
    ] = False,
) -> None:
    """Watch tasks, queues, workers, limits and failures in the terminal, and set them right.

    Keys: tab or 1 to 5 for a panel, enter to open, / to filter, p, c and r to pause, cancel and
    retry, ? for all of them, q to quit.
    """
    try:
        import textual as _textual  # noqa: F401
    except ModuleNotFoundError as missing:
        raise OutlastError(
            f"outlast top needs {missing.name}: pip install 'outlast[tui]'"
        ) from missing
    # The screen is drawn on standard error.
    is_terminal = all(one.isatty() for one in (sys.stdin, sys.stdout, sys.stderr))
    if not is_terminal or os.environ.get("TERM", "dumb") == "dumb":
        raise BadInput(
            "outlast top needs a terminal; in a script, `outlast queues --json` and"
            " `outlast tasks ls --json` tell the same."
        )

    async def look(there: Operations) -> None:
        from outlast.top.board import watch

        await watch(there, " ".join(filter or ()), read_only=read_only)

    where.do(look)
