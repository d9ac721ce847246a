"""An app with something for every screen, and gates that tests open."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from outlast import Budget, Context, Limit, Outlast, Permanent, Transient, Trip
from outlast.content import content_id

Gates = dict[str, asyncio.Event]


class Guest(BaseModel):
    name: str
    age: int | None = None
    meals: list[str] = []


def _png(width: int, height: int) -> bytes:
    """A picture in one colour."""

    def part(kind: bytes, data: bytes) -> bytes:
        sum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", sum)

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = (b"\0" + b"\x0d\x6d\x65" * width) * height
    whole = part(b"IHDR", head) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + whole


PICTURE = _png(3, 2)


def make_app(url: str, content: Path | None = None) -> tuple[Outlast, Gates]:
    app = Outlast(
        url,
        content=None if content is None else str(content),
        limits=[Limit("pool", slots=1), Limit("model", trip=Trip(volume=1, open="1h"))],
        budgets=[Budget("user:*", cost="5.00/day")],
    )
    gates: Gates = {}

    def gate(name: str) -> asyncio.Event:
        return gates.setdefault(name, asyncio.Event())

    @app.task
    async def summarize(ctx: Context, content: str) -> str:
        """What a text says, word by word."""
        for n, word in enumerate(content.split()):
            if word.startswith("gate-"):
                await gate(word).wait()
            await ctx.emit(f"{word} ")
            await ctx.progress(min(10 * n, 99), f"word {n}")
        return content.upper()

    @app.task
    async def fails(mended: bool = False, note: str = "") -> str:
        """Fails for good, unless its payload was mended."""
        if not mended:
            raise Permanent("the part is missing", details={"part": 7})
        return f"mended {note}"

    @app.task(retry="1ms")
    async def flaky(ctx: Context, fails: int = 1) -> str:
        """Says something wrong first."""
        await ctx.emit("wrong words")
        if ctx.attempt <= fails:
            raise Transient("not yet")
        return "right words"

    @app.task(limits=["pool"])
    async def waits(ctx: Context, name: str) -> str:
        """Runs until its gate opens."""
        await ctx.progress(40, f"at {name}")
        await gate(name).wait()
        return name

    @app.task
    async def stepped(ctx: Context, name: str) -> str:
        """Two steps, and a gate between them."""
        first = await ctx.step("fetch", fetch, name)
        await gate(name).wait()
        return await ctx.step("shout", str.upper, first)

    @app.task
    async def cautious(ctx: Context, folder: str) -> str:
        """Asks before it deletes."""
        answer = await ctx.ask(f"Delete {folder}?", action={"delete": folder})
        return f"the answer was {answer}"

    @app.task
    async def spends(ctx: Context, prompt: str) -> str:
        used = {"input_tokens": 900, "output_tokens": 120, "first_token_ms": 250, "answers": 1}
        await ctx.usage(cost="0.25", model="small", **used)
        return prompt

    @app.task(limits=["model"], max_attempts=1)
    async def trips() -> None:
        """What it calls is down, which opens its circuit."""
        raise Transient("503", status=503)

    @app.task(queue="bulk")
    async def draw(ctx: Context, prompt: str, style: str = "plain", size: int = 64) -> str:
        """A picture of something."""
        return f"{style} {prompt} of {size}"

    @app.task
    async def paint(ctx: Context, prompt: str) -> dict[str, str]:
        """A picture of three by two, which is kept as content."""

        async def pieces() -> AsyncIterator[bytes]:
            yield PICTURE

        assert app.content is not None
        id = content_id(ctx.created_at, ctx.task_id, "picture")
        await app.content.keep(id, ctx.task_id, pieces())
        return {"prompt": prompt, "picture": id}

    @app.task(max_attempts=1)
    async def says(ctx: Context, text: str) -> None:
        """Says the text wherever a handler can, and fails with it."""
        await ctx.step(text[:100], fetch, text)
        await ctx.progress(7, text, data=text)
        await ctx.usage(tokens=1, model=text[:64])
        raise type(text[:60], (Exception,), {})(text)

    @app.task
    async def book(
        guest: Guest, class_: Literal["first", "second"] = "second", more: list[Guest] | None = None
    ) -> str:
        """A journey for some people."""
        names = [one.name for one in (guest, *(more or []))]
        return f"{', '.join(names)} in {class_} class"

    @app.task
    async def reserve(order: str) -> str:
        return f"reserved {order}"

    @app.task
    async def give_back(order: str) -> str:
        return f"gave back {order}"

    @app.task
    async def ship(order: str, reserved: str, works: bool = True) -> str:
        """Waits for its gate, and may fail behind it."""
        await gate(order).wait()
        if not works:
            raise Permanent("the van broke down")
        return f"shipped {order}"

    app.external("elsewhere", schema={"type": "object"})
    return app, gates


async def fetch(name: str) -> str:
    return f"the text of {name}"
