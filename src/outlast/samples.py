"""The app that `outlast dev` runs when it is given none: small handlers that show what there is."""

from __future__ import annotations

import asyncio
import random
from itertools import count

from outlast.app import Outlast
from outlast.context import Context
from outlast.core.errors import Permanent, Transient
from outlast.core.limits import Limit
from outlast.systems.asynctaskflow import summaries
from outlast.systems.llm import Model

app = Outlast(limits=[Limit("samples", slots=4)])

PARAGRAPH = """
A queue keeps work for later. It has done so since the first telephone exchange put a caller on
hold. Erlang counted such callers in Copenhagen in 1909 and found that waiting grows without bound
as a line nears full use. A queue that is nine tenths busy is calm; one that is full is a crowd.
Most systems that fail under load do not fail because they are slow, but because nobody said no in
time. Retries make it worse: every caller who gives up and calls again is one more caller. So a
good queue limits what it admits, spreads what it repeats, and remembers what it promised. Above
all it does not forget a task because a process died.
"""


summarize = summaries(app, Model.from_env())


@app.task(retry="1s 2s")
async def flaky(ctx: Context, fails: int = 2) -> str:
    """Fails a few times, then succeeds."""
    if ctx.attempt <= fails:
        raise Transient(f"failure {ctx.attempt} of {fails}, as planned")
    return f"succeeded at attempt {ctx.attempt}"


@app.task
async def doomed(amount: int = -1) -> None:
    """Can never succeed, and says so: look for it among the dead."""
    raise Permanent(f"the amount must be positive, not {amount}", details={"amount": amount})


@app.task(limits=["samples"])
async def slow(ctx: Context, seconds: float = 10, steps: int = 20) -> str:
    """Takes its time and tells how far it is."""
    for step in range(steps):
        await ctx.progress(round(100 * step / steps), f"step {step + 1} of {steps}")
        await asyncio.sleep(seconds / steps)
    return f"{steps} steps in {seconds:g} s"


@app.task(isolate=True, memory="512MB", timeout="1m")
def crunch(ctx: Context, below: int = 200_000) -> int:
    """Counts primes in a process of its own, where it can be killed."""
    sieve = bytearray([1]) * max(below, 2)
    sieve[:2] = b"\0\0"
    for n in range(2, int(below**0.5) + 1):
        if sieve[n]:
            sieve[n * n :: n] = bytes(len(range(n * n, len(sieve), n)))
            ctx.progress(round(100 * n / below**0.5), f"sieved by {n}")
    return sum(sieve)


async def lively(every_s: float = 2.0) -> None:
    """A steady trickle of tasks, so that a fresh dashboard has something to show."""
    for n in count():
        calls = [
            summarize.options(session_id="sample", tags=["sample"]).call(PARAGRAPH, sentences=2),
            slow.options(tags=["sample"]).call(seconds=random.uniform(1, 8)),  # noqa: S311
        ]
        if n % 3 == 0:
            calls.append(flaky.options(tags=["sample"]).call())
        if n % 10 == 0:
            await app.enqueue([doomed.options(tags=["sample"]).call(amount=-n)])
        if n % 15 == 0:
            await app.enqueue([crunch.options(tags=["sample"]).call()])
        await app.enqueue(calls)
        await asyncio.sleep(every_s)
