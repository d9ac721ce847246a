"""The server that is fuzzed: an app with a worker, on the engine that is named, with one key."""

from __future__ import annotations

import asyncio
import sys

from outlast import Context, Limit, Outlast, Permanent
from outlast.http import serve

app = Outlast(sys.argv[1], limits=[Limit("pool", slots=1)])


@app.task
async def add(ctx: Context, a: int, b: int = 0) -> int:
    """The sum of two numbers."""
    await ctx.progress(50, "half")
    return a + b


@app.task(limits=["pool"])
async def summarize(content: str) -> str:
    return content[:40]


@app.task
async def doomed() -> None:
    raise Permanent("it cannot be")


app.external("elsewhere")

if __name__ == "__main__":
    ready = lambda address: print(address, flush=True)  # noqa: E731, T201
    asyncio.run(serve(app, port=0, embedded_worker=True, on_ready=ready))
