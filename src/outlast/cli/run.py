"""`outlast dev`, `serve` and `worker`: the commands that stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import typer

from outlast.cli.output import emit
from outlast.cli.settings import (
    PORT,
    AppArgument,
    EngineFlag,
    HostFlag,
    PortFlag,
    app_for,
    find_app,
    place,
)
from outlast.core.errors import BadInput

SAMPLES = "outlast.samples:app"

QueueFlags = Annotated[
    list[str] | None,
    typer.Option("-q", "--queue", metavar="NAME[=N]", show_default=False,
                 help="Serve this queue, N attempts at once at most; repeatable. Else all."),
]  # fmt: skip
ConcurrencyFlag = Annotated[
    int, typer.Option("--concurrency", min=1, help="Attempts at once, in each process.")
]
GraceFlag = Annotated[
    str,
    typer.Option("--grace", metavar="DURATION", help="What running attempts get when it stops."),
]

LevelFlag = Annotated[
    str, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
]
LogFormatFlag = Annotated[
    str,
    typer.Option("--log-format", metavar="FORMAT",
                 help="text, or json: an object a line, with --log-tasks."),
]  # fmt: skip
LogTasksFlag = Annotated[
    bool, typer.Option("--log-tasks", help="A line for every step of a task, not failures only.")
]


def dev(
    app: AppArgument = None,
    host: HostFlag = "127.0.0.1",
    port: PortFlag = PORT,
    reload: Annotated[
        bool, typer.Option("--reload/--no-reload", help="Start again when a source file changes.")
    ] = True,
    engine: EngineFlag = None,
) -> None:
    """API, dashboard and worker in one command, started again when the source changes.

    Without an app it runs a sample app with a trickle of tasks, so that there is something to see.
    """
    import asyncio

    from outlast.cli.dev import Dev

    raise typer.Exit(asyncio.run(Dev(app, engine, host, port, reload=reload).run()))


def serve(
    app: AppArgument = None,
    host: HostFlag = "127.0.0.1",
    port: PortFlag = PORT,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Nobody may change anything over HTTP.")
    ] = False,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            "--cors",
            metavar="ORIGIN",
            show_default=False,
            help="Pages of this origin may use it too; repeatable. Else $OUTLAST_CORS.",
        ),
    ] = None,
    engine: EngineFlag = None,
    log_level: LevelFlag = "info",
    log_format: LogFormatFlag = "text",
    log_tasks: LogTasksFlag = False,
    ready_fd: Annotated[int | None, typer.Option("--ready-fd", hidden=True)] = None,
) -> None:
    """The API and the dashboard. Without an app, for the types that workers announce."""
    import asyncio

    from outlast.http.serve import serve as serve_http
    from outlast.worker.member import new_loop

    def on_ready(address: str) -> None:
        if ready_fd is None:
            typer.echo(f"Serving {address}")
        else:
            os.write(ready_fd, address.encode() + b"\n")

    log(log_level, log_format, tasks=log_tasks)
    given = os.environ.get("OUTLAST_CORS", "").split(",")
    origins = cors or [origin.strip() for origin in given if origin.strip()]
    served = app_for(engine, app)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(
            serve_http(served, host, port, read_only=read_only, cors=origins, on_ready=on_ready)
        )


def worker(
    app: AppArgument = None,
    queue: QueueFlags = None,
    concurrency: ConcurrencyFlag = 200,
    processes: Annotated[int, typer.Option("--processes", min=1, help="Worker processes.")] = 1,
    lease: Annotated[
        str,
        typer.Option("--lease", metavar="DURATION",
                     help="A worker that is not heard of for this long has lost its tasks."),
    ] = "10s",
    retry_share: Annotated[
        str | None,
        typer.Option("--retry-share", metavar="PERCENT", show_default=False,
                     help="The retry lane's share of the claims, as in 30%."),
    ] = None,
    grace: GraceFlag = "25s",
    engine: EngineFlag = None,
    log_level: LevelFlag = "info",
    log_format: LogFormatFlag = "text",
    log_tasks: LogTasksFlag = False,
) -> None:  # fmt: skip
    """Run tasks. SIGTERM or Ctrl-C drains, a second one gives everything back at once."""
    from outlast.core.durations import to_ms
    from outlast.worker.member import Settings
    from outlast.worker.supervise import supervise

    lease_ms = to_ms(lease)
    if lease_ms < 1_000:
        raise BadInput(f"--lease {lease}: give at least 1s.")
    settings = Settings(
        target=_target(app),
        url=engine,
        queues=dict(map(_queue, queue)) if queue else None,
        concurrency=concurrency,
        lease_ms=lease_ms,
        beat_ms=min(3_000, lease_ms * 3 // 10),
        grace_ms=to_ms(grace),
        retry_share=None if retry_share is None else _share(retry_share),
        log_level=log(log_level, log_format, tasks=log_tasks),
        log_format=log_format,
        log_tasks=log_tasks,
    )
    raise typer.Exit(supervise(settings, processes))


def describe(app: AppArgument = None, engine: EngineFlag = None) -> None:
    """Tell which app is meant, for processes that must not import it themselves."""
    found = find_app(engine, app)
    if found is None:
        emit(About())
        return
    file = (app or os.environ.get("OUTLAST_APP") or "").partition(":")[0]
    module, _, name = str(found.target).partition(":")
    types = {type: handler.schema for type, handler in found.handlers.items()}
    emit(About(f"{file if file.endswith('.py') else module}:{name}", found.url, types))


@dataclass(frozen=True, slots=True)
class About:
    """Which app is meant, as `module:name` or `file.py:name`; None when there is none."""

    target: str | None = None
    url: str = ""
    types: dict[str, Mapping[str, object]] = field(default_factory=dict)
    """With the JSON Schema of their payloads."""


def ask_about(app: str | None, engine: str | None = None) -> About:
    """`describe` in a process of its own, which also tells what is wrong with the app."""
    command = [sys.executable, "-m", "outlast", "describe", *([app] if app else [])]
    command += ["--engine", engine] if engine else []
    asked = subprocess.run(command, stdout=subprocess.PIPE, check=False)  # noqa: S603  # ourselves
    if asked.returncode:
        raise typer.Exit(asked.returncode)
    return About(**json.loads(asked.stdout))


def log(level: str, style: str, *, tasks: bool) -> str:
    """Set logging up as the flags say; the name of the level."""
    import logging

    from outlast import tasklog

    name = level.upper()
    if name not in logging.getLevelNamesMapping():
        raise BadInput(f"--log-level {level}: give debug, info, warning or error.")
    if style not in tasklog.FORMATS:
        raise BadInput(f"--log-format {style}: give {' or '.join(tasklog.FORMATS)}.")
    tasklog.set_up(name, style, tasks=tasks)
    return name


def _target(app: str | None) -> str:
    """`module:name`. Importing the app is left to others: nothing of it may hold up the beats."""
    named = app or os.environ.get("OUTLAST_APP")
    target = place(named if named and ":" in named else ask_about(app).target)
    if target is None:
        raise BadInput(
            "There is no app here: name one as in `outlast worker mymodule:app`, set OUTLAST_APP,"
            " or put it into main.py, app.py or tasks.py."
        )
    return target


def _queue(text: str) -> tuple[str, int | None]:
    name, mark, most = text.partition("=")
    if not name or (mark and not (most.isascii() and most.isdigit() and int(most) > 0)):
        raise BadInput(f"-q {text}: write a queue's name, or name=8 for 8 attempts at once.")
    return name, int(most) if mark else None


def _share(text: str) -> float:
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as error:
        raise BadInput(f"--retry-share {text}: write it as 30% or 0.3.") from error
