"""The app under load: something short, and something that stays."""

from __future__ import annotations

import asyncio

from outlast import Context, Outlast

app = Outlast("memory://")


@app.task
async def add(a: int, b: int = 0) -> int:
    return a + b


@app.task
async def long() -> None:
    await asyncio.sleep(3_600)


@app.task
async def tell(ctx: Context, chunks: int, pause_s: float) -> int:
    """Puts out numbered chunks, slowly enough to be lost and found again."""
    for n in range(chunks):
        await ctx.emit(n)
        await asyncio.sleep(pause_s)
    return chunks
