"""`outlast usage` and `budgets`: what was used of models, and what may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from outlast.cli.output import emit, say, table
from outlast.cli.settings import JsonFlag, Where, somewhere

if TYPE_CHECKING:
    from outlast.cli.operations import Operations
    from outlast.core.budgets import Then
    from outlast.http.schemas import UsageSum
    from outlast.usage import By

budgets = typer.Typer(help="Budgets: what may be used, set, remove.", invoke_without_command=True)

KeyArgument = Annotated[
    str,
    typer.Argument(metavar="KEY", show_default=False,
                   help="global, or type:, queue:, user: or session: with a name or a star."),
]  # fmt: skip
DayHelp = "As in 2026-11-16."


@somewhere
def usage(
    where: Where,
    by: Annotated[
        str, typer.Option("--by", help="day, type, queue, model, user or session.")
    ] = "day",
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="DAY", show_default=False, help=f"{DayHelp} Else 30 days."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--to", metavar="DAY", show_default=False, help=f"{DayHelp} Else today."),
    ] = None,
    type: Annotated[
        str | None, typer.Option("--type", show_default=False, help="Only for this type.")
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", show_default=False, help="Only in this queue.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", show_default=False, help="Only of this model.")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", show_default=False, help="Only for this user.")
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", show_default=False, help="Only for this session.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """What was used: tokens, money and what else attempts have reported."""

    async def read(there: Operations) -> None:
        found = await there.usage(
            cast("By", by),
            since=since,
            until=until,
            type=type,
            queue=queue,
            model=model,
            user_id=user,
            session_id=session,
        )
        if json:
            emit(found)
            return
        rows = [(getattr(item, by), *_row(item)) for item in found.items]
        if len(rows) > 1:
            rows.append(("all", *_row(found.total)))
        columns = (by.upper(), "REPORTS", "TOKENS", "IN", "OUT", "COST", "MORE")
        table(columns, rows, f"Nothing was used from {found.first} to {found.last}.")

    where.do(read)


def _row(sum: UsageSum) -> tuple[object, ...]:
    more = ", ".join(f"{value:g} {name}" for name, value in sum.more.items())
    return sum.reports, sum.tokens, sum.input_tokens, sum.output_tokens, f"{sum.cost:.4f}", more


# Budgets -----------------------------------------------------------------------------------------


@budgets.callback()
@somewhere
def budgets_default(where: Where, context: typer.Context, json: JsonFlag = False) -> None:
    """Budgets: what may be used, set, remove. Without a command: list them."""
    if context.invoked_subcommand is None:
        _ls(where, json=json)


@budgets.command("ls")
@somewhere
def ls(where: Where, json: JsonFlag = False) -> None:
    """List budgets, and what was used of them."""
    _ls(where, json=json)


def _ls(where: Where, *, json: bool) -> None:
    async def read(there: Operations) -> None:
        found = await there.budgets()
        if json:
            emit({"items": found, "next": None})
            return
        rows = ((b.key, b.cost, b.tokens, b.then, b.source) for b in found)
        table(("BUDGET", "COST", "TOKENS", "THEN", "FROM"), rows, "No budget is defined.")
        uses = [use for budget in found for use in budget.used]
        if uses:
            say("")
            table(
                ("KEY", "OF", "USED", "AMOUNT", "PER", "BEGINS ANEW", "WAITING"),
                ((u.key, u.measure, f"{u.used:,g}", f"{u.amount:,g}", u.span, u.resets_at,
                  u.waiting) for u in uses),
                "",
            )  # fmt: skip

    where.do(read)


@budgets.command("set")
@somewhere
def set_(
    where: Where,
    key: KeyArgument,
    cost: Annotated[
        str | None, typer.Option("--cost", show_default=False, help="As in 5.00/day, or 100.")
    ] = None,
    tokens: Annotated[
        str | None, typer.Option("--tokens", show_default=False, help="As in 1000000/month.")
    ] = None,
    then: Annotated[
        str, typer.Option("--then", help="hold: tasks wait; refuse: new ones are refused.")
    ] = "hold",
    json: JsonFlag = False,
) -> None:
    """Define a budget; it stays until it is removed, whatever code says."""

    async def work(there: Operations) -> None:
        made = await there.set_budget(key, cost=cost, tokens=tokens, then=cast("Then", then))
        if json:
            emit(made)
        else:
            amounts = ", ".join(filter(None, (made.cost, made.tokens and f"{made.tokens} tokens")))
            say(f"{made.key}: {amounts}, then {made.then}.")

    where.do(work)


@budgets.command("rm")
@somewhere
def rm(where: Where, key: KeyArgument, json: JsonFlag = False) -> None:
    """Delete a budget; one that code gives comes back as code gives it."""

    async def work(there: Operations) -> None:
        await there.delete_budget(key)
        if json:
            emit({"deleted": key})
        else:
            say(f"Deleted {key}.")

    where.do(work)
