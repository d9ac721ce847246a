"""`outlast keys`: the API keys of a server, and the keys that encrypt what is stored."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, cast

import typer

from outlast.cli.output import emit, note, say, table
from outlast.cli.settings import AppFlag, EngineFlag, JsonFlag, Where, bare_for, local, somewhere
from outlast.core.errors import BadInput

if TYPE_CHECKING:
    from outlast.cli.operations import Operations
    from outlast.client.operating import Role

app = typer.Typer(
    help="API keys: make, list, revoke; encryption keys: make, rotate.", no_args_is_help=True
)


@app.command("encryption")
def encryption(json: JsonFlag = False) -> None:
    """Make a key for $OUTLAST_ENCRYPTION_KEYS and print it; it is kept nowhere."""
    from outlast.core.seal import new_key

    made = new_key()
    if json:
        emit({"id": made.partition(":")[0], "key": made})
    else:
        say(made)


@app.command("rotate")
@local
def rotate(module: AppFlag = None, engine: EngineFlag = None, json: JsonFlag = False) -> None:
    """Seal records with the first of $OUTLAST_ENCRYPTION_KEYS, and tell what needs older keys.

    Ended tasks and events stay as they are until they are deleted; keep their keys until then.
    """
    from outlast.engine import connect
    from outlast.rotation import Rotated
    from outlast.rotation import rotate as rotated

    bare = bare_for(engine, module)
    if not bare.seal.keys:
        raise BadInput("There are no keys: give the new one and the old one, in this order.")

    async def work() -> Rotated:
        opened = connect(bare.url)
        await opened.open()
        try:
            return await rotated(opened, bare.seal)
        finally:
            await opened.close()

    done = asyncio.run(work())
    if json:
        emit(done)
        return
    say(f"{done.records:,} records sealed with {bare.seal.names[0]}.")
    rows = sorted(done.needed.items())
    table(("KEY", "TASKS AND EVENTS THAT NEED IT"), rows, "No other key is needed any more.")


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
