"""`outlast tasks …`: look at tasks, follow them, change them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, cast

import typer

from outlast.cli.enqueue import (
    TimeoutFlag,
    await_end,
    next_command,
    object_of,
    text_flag,
    warn,
)
from outlast.cli.output import age, agreed, counting, emit, facts, in_percent, note, say, table
from outlast.cli.settings import JsonFlag, Where, place, somewhere
from outlast.core.errors import BadInput
from outlast.core.text import clean

if TYPE_CHECKING:
    from outlast.cli.operations import Operations
    from outlast.client.tasks import Action
    from outlast.http.schemas import Task

app = typer.Typer(help="List tasks, look at one, follow it, change it.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="The task's id.", show_default=False)]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Their ids.", show_default=False)]
TypeFlag = Annotated[str | None, text_flag("--type", "Of these types (a,b).")]
QueueFlag = Annotated[str | None, text_flag("--queue", "Of these queues (a,b).")]
SessionFlag = Annotated[str | None, text_flag("--session", "Of this session.")]
UserFlag = Annotated[str | None, text_flag("--user", "Of this user.")]
TagFlag = Annotated[str | None, text_flag("--tag", "With this tag.")]
WorkflowFlag = Annotated[str | None, text_flag("--workflow", "Of this workflow.")]
FilterArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILTER", show_default=False,
        help="As in 'status:dead age>1h payload.user:ada -queue:bulk \"some text\"'.",
    ),
]  # fmt: skip


# Looking -----------------------------------------------------------------------------------------


@app.command("ls")
@somewhere
def ls(
    where: Where,
    filter: FilterArgument = None,
    status: Annotated[
        str | None, text_flag("--status", "ready, running, retrying, dead, …; several by commas.")
    ] = None,
    type: TypeFlag = None,
    queue: QueueFlag = None,
    session: SessionFlag = None,
    user: UserFlag = None,
    tag: TagFlag = None,
    workflow: WorkflowFlag = None,
    limit: Annotated[int, typer.Option("--limit", help="At most this many, up to 500.")] = 50,
    cursor: Annotated[str | None, text_flag("--cursor", "Where the last page ended.")] = None,
    json: JsonFlag = False,
) -> None:
    """List tasks, newest first."""
    params = {
        "status": status, "type": type, "queue": queue, "session_id": session, "user_id": user,
        "tag": tag, "workflow_id": workflow, "q": " ".join(filter or ()), "limit": limit,
        "cursor": cursor,
    }  # fmt: skip
    show_tasks(params, where, json=json)


def show_tasks(params: dict[str, str | int | None], where: Where, *, json: bool) -> None:
    async def read(there: Operations) -> None:
        page = await there.page(**params)  # type: ignore[arg-type]  # by the names of the flags
        if json:
            emit(page)
            return
        now = await there.now()
        columns = ("ID", "TYPE", "QUEUE", "STATUS", "TRY", "AGE", "")
        table(columns, (_row(task, now) for task in page.items), "No task fits.")
        if page.next is not None:
            note(f"There are more: --cursor {page.next}")

    where.do(read)


def _row(task: Task, now: int) -> tuple[object, ...]:
    from outlast.client.wire import ms_of

    tries = f"{task.attempt}/{task.max_attempts}"
    return (
        task.id,
        task.type,
        task.queue,
        task.status,
        tries,
        age(now - ms_of(task.created_at)),
        gist(task),
    )


def gist(task: Task) -> str:
    """What is worth a glance: what went wrong, how far it is, or what it was asked."""
    if task.error is not None and task.state != "completed":
        return f"{task.error.type}: {task.error.message}"[:120]
    if task.progress is not None and task.state == "running":
        return f"{in_percent(task.progress.percent)} {task.progress.message}"
    return _json(task.payload)[:120]


@app.command("show")
@somewhere
def show(where: Where, id: Id, json: JsonFlag = False) -> None:
    """Show the record of one task."""

    async def read(there: Operations) -> None:
        task, now = await asyncio.gather(there.get(id), there.now())
        if json:
            emit(task)
        else:
            _record(task, now)

    where.do(read)


def _record(task: Task, now: int) -> None:
    import msgspec

    facts(facts_of(task, now))
    error = task.error
    attempts = msgspec.to_builtins(task.attempts)
    if attempts:
        say("")
        table(
            ("ATTEMPT", "OUTCOME", "STARTED", "WORKER", "ERROR"),
            ((a.get("number"), a.get("outcome"), a.get("started_at"), a.get("worker"),
              _one_line(a.get("error"))) for a in attempts),
            "",
        )  # fmt: skip
    if error is not None and error.traceback:
        say("")
        say(error.traceback, lines=True)


def facts_of(task: Task, now: int) -> list[tuple[str, object]]:
    """The record for people, but for its attempts and its error: names and values."""
    import msgspec

    from outlast.client.wire import ms_of

    view = msgspec.to_builtins(task)
    progress = view["progress"] or {}
    shown = {
        **view,
        "progress": progress
        and f"{in_percent(progress.get('percent') or 0)} {progress.get('message') or ''}",
        "payload": _json(view["payload"]),
        "result": None if task.result is None else _json(view["result"]),
        "attempt": f"{task.attempt} of {task.max_attempts}",
        "age": age(now - ms_of(task.created_at)),
    }
    hidden = {"state", "lane", "max_attempts", "version", "losses", "max_losses", "parked",
              "error", "attempts"}  # fmt: skip
    return [(name, value) for name, value in shown.items()
            if name not in hidden and value not in (None, [], {}, "")]  # fmt: skip


def _json(value: object) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def _one_line(error: object) -> str | None:
    if not isinstance(error, dict):
        return None
    return f"{error.get('type')}: {error.get('message')}"


@app.command("why")
@somewhere
def why_command(where: Where, id: Id, json: JsonFlag = False) -> None:
    """Tell the one thing a task waits for, or where its time went."""

    async def read(there: Operations) -> None:
        answer = await there.why(id)
        if json:
            emit(answer)
            return
        say(f"{answer.status}: {answer.text}")
        if answer.estimate_seconds:
            say(f"It starts in about {age(round(answer.estimate_seconds * 1000))}.")
        action = next_command(answer, await there.get(id))
        if action:
            say(action)

    where.do(read)


@app.command("watch")
@somewhere
def watch(
    where: Where,
    id: Id,
    timeout: TimeoutFlag = None,
    json: JsonFlag = False,
) -> None:
    """Follow a task to its end. Exits with 1 when it dies or is cancelled.

    With --json nothing is printed until then, and then its record.
    """

    async def read(there: Operations) -> None:
        task = await there.get(id)
        if not json:
            await warn(there, task.id)
        await await_end(there, task.id, quiet=False, within=timeout, json=json)

    where.do(read)


@app.command("steps")
@somewhere
def steps(where: Where, id: Id, json: JsonFlag = False) -> None:
    """Show what a task remembers, and the signals it was sent."""

    async def read(there: Operations) -> None:
        told = await there.steps(id)
        if json:
            emit(told)
            return
        rows = (
            (step.name, step.kind, "late" if step.late else "" if step.done else "…",
             _json(step.value)[:120])
            for step in told.items
        )  # fmt: skip
        table(("NAME", "KIND", "", "VALUE"), rows, "It remembers nothing.")
        for signal in told.signals:
            say(f"signal {signal.name}: {_json(signal.data)[:120]}")

    where.do(read)


@app.command("export")
@somewhere
def export(
    where: Where,
    id: Id,
    pytest: Annotated[bool, typer.Option("--pytest", help="As a test that replays it.")] = False,
) -> None:
    """Write a task that is over as a test, with what its steps gave: to a file by > test_it.py."""
    if not pytest:
        raise BadInput("In which form? There is --pytest, a test that replays it.")

    async def read(there: Operations) -> None:
        import msgspec

        from outlast.travel import pytest_of

        task, told = await asyncio.gather(there.get(id), there.steps(id))
        target = place(where.app) or "myapp:app"
        source = pytest_of(msgspec.to_builtins(task), msgspec.to_builtins(told), target)
        typer.echo(source, nl=False)

    where.do(read)


# Changing ----------------------------------------------------------------------------------------


@app.command("retry")
@somewhere
def retry(
    where: Where,
    ids: Ids,
    payload: Annotated[
        str | None, text_flag("--payload", "Other arguments for it.", "JSON|@FILE|-")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Put dead or cancelled tasks back to pending; those that wait for a retry run now."""

    other = None if payload is None else object_of(payload, "--payload")

    async def work(there: Operations) -> None:
        _changed([await there.retry(id, payload=other) for id in ids], json=json)

    # The app, if there is one, checks the payload.
    where.do(work, with_app=payload is not None)


@app.command("rerun")
@somewhere
def rerun(
    where: Where,
    id: Id,
    from_step: Annotated[
        str | None, text_flag("--from", "The step to begin at; else its first line.", "STEP")
    ] = None,
    payload: Annotated[
        str | None, text_flag("--payload", "Other arguments.", "JSON|@FILE|-")
    ] = None,
    step: Annotated[
        list[str] | None,
        typer.Option(
            "--step",
            help="Another result of a step before.",
            metavar="NAME=JSON",
            show_default=False,
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Run a task that is over again, as a new one, with what it remembered before a step."""
    other = None if payload is None else object_of(payload, "--payload")
    others = dict(_named(text) for text in step or ())

    async def work(there: Operations) -> None:
        task = await there.rerun(id, from_step=from_step, payload=other, steps=others or None)
        if json:
            emit(task)
        else:
            say(task.id)

    where.do(work, with_app=True)


def _named(text: str) -> tuple[str, object]:
    """A step and its result, as in `fetch='"the text"'`."""
    from outlast.core.codec import loads

    name, given, value = text.partition("=")
    if not given:
        raise BadInput(f"--step {text[:60]!r}: write NAME=JSON, as in fetch='{{\"words\": 3}}'.")
    return name, loads(value.encode(), f"--step {name}")


@app.command("cancel")
@somewhere
def cancel(
    where: Where,
    ids: Ids,
    reason: Annotated[str, typer.Option("--reason", help="Kept in the record.")] = "cancelled",
    json: JsonFlag = False,
) -> None:
    """Stop tasks: at once if they wait, within about a second if they run."""

    async def work(there: Operations) -> None:
        _changed([await there.cancel(id, reason=reason) for id in ids], json=json)

    where.do(work)


@app.command("signal")
@somewhere
def signal(
    where: Where,
    id: Id,
    name: Annotated[
        str, typer.Argument(metavar="NAME", show_default=False, help="The signal's name.")
    ],
    data: Annotated[
        str, typer.Argument(metavar="[DATA]", help="JSON, else taken as text.")
    ] = "null",
    json: JsonFlag = False,
) -> None:
    """Send a signal to a task that waits for it, now or later."""

    async def work(there: Operations) -> None:
        _changed([await there.signal(id, name, value_of(data))], json=json)

    where.do(work)


def value_of(text: str) -> object:
    """A value as people type it: JSON, or a text that needs no quotes."""
    from outlast.core.codec import loads

    try:
        return loads(text.encode(errors="surrogateescape"))
    except BadInput:
        return text


@app.command("rm")
@somewhere
def rm(where: Where, ids: Ids, json: JsonFlag = False) -> None:
    """Delete tasks that do not run, with everything that belongs to them."""

    async def work(there: Operations) -> None:
        for id in ids:
            await there.delete(id)
        if json:
            emit({"removed": ids})
        else:
            say(f"Removed {len(ids)}.")

    where.do(work)


@app.command("bulk")
@somewhere
def bulk(
    where: Where,
    action: Annotated[
        str,
        typer.Argument(metavar="ACTION", show_default=False, help="retry, cancel or delete."),
    ],
    filter: Annotated[
        list[str],
        typer.Argument(metavar="FILTER", show_default=False, help="As in 'status:dead age>1h'."),
    ],
    rate: Annotated[
        str | None, text_flag("--rate", "Retry at this pace, as in 10/s.", "RATE")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell how many.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: JsonFlag = False,
) -> None:
    """Retry, cancel or delete all tasks that fit a filter."""

    wanted, fit = cast("Action", action), " ".join(filter)

    async def work(there: Operations) -> None:
        from outlast.ops import check_pace

        check_pace(action, rate)
        n = await there.matching(wanted, fit)
        done = 0
        if not dry_run and n and agreed(f"{action.capitalize()} {n:,} tasks?", yes):
            with counting(action, n) as tell:
                done = await there.change(wanted, fit, rate=rate, tell=tell)
        if json:
            emit({"matched": n, "changed": done, "dry_run": dry_run})
        else:
            say(f"{n:,} tasks fit." if dry_run else f"{done:,} of {n:,} tasks changed.")

    where.do(work)


def _changed(tasks: list[Task], *, json: bool) -> None:
    if json:
        emit({"items": tasks, "next": None})
        return
    for task in tasks:
        asked = " (asked to stop)" if task.state == "running" and task.reason else ""
        say(f"{task.id}  {clean(task.status)}{asked}")
