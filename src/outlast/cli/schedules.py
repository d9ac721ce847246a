"""`outlast schedules …`: tasks by the clock: listed, made, paused, run now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from outlast.cli.enqueue import object_of, text_flag
from outlast.cli.output import emit, facts, say, table
from outlast.cli.settings import JsonFlag, Where, somewhere
from outlast.core.errors import BadInput

if TYPE_CHECKING:
    from outlast.cli.operations import Operations
    from outlast.http.schemas import Schedule

app = typer.Typer(help="Schedules: list, make, pause, run now.", invoke_without_command=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.", show_default=False)]
_CATCH_UP = Literal["latest", "all", "none"]
_OVERLAP = Literal["allow", "skip", "cancel"]


@app.callback()
@somewhere
def default(where: Where, context: typer.Context, json: JsonFlag = False) -> None:
    """Schedules: list, make, pause, run now. Without a command: list them."""
    if context.invoked_subcommand is None:
        _ls(where, json=json)


@app.command("ls")
@somewhere
def ls(where: Where, json: JsonFlag = False) -> None:
    """List schedules, with their next firing."""
    _ls(where, json=json)


def _ls(where: Where, *, json: bool) -> None:
    async def read(there: Operations) -> None:
        found = await there.schedules()
        if json:
            emit({"items": found, "next": None})
            return
        table(
            ("SCHEDULE", "TYPE", "WHEN", "ZONE", "NEXT", "FROM", ""),
            ((s.name, s.type, s.every or s.at, s.tz, next(iter(s.next), None), s.source,
              "paused" if s.paused else s.error) for s in found),
            "There is no schedule.",
        )  # fmt: skip

    where.do(read)


@app.command("show")
@somewhere
def show(where: Where, name: Name, json: JsonFlag = False) -> None:
    """Show a schedule, with its next firings."""

    async def read(there: Operations) -> None:
        found = await there.schedule(name)
        if json:
            emit(found)
        else:
            _record(found)

    where.do(read)


def _record(schedule: Schedule) -> None:
    import msgspec

    view = msgspec.to_builtins(schedule)
    coming = view.pop("next")
    for name in ("payload", "options"):
        view[name] = msgspec.json.encode(view[name]).decode() if view[name] else None
    facts((name, value) for name, value in view.items() if value not in (None, False, 0.0))
    for at in coming:
        say(f"next  {at}")


@app.command("add")
@somewhere
def add(
    where: Where,
    name: Name,
    type: Annotated[str, typer.Argument(metavar="TYPE", show_default=False, help="What to run.")],
    payload: Annotated[
        str, typer.Argument(metavar="[JSON|@FILE|-]", help="Its arguments; - is standard input.")
    ] = "{}",
    every: Annotated[
        str | None, text_flag("--every", "As in '0 3 * * *', @daily or 15m.", "WHEN")
    ] = None,
    at: Annotated[
        str | None, text_flag("--at", "Once, as in 2027-01-01T00:00:00Z.", "MOMENT")
    ] = None,
    tz: Annotated[str, typer.Option("--tz", metavar="ZONE", help="As in Europe/Berlin.")] = "UTC",
    catch_up: Annotated[
        str, typer.Option("--catch-up", help="Of what was missed: latest, all or none.")
    ] = "latest",
    overlap: Annotated[
        str, typer.Option("--overlap", help="When the last one still lives: allow, skip, cancel.")
    ] = "allow",
    jitter: Annotated[
        str, typer.Option("--jitter", metavar="DURATION", help="Each up to this much later.")
    ] = "0s",
    options: Annotated[
        str, typer.Option("--options", metavar="JSON", help="Options of its tasks.")
    ] = "{}",
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Make a schedule, or replace it; it stays until it is removed, whatever code says."""
    if (every is None) == (at is None):
        raise BadInput("Give --every or --at.", field="every")
    arguments, chosen = object_of(payload, "The payload"), object_of(options, "--options")

    async def work(there: Operations) -> None:
        made = await there.save_schedule(
            name, type, arguments, options=chosen,
            **({"every": every} if at is None else {"at": at}),
            tz=tz, catch_up=cast("_CATCH_UP", catch_up), overlap=cast("_OVERLAP", overlap),
            jitter=jitter,
        )  # fmt: skip
        if json:
            emit(made)
        else:
            say(f"{name} fires next at {next(iter(made.next), 'no time')}.")

    where.do(work, with_app=True)


@app.command("rm")
@somewhere
def rm(where: Where, name: Name, json: JsonFlag = False) -> None:
    """Delete a schedule; one that code gives comes back when its app starts."""

    async def work(there: Operations) -> None:
        await there.delete_schedule(name)
        if json:
            emit({"removed": name})
        else:
            say(f"{name} is removed.")

    where.do(work)


@app.command("pause")
@somewhere
def pause(where: Where, name: Name, json: JsonFlag = False) -> None:
    """Fire nothing; what falls into the pause is not made up for."""

    async def work(there: Operations) -> None:
        _told(await there.pause_schedule(name), "is paused", json=json)

    where.do(work)


@app.command("resume")
@somewhere
def resume(where: Where, name: Name, json: JsonFlag = False) -> None:
    """Fire again, from now on."""

    async def work(there: Operations) -> None:
        _told(await there.resume_schedule(name), "goes on", json=json)

    where.do(work)


def _told(schedule: Schedule, what: str, *, json: bool) -> None:
    if json:
        emit(schedule)
    else:
        say(f"{schedule.name} {what}.")


@app.command("run")
@somewhere
def run(where: Where, name: Name, json: JsonFlag = False) -> None:
    """Fire once, now. Prints the id of the task."""

    async def work(there: Operations) -> None:
        task = await there.run_schedule(name)
        if json:
            emit(task)
        else:
            say(task.id)

    where.do(work, with_app=True)
