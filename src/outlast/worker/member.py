"""A worker process under a supervisor: imports the app and runs a `Worker` for it.

Started by `supervise` as `python -m outlast.worker.member <fd>`. Its settings are the first line of
standard input; after that come orders, a letter each: `d` drain, `r` release. The end of the input
means that the supervisor is gone. To the pipe <fd> go lines: `url …`, `id …` for each id that the
worker goes by, and `ready`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import msgspec
from msgspec import Struct

from outlast import tasklog
from outlast.core.errors import EngineDown, OutlastError
from outlast.loading import load_app
from outlast.worker.parent import die_with
from outlast.worker.worker import Worker

if TYPE_CHECKING:
    from outlast.app import Outlast

FAILED = 1
USAGE = 2
ENGINE_DOWN = 4

Tell = Callable[[str], None]


class Settings(Struct, frozen=True, kw_only=True):
    """What `outlast worker` was asked for. `target` is the app, as `module:name`."""

    target: str
    url: str | None = None
    """Another engine than the app's own."""
    queues: dict[str, int | None] | None = None
    concurrency: int = 200
    threads: int | None = None
    processes: int | None = None
    lease_ms: int = 10_000
    beat_ms: int = 3_000
    sweep_ms: int = 1_000
    grace_ms: int = 25_000
    retry_share: float | None = None
    log_level: str = "INFO"
    log_format: str = "text"
    log_tasks: bool = False


class Orders(Struct, frozen=True, kw_only=True):
    """The first line of a member's input."""

    settings: Settings
    parent: int
    path: tuple[str, ...]


def load(settings: Settings) -> Outlast:
    app = load_app(settings.target)
    app.target = settings.target
    if settings.url is not None:
        app.use(settings.url)
    if settings.retry_share is not None:
        app.lanes = replace(app.lanes, share=settings.retry_share)
    return app


async def serve(app: Outlast, settings: Settings, orders: int, tell: Tell) -> None:
    worker = Worker(
        app,
        queues=settings.queues,
        concurrency=settings.concurrency,
        threads=settings.threads,
        processes=settings.processes,
        lease_ms=settings.lease_ms,
        beat_ms=settings.beat_ms,
        sweep_ms=settings.sweep_ms,
        grace_ms=settings.grace_ms,
        identify=lambda worker_id: tell(f"id {worker_id}"),
    )

    def ordered() -> None:
        for order in os.read(orders, 64) or b"\0":
            if order == ord("d"):
                worker.stop()
            elif order == ord("r"):
                worker.stop_now()
            else:  # nobody is there any more to beat for us
                os._exit(FAILED)

    loop = asyncio.get_running_loop()
    loop.add_reader(orders, ordered)
    # Only ever a drain, however often: some service managers signal every process of a group.
    loop.add_signal_handler(signal.SIGTERM, worker.stop)
    told = asyncio.create_task(_tell_ready(worker, tell))
    try:
        await worker.run()
        if worker.drained:
            tell("drained")
    finally:
        told.cancel()


async def _tell_ready(worker: Worker, tell: Tell) -> None:
    await worker.ready.wait()
    tell("ready")


def new_loop() -> asyncio.AbstractEventLoop:
    """The faster one, if it is there."""
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()


def _read_line(fd: int) -> bytes:
    """Byte by byte: what comes after it is for the event loop."""
    line = b""
    while (byte := os.read(fd, 1)) not in (b"\n", b""):
        line += byte
    return line


def main() -> NoReturn:
    news = int(sys.argv[1])
    os.set_inheritable(news, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the supervisor
    # The orders move aside: no handler may read them as its standard input.
    orders = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    told = msgspec.json.decode(_read_line(orders), type=Orders)
    die_with(told.parent)
    settings = told.settings
    sys.path[:] = told.path
    tasklog.set_up(settings.log_level, settings.log_format, tasks=settings.log_tasks)

    def tell(line: str) -> None:
        os.write(news, line.encode() + b"\n")

    code = 0
    try:
        app = load(settings)
        tell(f"url {app.url}")
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(serve(app, settings, orders, tell))
    except EngineDown as problem:
        logging.error("%s", problem)
        code = ENGINE_DOWN
    except (OutlastError, ImportError) as problem:
        logging.error("%s: %s", settings.target, problem)
        code = USAGE
    except Exception:
        logging.exception("The worker failed")
        code = FAILED
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads that handlers left behind must not keep the process alive


if __name__ == "__main__":
    main()
