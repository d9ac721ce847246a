"""The app under load: something short, and something that stays."""

from __future__ import annotations

import asyncio

from outlast import Outlast

app = Outlast("memory://")


@app.task
async def add(a: int, b: int = 0) -> int:
    return a + b


@app.task
async def long() -> None:
    await asyncio.sleep(3_600)
