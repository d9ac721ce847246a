"""`outlast bench`: how fast this engine is, on this machine, with one worker in this process.

It has a queue of its own, which nobody else serves, and deletes what it has made. For figures to
compare with others' there is `benchmarks/` in the source.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Final

import typer

from outlast.cli.output import counting, emit, table
from outlast.cli.settings import AppFlag, EngineFlag, JsonFlag, bare_for, on

if TYPE_CHECKING:
    from outlast.app import Outlast
    from outlast.cli.operations import Tell

BATCH: Final = 1_000
CALLERS: Final = 50
STARTS: Final = 100


def bench(
    tasks: Annotated[int, typer.Option("--tasks", min=100, max=1_000_000, help="How many.")] = 5000,
    app: AppFlag = None,
    engine: EngineFlag = None,
    json: JsonFlag = False,
) -> None:
    """Measure this engine from here: enqueue, bulk, drain, and how soon an idle worker starts."""
    app_here = bare_for(engine, app)
    with counting("bench", 2 * tasks) as tell:
        measured = on(app_here, lambda opened: _measure(opened, tasks, tell))
    if json:
        emit(measured)
        return
    rows = (
        ("enqueue, one by one", f"{measured['enqueue_per_second']:,.0f} tasks/s"),
        ("enqueue, in batches", f"{measured['bulk_per_second']:,.0f} tasks/s"),
        ("drain", f"{measured['drain_per_second']:,.0f} tasks/s"),
        ("start on an idle worker, median", f"{measured['start_p50_ms']:.1f} ms"),
        ("start on an idle worker, p99", f"{measured['start_p99_ms']:.1f} ms"),
        ("durability", measured["durability"]),
    )
    table(("WHAT", "HERE"), rows, "")


async def _measure(app: Outlast, tasks: int, tell: Tell) -> dict[str, float | int | str]:
    from outlast import ops
    from outlast.core.model import TaskQuery
    from outlast.worker import Worker

    queue = f"outlast-bench-{secrets.token_hex(4)}"
    began: asyncio.Queue[float] = asyncio.Queue()

    @app.task(name="outlast-bench", queue=queue)
    async def note(n: int) -> None:
        began.put_nowait(perf_counter())

    worker = Worker(app, queues={queue: None})
    running: asyncio.Task[None] | None = None
    try:
        singles = max(tasks // 10, CALLERS) // CALLERS

        async def one_by_one() -> None:
            for n in range(singles):
                await note.enqueue(n)

        start = perf_counter()
        await asyncio.gather(*(one_by_one() for _ in range(CALLERS)))
        enqueue = singles * CALLERS / (perf_counter() - start)

        start = perf_counter()
        for first in range(0, tasks, BATCH):
            await app.enqueue([note.call(n) for n in range(first, min(first + BATCH, tasks))])
            await tell(min(first + BATCH, tasks))
        bulk = tasks / (perf_counter() - start)

        total = tasks + singles * CALLERS
        running = asyncio.create_task(worker.run())
        marks = [await _begun(began, running)]
        for n in range(1, total):
            marks.append(await _begun(began, running))
            if n % BATCH == 0:
                await tell(tasks + min(n, tasks))
        drain = (total - 1) / max(marks[-1] - marks[0], 1e-9)

        waits_ms = []
        for n in range(STARTS):
            asked = perf_counter()
            handle = await note.enqueue(n)
            waits_ms.append(((await _begun(began, running)) - asked) * 1000)
            await handle.result(timeout="30s")
        waits_ms.sort()
    finally:
        worker.stop()
        if running is not None:
            with suppress(asyncio.CancelledError):
                await running
        await ops.bulk(app, "cancel", TaskQuery.of(queue=queue))
        await ops.bulk(app, "delete", TaskQuery.of(queue=queue))
    return {
        "tasks": tasks,
        "enqueue_per_second": enqueue,
        "bulk_per_second": bulk,
        "drain_per_second": drain,
        "start_p50_ms": _at(waits_ms, 0.5),
        "start_p99_ms": _at(waits_ms, 0.99),
        "durability": app.engine.durability,
    }


async def _begun(began: asyncio.Queue[float], running: asyncio.Task[None]) -> float:
    """When the next attempt began; an error of the worker, if it has ended instead."""
    if not began.empty():
        return began.get_nowait()
    next_one = asyncio.ensure_future(began.get())
    await asyncio.wait({next_one, running}, return_when=asyncio.FIRST_COMPLETED)
    if not next_one.done():
        next_one.cancel()
        running.result()
    return await next_one


def _at(values: Sequence[float], share: float) -> float:
    return values[min(int(len(values) * share), len(values) - 1)]
