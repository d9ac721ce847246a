"""`outlast bridge`: services in any language take part over Redis Streams."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Annotated, Final

import typer

from outlast.cli.output import note
from outlast.cli.run import LevelFlag, LogFormatFlag, LogTasksFlag, log
from outlast.cli.settings import AppArgument, EngineFlag, app_for
from outlast.core.errors import BadInput, OutlastError
from outlast.core.text import safe_url

if TYPE_CHECKING:
    from outlast.systems.streams import Bridge

REDIS: Final = ("redis://", "rediss://", "valkey://")


def bridge(
    app: AppArgument = None,
    streams: Annotated[
        str | None,
        typer.Option(
            "--streams", metavar="URL", show_default=False,
            help="The Redis or Valkey with the streams; else $OUTLAST_STREAMS, else the engine if"
            " it is one.",
        ),
    ] = None,
    type: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="PATTERN", show_default=False,
            help="Serve external types that fit, as in 'report.*'; repeatable. Else all.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", show_default=False,
            help="Its name in the group of agents, unique among bridges.",
        ),
    ] = None,
    engine: EngineFlag = None,
    log_level: LevelFlag = "info",
    log_format: LogFormatFlag = "text",
    log_tasks: LogTasksFlag = False,
) -> None:  # fmt: skip
    """Hand tasks of external types to services over Redis Streams, and take their answers.

    Any number of bridges may run; one that dies costs nothing. SIGTERM or Ctrl-C stops it.
    """
    try:
        from outlast.systems.streams import Bridge
    except ModuleNotFoundError as missing:
        raise OutlastError(
            f"outlast bridge needs {missing.name}: pip install 'outlast[redis]'"
        ) from missing
    served = app_for(engine, app)
    url = streams or os.environ.get("OUTLAST_STREAMS") or ""
    if not url and served.url.startswith(REDIS):
        url = served.url.partition("?")[0]
    if not url.startswith(REDIS):
        raise BadInput(
            "Say where the streams are: --streams redis://127.0.0.1:6379, or OUTLAST_STREAMS."
        )
    url = url.replace("valkey://", "redis://", 1)
    log(log_level, log_format, tasks=log_tasks)
    made = Bridge(served, url, types=type or (), consumer=name)
    asyncio.run(_run(made, safe_url(url)))


async def _run(made: Bridge, where: str) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, made.stop)
    running = asyncio.create_task(made.run())
    ready = asyncio.create_task(made.wait_ready())
    await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
    if ready.done():
        note(f"Bridging {', '.join(made.types)} to {where}")
    ready.cancel()
    await running
