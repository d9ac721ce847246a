"""`outlast dlq`: the dead, to be listed, grouped, redriven or purged."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from outlast.cli.output import agreed, counting, emit, say, table
from outlast.cli.settings import JsonFlag, Where, somewhere
from outlast.cli.tasks import (
    FilterArgument,
    QueueFlag,
    SessionFlag,
    TagFlag,
    TypeFlag,
    UserFlag,
    show_tasks,
)

if TYPE_CHECKING:
    from outlast.cli.operations import Operations
    from outlast.client.tasks import Action

app = typer.Typer(help="The dead: list them, group them, redrive or purge them.",
                  no_args_is_help=True)  # fmt: skip

ErrorFlag = Annotated[
    str | None,
    typer.Option("--error", metavar="TEXT", show_default=False,
                 help="Whose error has this type or fingerprint, as `dlq groups` shows them."),
]  # fmt: skip
YesFlag = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Only tell how many it would be.")]
MARKS: Final = 50  # fingerprints in one filter, which has 2,000 characters at most


@app.command("ls")
@somewhere
def ls(
    where: Where,
    filter: FilterArgument = None,
    type: TypeFlag = None,
    queue: QueueFlag = None,
    session: SessionFlag = None,
    user: UserFlag = None,
    tag: TagFlag = None,
    limit: Annotated[int, typer.Option("--limit", help="At most this many, up to 500.")] = 50,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Where the last page ended.", show_default=False)
    ] = None,
    json: JsonFlag = False,
) -> None:
    """List dead tasks, newest first."""
    params = {
        "status": "dead", "type": type, "queue": queue, "session_id": session, "user_id": user,
        "tag": tag, "q": " ".join(filter or ()), "limit": limit, "cursor": cursor,
    }  # fmt: skip
    show_tasks(params, where, json=json)


@app.command("groups")
@somewhere
def groups(where: Where, json: JsonFlag = False) -> None:
    """Group dead tasks by what killed them."""

    async def read(there: Operations) -> None:
        found = await there.dead_groups()
        if json:
            emit({"items": found, "next": None})
            return
        columns = ("COUNT", "TYPE", "ERROR", "MESSAGE", "FINGERPRINT", "ID")
        rows = ((g.count, g.type, g.error_type, g.message, g.fingerprint, g.example) for g in found)
        table(columns, rows, "Nothing is dead.")

    where.do(read)


@app.command("redrive")
@somewhere
def redrive(
    where: Where,
    filter: FilterArgument = None,
    type: TypeFlag = None,
    error: ErrorFlag = None,
    queue: QueueFlag = None,
    session: SessionFlag = None,
    user: UserFlag = None,
    tag: TagFlag = None,
    rate: Annotated[
        str | None,
        typer.Option("--rate", help="At this pace, as in 10/s.", show_default=False),
    ] = None,
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
    json: JsonFlag = False,
) -> None:
    """Put dead tasks back to pending, with their history and fresh budgets."""
    from outlast.ops import check_pace

    check_pace("retry", rate)  # refused also when nothing is dead
    fit = _filter(type, queue, session, user, tag, filter)
    # Nothing is lost by a redrive: only a person who can be asked is asked.
    sure = yes or not sys.stdin.isatty()

    async def work(there: Operations) -> None:
        n, done = await _change(
            there, "retry", fit, error, rate, "Redrive {}?", sure=sure, dry_run=dry_run
        )
        _did("redriven", n, done, dry_run=dry_run, json=json)

    where.do(work)


@app.command("purge")
@somewhere
def purge(
    where: Where,
    filter: FilterArgument = None,
    type: TypeFlag = None,
    error: ErrorFlag = None,
    queue: QueueFlag = None,
    session: SessionFlag = None,
    user: UserFlag = None,
    tag: TagFlag = None,
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
    json: JsonFlag = False,
) -> None:
    """Delete dead tasks for good."""
    fit = _filter(type, queue, session, user, tag, filter)

    async def work(there: Operations) -> None:
        n, done = await _change(
            there, "delete", fit, error, None, "Delete {} for good?", sure=yes, dry_run=dry_run
        )
        _did("purged", n, done, dry_run=dry_run, json=json)

    where.do(work)


async def _change(
    there: Operations,
    action: Action,
    fit: str,
    error: str | None,
    rate: str | None,
    question: str,
    *,
    sure: bool,
    dry_run: bool,
) -> tuple[int, int]:
    """How many fit, and how many were changed."""
    filters = [fit] if error is None else [f"{fit} {m}" async for m in _marks(there, error)]
    n = sum([await there.matching(action, one) for one in filters])
    if dry_run or not n or not agreed(question.format(_tasks(n)), sure):
        return n, 0
    done = 0
    with counting(action, n) as tell:
        for one in filters:
            before = done

            async def tell_all(changed: int, before: int = before) -> None:
                await tell(before + changed)

            done += await there.change(action, one, rate=rate, tell=tell_all)
    return n, done


async def _marks(there: Operations, error: str) -> AsyncIterator[str]:
    """Filters for an error, which is told by the fingerprints that its groups have."""
    groups = await there.dead_groups()
    same = (group for group in groups if error in (group.error_type, group.fingerprint))
    marks = sorted({group.fingerprint for group in same if group.fingerprint is not None})
    for start in range(0, max(len(marks), 1), MARKS):
        yield _term("error", ",".join(marks[start : start + MARKS]) or error)


def _filter(
    type: str | None, queue: str | None, session: str | None, user: str | None, tag: str | None,
    filter: list[str] | None,
) -> str:  # fmt: skip
    """The flags in the filter language."""
    told = {"type": type, "queue": queue, "session": session, "user": user, "tag": tag}
    terms = (_term(name, value) for name, value in told.items() if value)
    return " ".join(["status:dead", *terms, *(filter or ())])


def _term(field: str, values: str) -> str:
    """Values apart by commas, each quoted."""
    parts = (value.strip().replace("\\", "\\\\").replace('"', '\\"') for value in values.split(","))
    return f"{field}:" + ",".join(f'"{part}"' for part in parts if part)


def _did(verb: str, matched: int, done: int, *, dry_run: bool, json: bool) -> None:
    if json:
        emit({"matched": matched, verb: done, "dry_run": dry_run})
    elif dry_run:
        say(f"{_tasks(matched)} would be {verb}.")
    else:
        say(f"{_tasks(done)} {verb}.")


def _tasks(n: int) -> str:
    return f"{n:,} dead task" if n == 1 else f"{n:,} dead tasks"
