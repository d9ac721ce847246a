"""`outlast keys`: the API keys of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlast.cli.output import emit, note, say, table
from outlast.cli.settings import AppFlag, EngineFlag, JsonFlag, on_engine

if TYPE_CHECKING:
    from outlast.app import Outlast

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
def create(
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
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="DURATION", help="After this.", show_default=False),
    ] = None,
    module: AppFlag = None,
    engine: EngineFlag = None,
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Make a key and print it, this once: only its hash is kept."""

    async def work(served: Outlast) -> None:
        from outlast.access import create_key
        from outlast.views import key_view

        text, key = await create_key(
            served.engine,
            role,
            name=name,
            queues=queue or (),
            types=type or (),
            read_only=read_only,
            rate=rate,
            expires=expires,
        )
        if json:
            emit({"key": text, **key_view(key)})
            return
        note(f"Key {key.id} for {key.role} {key.name!r}; it is not shown again:")
        say(text)

    on_engine(engine, module, work)


@app.command("ls")
def ls(module: AppFlag = None, engine: EngineFlag = None, json: JsonFlag = False) -> None:
    """List keys, oldest first. Those of $OUTLAST_KEYS are not among them."""

    async def read(served: Outlast) -> None:
        from outlast.access import keys
        from outlast.views import key_view

        found = await keys(served.engine)
        if json:
            emit({"items": [key_view(key) for key in found], "next": None})
            return
        rows = (
            (key.id, key.role, key.name, ",".join(key.queues), ",".join(key.types), key.rate)
            for key in found
        )
        table(("KEY", "ROLE", "NAME", "QUEUES", "TYPES", "RATE"), rows, "There are no keys.")

    on_engine(engine, module, read)


@app.command("revoke")
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", show_default=False, help="As listed.")],
    module: AppFlag = None,
    engine: EngineFlag = None,
    json: JsonFlag = False,
) -> None:
    """Revoke a key; servers follow within seconds."""

    async def work(served: Outlast) -> None:
        from outlast.access import revoke_key

        await revoke_key(served.engine, key)
        if json:
            emit({"revoked": key})
        else:
            say(f"Revoked {key}.")

    on_engine(engine, module, work)
