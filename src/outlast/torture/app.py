"""The tortured app: handlers that write what they do into the ledger, on a recorded engine.

Imported by worker processes, as `outlast worker outlast.torture.app:app`; `$TORTURE_FOLDER` is the
folder for ledgers and histories.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from time import monotonic_ns
from typing import Final

from outlast.app import Outlast
from outlast.context import Context
from outlast.core.limits import Limit
from outlast.core.retry import Retry
from outlast.engine import Engine
from outlast.torture.load import FLAKY_FAILS, NARROW, RETRY_MS, SLOTS, children
from outlast.torture.record import Deed, Pages, Run, recorded

FOLDER: Final = "TORTURE_FOLDER"
EMIT_MS: Final = 150
PAUSED_NS: Final = 1_000_000_000


class Tortured(Outlast):
    """An app whose engine leaves a history."""

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = recorded(self.url, _folder(), "worker")
        return self._engine


app = Tortured(limits=[Limit(NARROW, slots=SLOTS)])
again: Final = Retry(f"{RETRY_MS}ms", jitter=0)


@cache
def _folder() -> Path:
    return Path(os.environ[FOLDER])


@cache
def _ledger() -> Pages:
    return Pages(_folder() / f"ledger-{os.getpid()}")


def note(deed: Deed, ctx: Context) -> None:
    _ledger().write(Run(deed=deed, task=ctx.task_id, number=ctx.number, at=monotonic_ns()))


@contextmanager
def noted(ctx: Context) -> Iterator[None]:
    """Started; then ended, failed or halted, unless the process is no more."""
    note("start", ctx)
    try:
        yield
    except asyncio.CancelledError:
        note("halt", ctx)
        raise
    except Exception:
        note("fail", ctx)
        raise
    note("end", ctx)


class Mood:
    """Whether handlers of this process have output on the way. Some time after each pause that
    turns: woken up too late, a process has nothing but ends for the engine once, and news among
    them the next time. Both are stale, and an engine may take turns of ends another way."""

    def __init__(self) -> None:
        self.talks = False
        self._seen_at = self._paused_at = 0
        self._turned = True

    def look(self) -> None:
        now = monotonic_ns()
        if self._seen_at and now - self._seen_at > PAUSED_NS:
            self._paused_at, self._turned = now, False
        elif not self._turned and now - self._paused_at > PAUSED_NS:
            self.talks, self._turned = not self.talks, True
        self._seen_at = now


mood: Final = Mood()


async def _last(ctx: Context, ms: int) -> None:
    ends_at = monotonic_ns() + ms * 1_000_000
    for left in range(ms, 0, -EMIT_MS):
        mood.look()
        if mood.talks:
            await ctx.emit(left)
        elif monotonic_ns() > ends_at:
            return  # its time passed in a pause
        await asyncio.sleep(min(left, EMIT_MS) / 1_000)


# Results are the number of the attempt: the record must name the one that it counts.


@app.task
async def instant(ctx: Context) -> int:
    with noted(ctx):
        return ctx.number


@app.task
async def short(ctx: Context) -> int:
    with noted(ctx):
        await asyncio.sleep(0.05)
        return ctx.number


@app.task
async def long(ctx: Context, ms: int) -> int:
    """Some seconds."""
    with noted(ctx):
        await _last(ctx, ms)
        return ctx.number


@app.task
def threaded(ctx: Context) -> int:
    with noted(ctx):
        time.sleep(0.1)
        return ctx.number


@app.task(retry=again)
async def flaky(ctx: Context) -> int:
    with noted(ctx):
        if ctx.attempt <= FLAKY_FAILS:
            raise RuntimeError("not yet")
        return ctx.number


@app.task(retry=again)
async def failing(ctx: Context) -> int:
    with noted(ctx):
        raise RuntimeError("never")


@app.task(retry=again)
async def parent(ctx: Context) -> int:
    with noted(ctx):
        await app.engine.enqueue([child.task for child in children(ctx.task_id)])
        return ctx.number


@app.task
async def child(ctx: Context) -> int:
    with noted(ctx):
        return ctx.number


@app.task
async def unique(ctx: Context) -> int:
    with noted(ctx):
        await asyncio.sleep(0.3)
        return ctx.number


@app.task
async def limited(ctx: Context) -> int:
    with noted(ctx):
        await asyncio.sleep(0.1)
        return ctx.number


@app.task
async def delayed(ctx: Context) -> int:
    with noted(ctx):
        return ctx.number


@app.task
async def after(ctx: Context) -> int:
    with noted(ctx):
        return ctx.number


@app.task
async def doomed(ctx: Context) -> int:
    """Runs until it is cancelled."""
    with noted(ctx):
        await _last(ctx, 120_000)
        return ctx.number


@app.task
async def deadly(ctx: Context) -> None:
    note("start", ctx)
    os.kill(os.getpid(), signal.SIGKILL)
