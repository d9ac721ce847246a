"""`outlast queues`, `limits`, `workers`, `migrate`, `openapi` and `version`: what operators do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlast.cli.output import age, emit, say, table
from outlast.cli.settings import AppFlag, EngineFlag, JsonFlag, Where, on_engine, somewhere

if TYPE_CHECKING:
    from outlast.app import Outlast
    from outlast.cli.operations import Operations
    from outlast.http.schemas import KnownLimit, Queue

queues = typer.Typer(help="Queues: depths, pause, resume.", invoke_without_command=True)
limits = typer.Typer(help="Limits: definitions and gauges, set, reset, remove.",
                     invoke_without_command=True)  # fmt: skip
workers = typer.Typer(help="Workers: what they serve, whether they are alive, drain.",
                      invoke_without_command=True)  # fmt: skip

NameArgument = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False, help="Its name.")]
KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", show_default=False, help="Exact, or a family as in user:*.")
]
WorkerArgument = Annotated[
    str, typer.Argument(metavar="WORKER", show_default=False, help="Its id.")
]


# Queues ------------------------------------------------------------------------------------------


@queues.callback()
@somewhere
def queues_default(where: Where, context: typer.Context, json: JsonFlag = False) -> None:
    """Queues: depths, pause, resume. Without a command: list them."""
    if context.invoked_subcommand is None:
        _queues_ls(where, json=json)


@queues.command("ls")
@somewhere
def queues_ls(where: Where, json: JsonFlag = False) -> None:
    """List queues with what waits in them."""
    _queues_ls(where, json=json)


def _queues_ls(where: Where, *, json: bool) -> None:
    async def read(there: Operations) -> None:
        status = await there.queues()
        if json:
            emit(status)
            return
        table(
            ("QUEUE", "PRIMARY", "RETRY", "SCHEDULED", "RUNNING", "DEAD", "OLDEST", "PER MIN", ""),
            (_queue_row(name, of) for name, of in status.by_queue.items()),
            "No queue has a task.",
        )

    where.do(read)


def _queue_row(name: str, of: Queue) -> tuple[object, ...]:
    oldest = age(round(of.oldest_seconds * 1000))
    return (name, of.primary, of.retry, of.scheduled, of.states.get("running", 0), of.dlq,
            oldest, of.completed_per_minute, "paused" if of.paused else "")  # fmt: skip


@queues.command("pause")
@somewhere
def queues_pause(where: Where, name: NameArgument, json: JsonFlag = False) -> None:
    """Let workers take nothing more from a queue; what runs goes on."""
    _set_paused(where, name, True, json=json)


@queues.command("resume")
@somewhere
def queues_resume(where: Where, name: NameArgument, json: JsonFlag = False) -> None:
    """Let workers take from a paused queue again."""
    _set_paused(where, name, False, json=json)


def _set_paused(where: Where, name: str, paused: bool, *, json: bool) -> None:
    async def work(there: Operations) -> None:
        told = await (there.pause if paused else there.resume)(name)
        if json:
            emit(told)
        else:
            say(f"{name} is {'paused' if paused else 'open'}.")

    where.do(work)


# Limits ------------------------------------------------------------------------------------------


@limits.callback()
@somewhere
def limits_default(where: Where, context: typer.Context, json: JsonFlag = False) -> None:
    """Limits: definitions and gauges, set, reset, remove. Without a command: list them."""
    if context.invoked_subcommand is None:
        _limits_ls(where, json=json)


@limits.command("ls")
@somewhere
def limits_ls(where: Where, json: JsonFlag = False) -> None:
    """List limits, and how full the keys in use are."""
    _limits_ls(where, json=json)


def _limits_ls(where: Where, *, json: bool) -> None:
    async def read(there: Operations) -> None:
        found = await there.limits()
        if json:
            emit(found)
            return
        columns = ("LIMIT", "SLOTS", "RATE", "TRIP", "FROM")
        table(columns, (_limit_row(item) for item in found.items), "No limit is defined.")
        if found.gauges:
            say("")
            table(
                ("KEY", "USED", "WAITING", "CIRCUIT", "OPEN UNTIL", "PAUSED UNTIL"),
                ((g.key, g.used, g.waiting, g.circuit, g.open_until, g.paused_until)
                 for g in found.gauges),
                "",
            )  # fmt: skip

    where.do(read)


def _limit_row(item: KnownLimit) -> tuple[object, ...]:
    trip = item.trip
    told = None if trip is None else f"{trip.rate:.0%} of {trip.volume}"
    return item.key, item.slots, item.rate, told, item.source


@limits.command("set")
@somewhere
def limits_set(
    where: Where,
    key: KeyArgument,
    slots: Annotated[
        int | None, typer.Option("--slots", help="Attempts at once.", show_default=False)
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", help="As in 60/min.", show_default=False)
    ] = None,
    trip: Annotated[
        float | None,
        typer.Option(
            "--trip",
            metavar="SHARE",
            show_default=False,
            help="Open the circuit when this share of attempts fails, as in 0.5.",
        ),
    ] = None,
    volume: Annotated[int, typer.Option("--volume", help="… of at least so many.")] = 10,
    open_for: Annotated[str, typer.Option("--open-for", help="… for this long.")] = "60s",
    json: JsonFlag = False,
) -> None:
    """Define a limit; all workers follow within about a second."""
    circuit = None if trip is None else {"rate": trip, "volume": volume, "open": open_for}

    async def work(there: Operations) -> None:
        made = await there.set_limit(key, slots=slots, rate=rate, trip=circuit)
        if json:
            emit(made)
        else:
            say(f"{key} is set.")

    where.do(work)


@limits.command("rm")
@somewhere
def limits_rm(where: Where, key: KeyArgument, json: JsonFlag = False) -> None:
    """Delete a definition; one that code gives comes back when its app starts."""

    async def work(there: Operations) -> None:
        await there.delete_limit(key)
        if json:
            emit({"removed": key})
        else:
            say(f"{key} is removed.")

    where.do(work)


@limits.command("reset")
@somewhere
def limits_reset(where: Where, key: KeyArgument, json: JsonFlag = False) -> None:
    """Close the circuit of a key or family, and let its rate start afresh."""

    async def work(there: Operations) -> None:
        told = await there.reset_limit(key)
        if json:
            emit(told)
        else:
            say(f"{key} is reset.")

    where.do(work)


# Workers -----------------------------------------------------------------------------------------


@workers.callback()
@somewhere
def workers_default(where: Where, context: typer.Context, json: JsonFlag = False) -> None:
    """Workers: what they serve, whether they are alive, drain. Without a command: list them."""
    if context.invoked_subcommand is None:
        _workers_ls(where, json=json)


@workers.command("ls")
@somewhere
def workers_ls(where: Where, json: JsonFlag = False) -> None:
    """List workers: what they serve, and whether they are alive."""
    _workers_ls(where, json=json)


@workers.command("drain")
@somewhere
def workers_drain(where: Where, worker: WorkerArgument, json: JsonFlag = False) -> None:
    """Let a worker end what it runs, and stop. What started it decides whether another comes."""

    async def work(there: Operations) -> None:
        told = await there.drain_worker(worker)
        if json:
            emit(told)
        else:
            say(f"{worker} takes nothing more, and ends when what it runs has ended.")

    where.do(work)


def _workers_ls(where: Where, *, json: bool) -> None:
    async def read(there: Operations) -> None:
        from outlast.client.wire import ms_of

        found, now = await there.workers(), await there.now()
        if json:
            emit({"items": found, "next": None})
            return
        table(
            ("WORKER", "QUEUES", "TYPES", "RUNNING", "SLOTS", "SEEN", ""),
            ((w.id, ", ".join(w.queues), len(w.types), w.running, w.slots,
              f"{age(now - ms_of(w.seen_at))} ago",
              "lost" if not w.alive else "draining" if w.draining else "alive")
             for w in found),
            "No worker is registered. Start one: outlast worker",
        )  # fmt: skip

    where.do(read)


# The rest ----------------------------------------------------------------------------------------


def migrate(app: AppFlag = None, engine: EngineFlag = None, json: JsonFlag = False) -> None:
    """Create or upgrade the engine's schema."""

    async def work(app: Outlast) -> None:
        version = await app.engine.migrate()
        if json:
            emit({"schema": version})
        else:
            say(f"The schema is at version {version}.")

    on_engine(engine, app, work)


def openapi() -> None:
    """Print the OpenAPI document of the server, for generators of clients."""
    from outlast.app import Outlast
    from outlast.http.api import create_api

    emit(create_api(Outlast("memory://")).openapi())


def version(json: JsonFlag = False) -> None:
    """Print the version."""
    import platform

    from outlast import __version__

    if json:
        emit({"version": __version__, "python": platform.python_version()})
    else:
        say(f"outlast {__version__} (Python {platform.python_version()})")
