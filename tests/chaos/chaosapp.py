"""The app of the chaos tests, imported by the processes under test.

Handlers write what they do to a file of lines, `$CHAOS_LEDGER`, in single appends. That file, not
the engine, is the truth about what was executed. `$CHAOS_GATE` is a file for which gated handlers
wait.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from pathlib import Path

from outlast.app import Outlast
from outlast.context import Context
from outlast.core.limits import Limit
from outlast.core.retry import Retry

app = Outlast(limits=[Limit("narrow", slots=3)])

GATE = Path(os.environ["CHAOS_GATE"])
_fd = os.open(os.environ["CHAOS_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(kind: str, ctx: Context) -> None:
    os.write(_fd, f"{kind} {ctx.task_id} {ctx.number} {os.getpid()}\n".encode())


def gate_is_open() -> bool:
    return GATE.exists()


@app.task
async def gated(ctx: Context) -> int:
    """Runs until the gate is open."""
    note("start", ctx)
    while not gate_is_open():  # noqa: ASYNC110  # the gate is a file
        await asyncio.sleep(0.02)
    note("end", ctx)
    return os.getpid()


@app.task
def deaf(ctx: Context) -> int:
    """As `gated`, in a thread that never looks whether it was told to stop."""
    note("start", ctx)
    while not gate_is_open():
        time.sleep(0.02)
    note("end", ctx)
    return os.getpid()


@app.task
async def quick(ctx: Context, n: int) -> int:
    note("start", ctx)
    return n


@app.task
async def blocks_the_loop(ctx: Context, seconds: float) -> str:
    note("start", ctx)
    time.sleep(seconds)  # noqa: ASYNC251  # that is the point
    note("end", ctx)
    return "done"


@app.task
async def holds_the_gil(ctx: Context, seconds: int) -> str:
    """`sleep` of the C library, called without letting go of the GIL: no thread of ours moves."""
    note("start", ctx)
    ctypes.PyDLL(None).sleep(seconds)
    note("end", ctx)
    return "done"


@app.task(isolate=True)
def isolated(ctx: Context) -> None:
    note("start", ctx)
    time.sleep(60)


app.command("sleeps", ["sleep", "60"])


@app.task(max_losses=3)
async def kills_its_process(ctx: Context) -> None:
    note("start", ctx)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(limits=["narrow"], retry=Retry("10ms"))
async def narrow(ctx: Context, seconds: float) -> None:
    note("start", ctx)
    await asyncio.sleep(seconds)
    note("end", ctx)


@app.task
async def spends(ctx: Context, times: int) -> None:
    """Uses a token many times, and writes down what it is about to use and what was recorded."""
    for _ in range(times):
        note("spends", ctx)
        await ctx.usage(tokens=1, cost="0.000000001", model="small")
        note("spent", ctx)
        await asyncio.sleep(0.005)


# work of several steps ---------------------------------------------------------------------------


@app.task
async def durable(ctx: Context) -> int:
    """Five steps; the ledger says of each when its effect happened, and when it was stored."""

    async def effect(n: int) -> int:
        await asyncio.sleep(0.02)
        note(f"effect{n}", ctx)
        return n

    total = 0
    for n in range(5):
        total += await ctx.step(f"step {n}", effect, n)
        note(f"stored{n}", ctx)
    return total


@app.task(max_losses=1_000_000)  # two hundred kills are not its fault
async def undo(order: str, n: int) -> None:
    """Bears that what it undoes never happened, and that it is asked twice."""
    os.write(_fd, f"undone{n} {order} 0 {os.getpid()}\n".encode())


@app.task(retry="10ms", max_attempts=2)
async def order(ctx: Context, fails: bool) -> int:
    """Three effects, each with its undo; one of two fails behind them."""

    async def effect(order: str, n: int) -> int:
        note(f"effect{n}", ctx)
        await asyncio.sleep(0.02)  # here it may die: the effect is there, the record is not
        return n

    for n in range(3):
        await ctx.step(f"step {n}", effect, ctx.task_id, n, undo=undo)
    if fails:
        raise RuntimeError("out of stock")
    return 3
