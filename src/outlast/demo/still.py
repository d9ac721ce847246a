"""The still life: something of everything at once, for pictures of every screen."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, Final

from outlast import approvals
from outlast.client import AsyncClient
from outlast.core.model import Task, TaskQuery
from outlast.demo import material
from outlast.demo.app import (
    GO,
    PRICES,
    SHAKY,
    agent,
    app,
    ask,
    embed,
    give_back,
    invoice,
    report,
    reserve,
    summarize,
)
from outlast.handler import Call
from outlast.systems.standin import StandIn
from outlast.webhooks import DELIVERY

INVOICES: Final = 3
READER: Final = "reader-7"
ASKER: Final = "ask-demo"
"""The session of the page for end users."""
WAITING: Final = 150
FEW: Final = 20
Until = Callable[[Callable[[], Awaitable[bool]]], Awaitable[None]]
Places = dict[str, str]
"""The addresses of what no screen's own address shows, by the name of the picture."""


@asynccontextmanager
async def still_life(
    address: str, model: StandIn, folder: Path, chance: Random, until: Until
) -> AsyncIterator[Places]:
    """What runs and waits, an open circuit, a question, the dead; workflows, schedules, and a
    webhook whose receiver is not always well."""
    model.cue("error", model=SHAKY, times=1_000)
    (folder / PRICES).unlink(missing_ok=True)
    (folder / GO).unlink(missing_ok=True)  # reports stay at their gate, half done
    try:
        async with _receiver() as hook, AsyncClient(address) as client:
            await _set_up(client, hook)
            places = await _enqueued(chance, until)
            busy = asyncio.create_task(_keep_busy(chance))
            yield places
            busy.cancel()
    finally:
        (folder / PRICES).touch()
        (folder / GO).touch()


async def _set_up(client: AsyncClient, hook: str) -> None:
    """What operators do: it is in the audit log."""
    await client.create_webhook(hook, filter="type:invoice")
    await client.set_budget("user:*", cost="5.00/day")
    await client.set_limit("archive", slots=2, rate="60/min")
    await client.save_schedule("nightly", "report", {"subject": "the day"}, every="0 3 * * *")
    await client.save_schedule("tides", "ask", {"question": "When is high water?"}, every="6h")
    await client.save_schedule("hourly", "embed", {"texts": ["the hour"]}, every="1h")
    await client.run_schedule("hourly")
    await client.pause_schedule("tides")
    await client.pause("archive")


async def _keep_busy(chance: Random) -> None:
    """However long the pictures take, something runs and something waits."""
    while True:
        found = await app.engine.count(TaskQuery.of(type="summarize", status="throttled"))
        missing = FEW - sum(counted.n for counted in found)
        await app.enqueue([_summary(chance) for _ in range(missing)])
        await asyncio.sleep(1)


def _summary(chance: Random, **options: Any) -> Call[Any]:
    return summarize.options(**options).call(material.text(chance), sentences=3)


async def _enqueued(chance: Random, until: Until) -> Places:
    theirs: list[dict[str, Any]] = [
        {"session_id": READER, "user_id": "ada", "tags": ["letter"], "priority": "high"},
        {"session_id": ASKER, "priority": "high"},
    ]
    done = await app.enqueue([_summary(chance, **whose) for whose in theirs * 2])
    undone = await _order()
    letter = await _letter(chance)
    await until(
        partial(_are, len(done), id=tuple(handle.id for handle in done), status="completed")
    )
    calls: list[Call[Any]] = [
        *(_summary(chance, **whose) for whose in theirs),
        *(_summary(chance) for _ in range(WAITING)),
        *(embed.options(delay="10m").call(texts) for texts in material.batches(chance, 3, 5)),
        *(embed.options(queue="archive").call(texts) for texts in material.batches(chance, 4, 2)),
        *(ask.call(f"What do {about} keep?") for about in material.SUBJECTS),
        agent.options(session_id=READER).call(chance.choice(material.GOALS)),
        report.call(chance.choice(material.SUBJECTS)),
        *(invoice.call(n) for n in range(1, INVOICES + 1)),
    ]
    handles = await app.enqueue(calls)
    for n, query in (
        (INVOICES, {"status": "dead", "type": "invoice"}), (2, {"status": "running"}),
        (8, {"status": "throttled"}), (1, {"type": "report", "status": "running"}),
        (2, {"type": DELIVERY, "status": "completed"}),
    ):  # fmt: skip
        await until(partial(_are, n, **query))

    async def somebody_asks() -> bool:
        return bool((await approvals.approvals(app, TaskQuery())).items)

    await until(somebody_asks)
    [outlasted, *_] = await _taken_over()
    return {
        "sessions": f"#/sessions?session={READER}",
        "types": "#/types?type=summarize",
        "task-done": f"#/tasks/{done[0].id}",
        "task-outlasted": f"#/tasks/{outlasted.id}",
        "task-steps": f"#/tasks/{handles[-1 - INVOICES].id}",
        "task-dead": f"#/tasks/{handles[-1].id}",
        "workflow": f"#/workflows/{letter}",
        "workflow-undone": f"#/workflows/{undone}",
        "tasks-none": "#/tasks?q=type%3Asummarize%20status%3Adead",
        "tasks-refused": "#/tasks?q=colour%3Agreen",
    }


async def _taken_over() -> list[Task]:
    """Reports whose worker was killed in the show, and which others brought to their end."""
    done = TaskQuery.of(type="report", status="completed", limit=100)
    return [task for task in (await app.engine.tasks(done)).items if task.losses]


async def _letter(chance: Random) -> str:
    """It is on its way: some of it is done, a report runs, the rest waits."""
    async with app.workflow("letter", priority="high") as flow:
        [texts] = material.batches(chance, 1, 5)
        sorted_in = flow.add(embed, texts, name="sort in")
        drafts = [
            flow.add(summarize, material.text(chance), 2, after=sorted_in, name=f"draft {n}")
            for n in (1, 2, 3)
        ]
        written = flow.add(report, "letters", after=drafts, name="write")
        sent = flow.add(agent, "the drafts", after=written, name="tidy up")
        flow.add(embed, texts, after=(written, sent), name="file")
    return flow.id


async def _order() -> str:
    """It dies half-way, and what was done is undone."""
    async with app.workflow("order") as flow:
        laid_aside = flow.add(reserve, "a barometer", undo=give_back, name="reserve")
        wrapped = flow.add(reserve, "a box", undo=give_back, after=laid_aside, name="wrap")
        billed = flow.add(invoice, 17, after=wrapped, name="bill")
        flow.add(report, "ferries", after=billed, name="ship")
    return flow.id


async def _are(n: int, **query: Any) -> bool:
    return sum(found.n for found in await app.engine.count(TaskQuery.of(**query))) >= n


@asynccontextmanager
async def _receiver() -> AsyncIterator[str]:
    """Where webhooks go: every third is not taken."""
    answers = cycle(("204 No Content", "204 No Content", "503 Service Unavailable"))

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        [size] = re.findall(rb"content-length: *(\d+)", head.lower())
        await reader.readexactly(int(size))
        writer.write(f"HTTP/1.1 {next(answers)}\r\nconnection: close\r\n\r\n".encode())
        writer.close()

    async with await asyncio.start_server(receive, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/outlast"
