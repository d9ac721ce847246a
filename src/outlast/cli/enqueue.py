"""`outlast enqueue`: hand work over, and wait for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlast.cli.output import emit, note, say
from outlast.cli.settings import JsonFlag, Where, somewhere
from outlast.core.errors import BadInput

if TYPE_CHECKING:
    from outlast.cli.operations import Operations
    from outlast.http.schemas import Task, Why
    from outlast.options import Options

TimeoutFlag = Annotated[
    str | None,
    typer.Option(
        "--timeout", metavar="DURATION", help="Wait at most this long, then exit with 124.",
        show_default=False,
    ),
]  # fmt: skip


def text_flag(flag: str, help: str, metavar: str = "TEXT") -> typer.models.OptionInfo:
    info: typer.models.OptionInfo = typer.Option(
        flag, help=help, metavar=metavar, show_default=False
    )
    return info


@somewhere
def enqueue(
    where: Where,
    type: Annotated[str, typer.Argument(metavar="TYPE", show_default=False, help="What to run.")],
    payload: Annotated[
        str,
        typer.Argument(metavar="[JSON|@FILE|-]", help="Its arguments; - reads them from stdin."),
    ] = "{}",
    queue: Annotated[str | None, text_flag("--queue", "Another queue than the type's.")] = None,
    priority: Annotated[
        str | None, text_flag("--priority", "critical, high, normal, low, or 0 (first) to 32767.")
    ] = None,
    delay: Annotated[str | None, text_flag("--delay", "Not before, as in 10m.", "DURATION")] = None,
    run_at: Annotated[
        str | None, text_flag("--run-at", "Not before, as in 2027-01-01T00:00:00Z.", "MOMENT")
    ] = None,
    unique_key: Annotated[
        str | None,
        text_flag("--unique-key", "Answer the living task of this key, if there is one."),
    ] = None,
    unique_for: Annotated[
        str | None, text_flag("--unique-for", "The key is taken for this long.", "DURATION")
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", help="How often to try.", show_default=False)
    ] = None,
    attempt_timeout: Annotated[
        str | None, text_flag("--attempt-timeout", "Hard, for each attempt.", "DURATION")
    ] = None,
    max_age: Annotated[
        str | None, text_flag("--max-age", "Dead if it still waits after this.", "DURATION")
    ] = None,
    session: Annotated[str | None, text_flag("--session", "The session it belongs to.")] = None,
    user: Annotated[str | None, text_flag("--user", "The user it belongs to.")] = None,
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
    id: Annotated[str | None, text_flag("--id", "A UUID of your own.", "ID")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait, and print the result.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait, and show progress and output as they come.")
    ] = False,
    timeout: TimeoutFlag = None,
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
    arguments = object_of(payload, "The payload")

    async def submit(there: Operations) -> None:
        task = await there.enqueue(type, arguments, **options)
        if wait or follow:
            if not json:
                await warn(there, task.id)
            await await_end(there, task.id, quiet=not follow, within=timeout, json=json)
        elif json:
            emit(task)
        else:
            say(task.id)
            if task.existing:
                note(f"It was there already. Follow it: outlast tasks watch {task.id}")
            await warn(there, task.id)

    where.do(submit, with_app=True)


def object_of(text: str, what: str) -> dict[str, object]:
    """The JSON object that an argument gives, or the file or pipe that it names."""
    from outlast.core.codec import loads

    value = loads(_bytes(text), "payload")
    if not isinstance(value, dict):
        raise BadInput(f"{what}: a JSON object with the task's arguments is needed.")
    return value


def _bytes(text: str) -> bytes:
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


async def warn(there: Operations, task_id: str) -> None:
    """Nothing is worse than to wait for a worker that does not exist."""
    answer = await there.why(task_id)
    if (answer.waits_for or "").startswith(("no_worker", "queue_paused")):
        action = next_command(answer, await there.get(task_id))
        note(f"{answer.text} {action or ''}".rstrip())


async def await_end(
    there: Operations, task_id: str, *, quiet: bool, within: str | None, json: bool
) -> None:
    """Until the task is over: its record or result on standard output, its fate as exit code."""
    from outlast.cli.follow import follow
    from outlast.client.wire import result_of
    from outlast.core.codec import dumps

    task = await follow(there, task_id, quiet=quiet or json, within=within)
    if json:
        emit(task)
    elif task.state == "completed" and quiet:
        say(dumps(task.result).decode(), lines=True)
    if task.state != "completed":
        result_of(task)  # raises what became of it


def next_command(why: Why, task: Task) -> str | None:
    """What would change it, as a command to type."""
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
