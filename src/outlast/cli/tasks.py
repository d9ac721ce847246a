"""`outlast enqueue` and `outlast tasks …`: hand work over, look at it, follow it, change it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlast.cli.output import age, agreed, counting, emit, facts, note, say, table
from outlast.cli.settings import AppFlag, EngineFlag, JsonFlag, app_for, on, on_engine
from outlast.core.errors import BadInput
from outlast.core.text import clean

if TYPE_CHECKING:
    from outlast.app import Outlast
    from outlast.core.model import Task
    from outlast.handle import Handle
    from outlast.options import Options
    from outlast.why import Why

app = typer.Typer(help="List tasks, look at one, follow it, change it.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="The task's id.", show_default=False)]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Their ids.", show_default=False)]
TimeoutFlag = Annotated[
    str | None,
    typer.Option(
        "--timeout", metavar="DURATION", help="Wait at most this long, then exit with 124.",
        show_default=False,
    ),
]  # fmt: skip


def _text(flag: str, help: str, metavar: str = "TEXT") -> typer.models.OptionInfo:
    info: typer.models.OptionInfo = typer.Option(
        flag, help=help, metavar=metavar, show_default=False
    )
    return info


TypeFlag = Annotated[str | None, _text("--type", "Of these types (a,b).")]
QueueFlag = Annotated[str | None, _text("--queue", "Of these queues (a,b).")]
SessionFlag = Annotated[str | None, _text("--session", "Of this session.")]
UserFlag = Annotated[str | None, _text("--user", "Of this user.")]
TagFlag = Annotated[str | None, _text("--tag", "With this tag.")]
WorkflowFlag = Annotated[str | None, _text("--workflow", "Of this workflow.")]
FilterArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILTER", show_default=False,
        help="As in 'status:dead age>1h payload.user:ada -queue:bulk \"some text\"'.",
    ),
]  # fmt: skip


# Handing over ------------------------------------------------------------------------------------


def enqueue(
    type: Annotated[str, typer.Argument(metavar="TYPE", show_default=False, help="What to run.")],
    payload: Annotated[
        str,
        typer.Argument(metavar="[JSON|@FILE|-]", help="Its arguments; - reads them from stdin."),
    ] = "{}",
    queue: Annotated[str | None, _text("--queue", "Another queue than the type's.")] = None,
    priority: Annotated[
        str | None, _text("--priority", "critical, high, normal, low, or 0 (first) to 32767.")
    ] = None,
    delay: Annotated[str | None, _text("--delay", "Not before, as in 10m.", "DURATION")] = None,
    run_at: Annotated[
        str | None, _text("--run-at", "Not before, as in 2027-01-01T00:00:00Z.", "MOMENT")
    ] = None,
    unique_key: Annotated[
        str | None, _text("--unique-key", "Answer the living task of this key, if there is one.")
    ] = None,
    unique_for: Annotated[
        str | None, _text("--unique-for", "The key is taken for this long.", "DURATION")
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", help="How often to try.", show_default=False)
    ] = None,
    attempt_timeout: Annotated[
        str | None, _text("--attempt-timeout", "Hard, for each attempt.", "DURATION")
    ] = None,
    max_age: Annotated[
        str | None, _text("--max-age", "Dead if it still waits after this.", "DURATION")
    ] = None,
    session: Annotated[str | None, _text("--session", "The session it belongs to.")] = None,
    user: Annotated[str | None, _text("--user", "The user it belongs to.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="A tag; repeatable.", show_default=False)
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            "--after",
            metavar="ID",
            help="Not before that task succeeded; repeatable.",
            show_default=False,
        ),
    ] = None,
    id: Annotated[str | None, _text("--id", "A UUID of your own.", "ID")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait, and print the result.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait, and show progress and output as they come.")
    ] = False,
    timeout: TimeoutFlag = None,
    app: AppFlag = None,
    engine: EngineFlag = None,
    json: JsonFlag = False,
) -> None:
    """Hand over a task. Prints its id, or with --wait its result.

    Exits with 1 when the awaited task dies or is cancelled, with 124 when it takes too long.
    """
    if timeout is not None and not (wait or follow):
        raise BadInput("--timeout bounds the waiting: add --wait or --follow.")
    told: dict[str, object] = {
        "queue": queue, "priority": _priority(priority), "delay": delay, "run_at": run_at,
        "unique_key": unique_key, "unique_for": unique_for, "max_attempts": max_attempts,
        "timeout": attempt_timeout, "max_age": max_age, "session_id": session, "user_id": user,
        "tags": tag or None, "after": after or None, "id": id,
    }  # fmt: skip
    options: Options = {name: v for name, v in told.items() if v is not None}  # type: ignore[assignment]
    data = _payload(payload)

    async def submit(app: Outlast) -> None:
        handle = await app.submit(type, data, **options)
        if wait or follow:
            if not json:
                await _warn(app, handle.id)
            await _await(app, handle.id, quiet=not follow, within=timeout, json=json)
        elif json:
            emit({**_view(await handle.refresh()), **_receipt(handle)})
        else:
            say(handle.id)
            if handle.existing:
                note(f"It was there already. Follow it: outlast tasks watch {handle.id}")
            await _warn(app, handle.id)

    on(app_for(engine, app), submit)


def _receipt(handle: Handle[object]) -> dict[str, object]:
    return {"existing": handle.existing, "durability": handle.durability}


def _payload(text: str) -> bytes:
    if text == "-":
        return sys.stdin.buffer.read()
    if not text.startswith("@"):
        return text.encode(errors="surrogateescape")
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise BadInput(f"Cannot read {text[1:]!r}: {error.strerror}.") from error


def _priority(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


async def _warn(app: Outlast, task_id: str) -> None:
    """Nothing is worse than to wait for a worker that does not exist."""
    from outlast.why import why

    answer = await why(app, task_id)
    if (answer.waits_for or "").startswith(("no_worker", "queue_paused")):
        note(f"{answer.text} {next_command(answer) or ''}".rstrip())


async def _await(
    app: Outlast, task_id: str, *, quiet: bool, within: str | None, json: bool
) -> None:
    """Until the task is over: its record or result on standard output, its fate as exit code."""
    from outlast.cli.follow import follow
    from outlast.core.durations import to_ms
    from outlast.handle import result_of

    timeout_ms = None if within is None else to_ms(within)
    task = await follow(app, task_id, quiet=quiet or json, timeout_ms=timeout_ms)
    if json:
        emit(_view(task))
    elif task.state == "completed" and quiet:
        say((task.result or b"null").decode(), lines=True)
    if task.state != "completed":
        result_of(app, task)  # raises what became of it


# Looking -----------------------------------------------------------------------------------------


@app.command("ls")
def ls(
    filter: FilterArgument = None,
    status: Annotated[
        str | None, _text("--status", "ready, running, retrying, dead, …; several by commas.")
    ] = None,
    type: TypeFlag = None,
    queue: QueueFlag = None,
    session: SessionFlag = None,
    user: UserFlag = None,
    tag: TagFlag = None,
    workflow: WorkflowFlag = None,
    limit: Annotated[int, typer.Option("--limit", help="At most this many, up to 500.")] = 50,
    cursor: Annotated[str | None, _text("--cursor", "Where the last page ended.")] = None,
    app: AppFlag = None,
    engine: EngineFlag = None,
    json: JsonFlag = False,
) -> None:
    """List tasks, newest first."""
    params = {
        "status": status, "type": type, "queue": queue, "session_id": session, "user_id": user,
        "tag": tag, "workflow_id": workflow, "q": " ".join(filter or ()), "limit": limit,
        "cursor": cursor,
    }  # fmt: skip
    show_tasks(params, app, engine, json=json)


def show_tasks(
    params: dict[str, str | int | None], app: str | None, engine: str | None, *, json: bool
) -> None:
    async def read(app: Outlast) -> None:
        from outlast.query import parse_query

        query = await parse_query(app.engine, params)
        page, now = await asyncio.gather(app.engine.tasks(query), app.engine.now())
        if json:
            emit({"items": [_view(task) for task in page.items], "next": page.next})
            return
        columns = ("ID", "TYPE", "QUEUE", "STATUS", "TRY", "AGE", "")
        table(columns, (_row(task, now) for task in page.items), "No task fits.")
        if page.next is not None:
            note(f"There are more: --cursor {page.next}")

    on_engine(engine, app, read)


def _row(task: Task, now: int) -> tuple[object, ...]:
    tries = f"{task.attempt}/{task.max_attempts}"
    return (
        task.id,
        task.type,
        task.queue,
        task.status,
        tries,
        age(now - task.created_at),
        _gist(task),
    )


def _gist(task: Task) -> str:
    """What is worth a glance: what went wrong, how far it is, or what it was asked."""
    import msgspec

    if task.error is not None and task.state != "completed":
        error = msgspec.json.decode(task.error)
        return f"{error.get('type')}: {error.get('message')}"[:120]
    if task.progress is not None and task.state == "running":
        progress = msgspec.json.decode(task.progress)
        return f"{progress.get('percent', 0):g} % {progress.get('message') or ''}"
    return task.payload[:120].decode(errors="replace")


@app.command("show")
def show(id: Id, app: AppFlag = None, engine: EngineFlag = None, json: JsonFlag = False) -> None:
    """Show the record of one task."""

    async def read(app: Outlast) -> None:
        from outlast.stream import fetch

        task, now = await asyncio.gather(fetch(app.engine, id), app.engine.now())
        if json:
            emit(_view(task))
        else:
            _record(task, now)

    on_engine(engine, app, read)


def _record(task: Task, now: int) -> None:
    import msgspec

    view = msgspec.json.decode(msgspec.json.encode(_view(task)))
    error, progress = view.pop("error"), view["progress"] or {}
    attempts = view.pop("attempts")
    shown = {
        **view,
        "progress": progress and f"{progress.get('percent')} % {progress.get('message') or ''}",
        "payload": _json(view["payload"]),
        "result": None if task.result is None else _json(view["result"]),
        "attempt": f"{task.attempt} of {task.max_attempts}",
        "age": age(now - task.created_at),
    }
    hidden = {"state", "lane", "max_attempts", "version", "losses", "max_losses", "parked"}
    facts((name, value) for name, value in shown.items()
          if name not in hidden and value not in (None, [], {}, ""))  # fmt: skip
    if attempts:
        say("")
        table(
            ("ATTEMPT", "OUTCOME", "STARTED", "WORKER", "ERROR"),
            ((a.get("number"), a.get("outcome"), a.get("started_at"), a.get("worker"),
              _one_line(a.get("error"))) for a in attempts),
            "",
        )  # fmt: skip
    if error and error.get("traceback"):
        say("")
        say(str(error["traceback"]), lines=True)


def _json(value: object) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def _one_line(error: object) -> str | None:
    if not isinstance(error, dict):
        return None
    return f"{error.get('type')}: {error.get('message')}"


@app.command("why")
def why_command(
    id: Id, app: AppFlag = None, engine: EngineFlag = None, json: JsonFlag = False
) -> None:
    """Tell the one thing a task waits for, or where its time went."""

    async def read(app: Outlast) -> None:
        from outlast.why import why, why_view

        answer = await why(app, id)
        if json:
            emit(why_view(answer))
            return
        say(f"{answer.task.status}: {answer.text}")
        if answer.estimate_ms:
            say(f"It starts in about {age(answer.estimate_ms)}.")
        action = next_command(answer)
        if action:
            say(action)

    on_engine(engine, app, read)


def next_command(why: Why) -> str | None:
    """What would change it, as a command to type."""
    task = why.task
    if why.waits_for == "queue_paused":
        return f"Resume it: outlast queues resume {task.queue}"
    if why.waits_for == "time" and task.status == "retrying":
        return f"Try now: outlast tasks retry {task.id}"
    if why.waits_for == "dependencies" and why.holders:
        return f"Ask why of the first: outlast tasks why {why.holders[0]}"
    if why.waits_for in ("slots", "rate") and task.parked:
        return f"Look at the limit {task.parked.partition(':')[2]!r}: outlast limits"
    if task.state in ("dead", "cancelled"):
        return f"Run it again: outlast tasks retry {task.id}"
    return why.action if (why.waits_for or "").startswith(("no_worker", "turn")) else None


@app.command("watch")
def watch(
    id: Id,
    timeout: TimeoutFlag = None,
    app: AppFlag = None,
    engine: EngineFlag = None,
    json: JsonFlag = False,
) -> None:
    """Follow a task to its end. Exits with 1 when it dies or is cancelled.

    With --json nothing is printed until then, and then its record.
    """

    async def read(app: Outlast) -> None:
        from outlast.stream import fetch

        task = await fetch(app.engine, id)
        if not json:
            await _warn(app, task.id)
        await _await(app, task.id, quiet=False, within=timeout, json=json)

    on_engine(engine, app, read)


# Changing ----------------------------------------------------------------------------------------


@app.command("retry")
def retry(
    ids: Ids,
    payload: Annotated[
        str | None, _text("--payload", "Other arguments for it.", "JSON|@FILE|-")
    ] = None,
    app: AppFlag = None,
    engine: EngineFlag = None,
    json: JsonFlag = False,
) -> None:
    """Put dead or cancelled tasks back to pending; those that wait for a retry run now."""

    async def work(app: Outlast) -> None:
        from outlast import ops
        from outlast.core.codec import loads

        other = None if payload is None else loads(_payload(payload), "payload")
        if other is not None and not isinstance(other, dict):
            raise BadInput("--payload: a JSON object with the task's arguments is needed.")
        _changed([await ops.retry(app, id, other) for id in ids], json=json)

    if payload is None:
        on_engine(engine, app, work)
    else:  # the app, if there is one, checks the payload
        on(app_for(engine, app), work)


@app.command("cancel")
def cancel(
    ids: Ids,
    reason: Annotated[str, typer.Option("--reason", help="Kept in the record.")] = "cancelled",
    app: AppFlag = None,
    engine: EngineFlag = None,
    json: JsonFlag = False,
) -> None:
    """Stop tasks: at once if they wait, within about a second if they run."""

    async def work(app: Outlast) -> None:
        from outlast import ops

        _changed([await ops.cancel(app, id, reason) for id in ids], json=json)

    on_engine(engine, app, work)


@app.command("rm")
def rm(ids: Ids, app: AppFlag = None, engine: EngineFlag = None, json: JsonFlag = False) -> None:
    """Delete tasks that do not run, with everything that belongs to them."""

    async def work(app: Outlast) -> None:
        from outlast import ops

        for id in ids:
            await ops.forget(app, id)
        if json:
            emit({"removed": ids})
        else:
            say(f"Removed {len(ids)}.")

    on_engine(engine, app, work)


@app.command("bulk")
def bulk(
    action: Annotated[
        str,
        typer.Argument(metavar="ACTION", show_default=False, help="retry, cancel or delete."),
    ],
    filter: Annotated[
        list[str],
        typer.Argument(metavar="FILTER", show_default=False, help="As in 'status:dead age>1h'."),
    ],
    rate: Annotated[str | None, _text("--rate", "Retry at this pace, as in 10/s.", "RATE")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell how many.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    app: AppFlag = None,
    engine: EngineFlag = None,
    json: JsonFlag = False,
) -> None:
    """Retry, cancel or delete all tasks that fit a filter."""

    async def work(app: Outlast) -> None:
        from outlast import ops
        from outlast.query import parse_query

        query = await parse_query(app.engine, {"q": " ".join(filter)})
        ops.check_pace(action, rate)
        n = await ops.matching(app, action, query)
        done = 0
        if not dry_run and n and agreed(f"{action.capitalize()} {n:,} tasks?", yes):
            with counting(action, n) as tell:
                done = await ops.bulk(app, action, query, rate=rate, tell=tell)
        if json:
            emit({"matched": n, "changed": done, "dry_run": dry_run})
        else:
            say(f"{n:,} tasks fit." if dry_run else f"{done:,} of {n:,} tasks changed.")

    on_engine(engine, app, work)


def _changed(tasks: list[Task], *, json: bool) -> None:
    if json:
        emit({"items": [_view(task) for task in tasks], "next": None})
        return
    for task in tasks:
        asked = " (asked to stop)" if task.state == "running" and task.reason else ""
        say(f"{task.id}  {clean(task.status)}{asked}")


def _view(task: Task) -> dict[str, object]:
    from outlast.views import task_view

    return task_view(task)
