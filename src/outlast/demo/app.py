"""The app of the demo: small handlers that lean on a model, and write what they do into a ledger.

Imported by worker and server processes as `outlast.demo.app:app`. `$DEMO_FOLDER` is the folder for
the ledger and for the files that the director opens gates with; `$DEMO_MODEL` is where the stand-in
for a model listens.
"""

from __future__ import annotations

import asyncio
import os
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from outlast.app import Outlast
from outlast.context import Context
from outlast.core.errors import Permanent
from outlast.core.limits import Limit, Trip
from outlast.core.model import TaskId
from outlast.core.retry import Retry
from outlast.systems.asynctaskflow import summaries
from outlast.systems.llm import Model
from outlast.torture.record import Pages

FOLDER: Final = "DEMO_FOLDER"
MODEL: Final = "DEMO_MODEL"
NOBODY: Final = "http://127.0.0.1:9/v1"  # the port of "discard": the app can be imported without

STEADY: Final = "parrot-a"
SHAKY: Final = "parrot-b"
TRIP_VOLUME: Final = 5
REPORTS: Final = "reports"
PARTS: Final = 5
GATE_BEFORE: Final = 3
"""The part that a report waits before, until the director lets it go on."""
GO: Final = "go"
PRICES: Final = "prices"


class Line(Struct, frozen=True):
    """One line of the ledger: this process did that for a task."""

    task: TaskId
    deed: str
    pid: int


app: Final = Outlast(
    limits=[
        Limit(STEADY, slots=4),
        Limit(SHAKY, slots=8, trip=Trip(rate=0.5, volume=TRIP_VOLUME, open="2s")),
    ]
)
_url: Final = os.environ.get(MODEL, NOBODY)
_steady: Final = Model(STEADY, url=_url, limit=app.limits[STEADY])
_shaky: Final = Model(SHAKY, url=_url, limit=app.limits[SHAKY])

summarize = summaries(app, _steady)


@app.task(limits=[STEADY])
async def embed(ctx: Context, texts: list[str]) -> int:
    """A vector for each text; how many there are."""
    vectors = await _steady.embed(ctx, texts)
    await ctx.progress(100, f"{len(vectors)} texts embedded")
    return len(vectors)


@app.task(limits=[SHAKY], retry=Retry("1s", jitter=0), max_attempts=8)
async def ask(ctx: Context, question: str) -> str:
    """An answer of the model that falls ill now and then."""
    return (await _shaky.chat(ctx, question)).text


@app.task(queue=REPORTS, retry=Retry("1s", jitter=0))
async def report(ctx: Context, subject: str) -> list[str]:
    """Five parts, each a durable step: one that is written is never written again."""
    written = []
    for n in range(1, PARTS + 1):
        if n == GATE_BEFORE:
            await _gate(ctx)
        written.append(await ctx.step(f"part {n}", _write, ctx.task_id, n, subject))
        await ctx.progress(100 * n / PARTS, f"part {n} of {PARTS}")
    return written


async def _write(task: TaskId, n: int, subject: str) -> str:
    note(task, f"part {n}")
    return f"part {n} on {subject}"


async def _gate(ctx: Context) -> None:
    """All that comes before is recorded: here a worker can be killed at a moment that is known."""
    if not (_folder() / GO).exists():
        note(ctx.task_id, "gate")
        while not (_folder() / GO).exists():  # noqa: ASYNC110  # another process makes it
            await asyncio.sleep(0.02)


@app.task
async def agent(ctx: Context, goal: str) -> str:
    """Asks a person before it acts, and holds no worker while it waits."""
    plan = await ctx.step("plan", _plan, ctx.task_id, goal)
    said = await ctx.ask(f"May I {plan}?", action={"do": plan}, timeout="1h", default="no")
    if said not in ("yes", True):
        return f"did not {plan}"
    return await ctx.step("act", _act, ctx.task_id, plan)


async def _plan(task: TaskId, goal: str) -> str:
    note(task, "plan")
    return f"delete {goal}"


async def _act(task: TaskId, plan: str) -> str:
    note(task, "act")
    return f"did {plan}"


@app.task
async def reserve(ctx: Context, what: str) -> str:
    """Lays something aside; `give_back` undoes it."""
    note(ctx.task_id, "reserve")
    return f"{what} is laid aside"


@app.task
async def give_back(ctx: Context, what: str) -> str:
    """Puts back what was laid aside."""
    note(ctx.task_id, "give back")
    return f"{what} is back"


@app.task
async def invoice(ctx: Context, number: int) -> str:
    """Cannot be made without a price list, and trying again would not help: it dies."""
    if not (_folder() / PRICES).exists():
        raise Permanent("There is no price list.", details={"looked_for": PRICES})
    note(ctx.task_id, "invoice")
    return f"invoice {number}"


def note(task: TaskId, deed: str) -> None:
    _ledger().write(Line(task, deed, os.getpid()))


@cache
def _folder() -> Path:
    return Path(os.environ[FOLDER])


@cache
def _ledger() -> Pages:
    return Pages(_folder() / f"ledger-{os.getpid()}")
