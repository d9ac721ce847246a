"""`outlast dlq`, `queues`, `limits`, `workers`, `migrate` and `version`: what operators do."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from outlast.cli.output import age, agreed, emit, say, table
from outlast.cli.settings import AppFlag, EngineFlag, JsonFlag, on_engine
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
    from outlast.app import Outlast
    from outlast.core.model import TaskQuery

dlq = typer.Typer(help="The dead: list them, group them, redrive or purge them.",
                  no_args_is_help=True)  # fmt: skip
queues = typer.Typer(help="Queues: depths, pause, resume.", invoke_without_command=True)
limits = typer.Typer(help="Limits: definitions and gauges, set, remove.",
                     invoke_without_command=True)  # fmt: skip

ErrorFlag = Annotated[
    str | None,
    typer.Option("--error", metavar="TEXT", show_default=False,
                 help="Whose error has this type or fingerprint, as `dlq groups` shows them."),
]  # fmt: skip
YesFlag = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Only tell how many it would be.")]
NameArgument = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False, help="Its name.")]
KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", show_default=False, help="Exact, or a family as in user:*.")
]


# The dead ----------------------------------------------------------------------------------------


@dlq.command("ls")
def dlq_ls(
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
    app: AppFlag = None,
    engine: EngineFlag = None,
    json: JsonFlag = False,
) -> None:
    """List dead tasks, newest first."""
    filters = _filters(type, queue, session, user, tag, filter)
    show_tasks(
        {**filters, "status": "dead", "limit": limit, "cursor": cursor}, app, engine, json=json
    )


@dlq.command("groups")
def dlq_groups(app: AppFlag = None, engine: EngineFlag = None, json: JsonFlag = False) -> None:
    """Group dead tasks by what killed them."""

    async def read(app: Outlast) -> None:
        from outlast import ops

        groups = await ops.dead_groups(app)
        if json:
            emit({"items": groups, "next": None})
            return
        fields = ("count", "type", "error_type", "message", "fingerprint", "example")
        rows = ([group[field] for field in fields] for group in groups)
        columns = ("COUNT", "TYPE", "ERROR", "MESSAGE", "FINGERPRINT", "ID")
        table(columns, rows, "Nothing is dead.")

    on_engine(engine, app, read)


@dlq.command("redrive")
def dlq_redrive(
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
    app: AppFlag = None,
    engine: EngineFlag = None,
    json: JsonFlag = False,
) -> None:
    """Put dead tasks back to pending, with their history and fresh budgets."""

    async def work(app: Outlast) -> None:
        from outlast import ops

        ops.check_pace("retry", rate)  # refused also when nothing is dead
        query = await _dead(app, _filters(type, queue, session, user, tag, filter), error)
        n = await ops.matching(app, "retry", query)
        done = 0
        # Nothing is lost by a redrive: only a person who can be asked is asked.
        if not dry_run and n and agreed(f"Redrive {_tasks(n)}?", yes or not sys.stdin.isatty()):
            done = await ops.bulk(app, "retry", query, rate=rate)
        _did("redriven", n, done, dry_run=dry_run, json=json)

    on_engine(engine, app, work)


@dlq.command("purge")
def dlq_purge(
    filter: FilterArgument = None,
    type: TypeFlag = None,
    error: ErrorFlag = None,
    queue: QueueFlag = None,
    session: SessionFlag = None,
    user: UserFlag = None,
    tag: TagFlag = None,
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
    app: AppFlag = None,
    engine: EngineFlag = None,
    json: JsonFlag = False,
) -> None:
    """Delete dead tasks for good."""

    async def work(app: Outlast) -> None:
        from outlast import ops

        query = await _dead(app, _filters(type, queue, session, user, tag, filter), error)
        n = await ops.matching(app, "delete", query)
        done = 0
        if not dry_run and n and agreed(f"Delete {_tasks(n)} for good?", yes):
            done = await ops.bulk(app, "delete", query)
        _did("purged", n, done, dry_run=dry_run, json=json)

    on_engine(engine, app, work)


def _filters(
    type: str | None, queue: str | None, session: str | None, user: str | None, tag: str | None,
    filter: list[str] | None,
) -> dict[str, str | int | None]:  # fmt: skip
    return {
        "type": type, "queue": queue, "session_id": session, "user_id": user, "tag": tag,
        "q": " ".join(filter or ()),
    }  # fmt: skip


async def _dead(
    app: Outlast, filters: Mapping[str, str | int | None], error: str | None
) -> TaskQuery:
    """The dead tasks that fit; an error is told by the fingerprints that its groups have."""
    from msgspec.structs import replace

    from outlast import ops
    from outlast.core.model import Term
    from outlast.query import parse_query

    query = await parse_query(app.engine, {**filters, "status": "dead", "limit": ops.PAGE})
    if error is None:
        return query
    groups = await ops.dead_groups(app)
    marks = {str(g["fingerprint"]) for g in groups if error in (g["error_type"], g["fingerprint"])}
    return replace(query, terms=(*query.terms, Term("fingerprint", tuple(marks) or (error,))))


def _did(verb: str, matched: int, done: int, *, dry_run: bool, json: bool) -> None:
    if json:
        emit({"matched": matched, verb: done, "dry_run": dry_run})
    elif dry_run:
        say(f"{_tasks(matched)} would be {verb}.")
    else:
        say(f"{_tasks(done)} {verb}.")


def _tasks(n: int) -> str:
    return f"{n:,} dead task" if n == 1 else f"{n:,} dead tasks"


# Queues ------------------------------------------------------------------------------------------


@queues.callback()
def queues_default(
    context: typer.Context,
    app: AppFlag = None,
    engine: EngineFlag = None,
    json: JsonFlag = False,
) -> None:
    """Queues: depths, pause, resume. Without a command: list them."""
    if context.invoked_subcommand is None:
        queues_ls(app, engine, json)


@queues.command("ls")
def queues_ls(app: AppFlag = None, engine: EngineFlag = None, json: JsonFlag = False) -> None:
    """List queues with what waits in them."""

    async def read(app: Outlast) -> None:
        from outlast import ops

        status = await ops.queues_status(app)
        if json:
            emit(status)
            return
        by_queue: dict[str, dict[str, object]] = status["by_queue"]  # type: ignore[assignment]
        columns = (
            "QUEUE",
            "PRIMARY",
            "RETRY",
            "SCHEDULED",
            "RUNNING",
            "DEAD",
            "OLDEST",
            "PER MIN",
            "",
        )
        table(
            columns, (_queue_row(name, of) for name, of in by_queue.items()), "No queue has a task."
        )

    on_engine(engine, app, read)


def _queue_row(name: str, of: dict[str, object]) -> tuple[object, ...]:
    states: dict[str, int] = of["states"]  # type: ignore[assignment]
    oldest = age(round(float(str(of["oldest_seconds"])) * 1000))
    paused = "paused" if of["paused"] else ""
    return (name, of["primary"], of["retry"], of["scheduled"], states["running"], of["dlq"],
            oldest, of["completed_per_minute"], paused)  # fmt: skip


@queues.command("pause")
def queues_pause(
    name: NameArgument, app: AppFlag = None, engine: EngineFlag = None, json: JsonFlag = False
) -> None:
    """Let workers take nothing more from a queue; what runs goes on."""
    _set_paused(name, True, app, engine, json=json)


@queues.command("resume")
def queues_resume(
    name: NameArgument, app: AppFlag = None, engine: EngineFlag = None, json: JsonFlag = False
) -> None:
    """Let workers take from a paused queue again."""
    _set_paused(name, False, app, engine, json=json)


def _set_paused(
    name: str, paused: bool, app: str | None, engine: str | None, *, json: bool
) -> None:
    async def work(app: Outlast) -> None:
        from outlast import ops

        await (ops.pause if paused else ops.resume)(app, name)
        if json:
            emit({"queue": name, "paused": paused})
        else:
            say(f"{name} is {'paused' if paused else 'open'}.")

    on_engine(engine, app, work)


# Limits ------------------------------------------------------------------------------------------


@limits.callback()
def limits_default(
    context: typer.Context,
    app: AppFlag = None,
    engine: EngineFlag = None,
    json: JsonFlag = False,
) -> None:
    """Limits: definitions and gauges, set, remove. Without a command: list them."""
    if context.invoked_subcommand is None:
        limits_ls(app, engine, json)


@limits.command("ls")
def limits_ls(app: AppFlag = None, engine: EngineFlag = None, json: JsonFlag = False) -> None:
    """List limits, and how full the keys in use are."""

    async def read(app: Outlast) -> None:
        from outlast import ops

        found = await ops.limits(app)
        if json:
            emit(found)
            return
        items: list[dict[str, object]] = found["items"]  # type: ignore[assignment]
        gauges: list[dict[str, object]] = found["gauges"]  # type: ignore[assignment]
        columns = ("LIMIT", "SLOTS", "RATE", "TRIP", "FROM")
        table(columns, (_limit_row(item) for item in items), "No limit is defined.")
        if gauges:
            say("")
            fields = ("key", "used", "waiting", "circuit", "open_until", "paused_until")
            heads = ("KEY", "USED", "WAITING", "CIRCUIT", "OPEN UNTIL", "PAUSED UNTIL")
            table(heads, ([gauge[field] for field in fields] for gauge in gauges), "")

    on_engine(engine, app, read)


def _limit_row(item: dict[str, object]) -> tuple[object, ...]:
    trip = item["trip"]
    told = f"{trip['rate']:.0%} of {trip['volume']}" if isinstance(trip, dict) else None
    return item["key"], item["slots"], item["rate"], told, item["source"]


@limits.command("set")
def limits_set(
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
    app: AppFlag = None,
    engine: EngineFlag = None,
    json: JsonFlag = False,
) -> None:
    """Define a limit; all workers follow within about a second."""
    circuit = None if trip is None else {"rate": trip, "volume": volume, "open": open_for}
    body = {"slots": slots, "rate": rate, "trip": circuit}

    async def work(app: Outlast) -> None:
        from outlast import ops

        view = await ops.set_limit(app, key, body)
        if json:
            emit(view)
        else:
            say(f"{key} is set.")

    on_engine(engine, app, work)


@limits.command("rm")
def limits_rm(
    key: KeyArgument, app: AppFlag = None, engine: EngineFlag = None, json: JsonFlag = False
) -> None:
    """Delete a definition; one that code gives comes back when its app starts."""

    async def work(app: Outlast) -> None:
        from outlast import ops

        await ops.delete_limit(app, key)
        if json:
            emit({"removed": key})
        else:
            say(f"{key} is removed.")

    on_engine(engine, app, work)


# The rest ----------------------------------------------------------------------------------------


def workers(app: AppFlag = None, engine: EngineFlag = None, json: JsonFlag = False) -> None:
    """List workers: what they serve, and whether they are alive."""

    async def read(app: Outlast) -> None:
        from outlast.views import worker_view

        found, now = await asyncio.gather(app.engine.workers(), app.engine.now())
        if json:
            emit({"items": [worker_view(worker) for worker in found], "next": None})
            return
        table(
            ("WORKER", "QUEUES", "TYPES", "RUNNING", "SLOTS", "SEEN", ""),
            ((w.id, ", ".join(w.info.queues), len(w.info.types), w.running, w.info.slots,
              f"{age(now - w.seen_at)} ago", "alive" if w.alive else "lost") for w in found),
            "No worker is registered. Start one: outlast worker",
        )  # fmt: skip

    on_engine(engine, app, read)


def migrate(app: AppFlag = None, engine: EngineFlag = None, json: JsonFlag = False) -> None:
    """Create or upgrade the engine's schema."""

    async def work(app: Outlast) -> None:
        version = await app.engine.migrate()
        if json:
            emit({"schema": version})
        else:
            say(f"The schema is at version {version}.")

    on_engine(engine, app, work)


def version(json: JsonFlag = False) -> None:
    """Print the version."""
    import platform

    from outlast import __version__

    if json:
        emit({"version": __version__, "python": platform.python_version()})
    else:
        say(f"outlast {__version__} (Python {platform.python_version()})")
