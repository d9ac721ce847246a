"""`outlast init`: a first app with its test, to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from outlast.cli.output import emit, say
from outlast.cli.settings import JsonFlag
from outlast.core.errors import BadInput, Conflict

MAIN: Final = '''"""Tasks that outlast the process that asks for them. Run it: outlast dev"""

from outlast import Context, Outlast

app = Outlast()  # the engine of $OUTLAST_URL, else the file outlast.db


@app.task(retry="5s 30s 2m", timeout="2m")
async def shorten(ctx: Context, text: str, words: int = 5) -> str:
    """The first words of a text, told as they come."""
    first = text.split()[:words]
    for n, word in enumerate(first, 1):
        await ctx.emit(word + " ")  # streamed to whoever follows
        await ctx.progress(100 * n / len(first), f"{n} of {len(first)} words")
    return " ".join(first)
'''

TEST: Final = '''"""On the real engine, in memory: pip install pytest pytest-asyncio, then pytest"""

import pytest

from main import app, shorten
from outlast.testing import testing


@pytest.mark.asyncio
async def test_a_text_is_shortened() -> None:
    async with testing(app) as t:
        handle = await shorten.enqueue("A queue keeps work for later.", words=2)
        await t.run()
        assert await handle.result() == "A queue"
'''

API: Final = '''"""A web application that hands over tasks. Run it: uvicorn api:site"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from main import app, shorten
from outlast.http import create_api


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with app:
        yield


site = FastAPI(lifespan=lifespan)
site.mount("/outlast", create_api(app))


@site.post("/shorten", status_code=202)
async def start(text: str) -> dict[str, str]:
    handle = await shorten.enqueue(text)
    return {"id": handle.id, "stream": f"/outlast/api/v1/tasks/{handle.id}/stream"}
'''


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="Where; it is made if need be.")
    ] = Path(),
    fastapi: Annotated[
        bool, typer.Option("--fastapi", help="With a web application that hands over tasks.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Write a first app with its test. Nothing that is there is overwritten."""
    files = {"main.py": MAIN, "test_main.py": TEST, **({"api.py": API} if fastapi else {})}
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise Conflict(f"{', '.join(there)}: there already. Name another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
    except OSError as error:
        raise BadInput(f"Cannot write into {str(folder)!r}: {error.strerror}.") from error
    if json:
        emit({"folder": str(folder), "files": list(files)})
        return
    say(f"Wrote {', '.join(files)}. Next:")
    for line in (
        *([] if folder == Path() else [f"cd {folder}"]),
        "outlast dev",
        'outlast enqueue shorten \'{"text": "A queue keeps work for later."}\' --follow',
    ):
        say(f"  {line}")
