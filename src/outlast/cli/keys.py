"""`outlast keys`: the API keys of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from outlast.cli.output import emit, note, say, table
from outlast.cli.settings import JsonFlag, Where, somewhere

if TYPE_CHECKING:
    from outlast.cli.operations import Operations
    from outlast.client.operating import Role

app = typer.Typer(help="API keys: make, list, revoke.", no_args_is_help=True)


@app.command("encryption")
def encryption(json: JsonFlag = False) -> None:
    """Make a key for $OUTLAST_ENCRYPTION_KEYS and print it; it is kept nowhere."""
    from outlast.core.seal import new_key

    made = new_key()
    if json:
        emit({"id": made.partition(":")[0], "key": made})
    else:
        say(made)


@app.command("create")
@somewhere
def create(
    where: Where,
    role: Annotated[
        str, typer.Argument(metavar="ROLE", show_default=False,
                            help="admin, operator, client or worker.")
    ],
    name: Annotated[str, typer.Option("--name", help="For whom; shown in the audit log.")] = "",
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", help="Only this queue; repeatable.", show_default=False),
    ] = None,
    type: Annotated[
        list[str] | None,
        typer.Option("--type", help="Only this task type; repeatable.", show_default=False),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="It changes nothing.")] = False,
    rate: Annotated[
        str | None,
        typer.Option("--rate", help="Requests in a time, as in 600/min.", show_default=False),
    ] = None,
    living: Annotated[
        int | None,
        typer.Option("--max-living", help="Tasks that are not over.", show_default=False),
    ] = None,
    tasks: Annotated[
        int | None, typer.Option("--max-tasks", help="Tasks a day.", show_default=False)
    ] = None,
    bytes: Annotated[
        int | None,
        typer.Option("--max-bytes", help="Bytes of payloads a day.", show_default=False),
    ] = None,
    streams: Annotated[
        int | None, typer.Option("--max-streams", help="Open streams.", show_default=False)
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="DURATION", help="After this.", show_default=False),
    ] = None,
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Make a key and print it, this once: only its hash is kept."""

    async def work(there: Operations) -> None:
        from outlast.access import Quota

        quota = Quota(living=living, tasks=tasks, bytes=bytes, streams=streams)
        made = await there.create_key(
            cast("Role", role),
            name=name,
            queues=queue or (),
            types=type or (),
            read_only=read_only,
            rate=rate,
            quota=None if quota == Quota() else quota,
            expires=expires,
        )
        if json:
            emit(made)
            return
        note(f"Key {made.id} for {made.role} {made.name!r}; it is not shown again:")
        say(made.key)

    where.do(work)


@app.command("ls")
@somewhere
def ls(where: Where, json: JsonFlag = False) -> None:
    """List keys, oldest first. Those of $OUTLAST_KEYS are not among them."""

    async def read(there: Operations) -> None:
        found = await there.keys()
        if json:
            emit({"items": found, "next": None})
            return
        rows = (
            (key.id, key.role, key.name, ",".join(key.queues), ",".join(key.types), key.rate)
            for key in found
        )
        table(("KEY", "ROLE", "NAME", "QUEUES", "TYPES", "RATE"), rows, "There are no keys.")

    where.do(read)


@app.command("revoke")
@somewhere
def revoke(
    where: Where,
    key: Annotated[str, typer.Argument(metavar="KEY", show_default=False, help="As listed.")],
    json: JsonFlag = False,
) -> None:
    """Revoke a key; servers follow within seconds."""

    async def work(there: Operations) -> None:
        await there.revoke_key(key)
        if json:
            emit({"revoked": key})
        else:
            say(f"Revoked {key}.")

    where.do(work)
