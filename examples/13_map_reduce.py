"""A long document, summarised in pieces at once: as many tasks as the text turns out to need."""

import asyncio

from outlast import Outlast
from outlast.worker import Worker

app = Outlast("memory://")
TEXT = " ".join(f"This is sentence {n}. It says more than it should." for n in range(40))


@app.task
async def split(text: str, size: int = 600) -> list[str]:
    pieces, piece = [], ""
    for sentence in text.split(". "):
        if len(piece) + len(sentence) > size:
            pieces.append(piece)
            piece = ""
        piece += sentence + ". "
    return [*pieces, piece]


@app.task
async def summarize(piece: str, keep: int = 1) -> str:
    return ". ".join(piece.split(". ")[:keep]) + "."


@app.task
async def join(parts: list[str]) -> str:
    return " ".join(parts)


async def main() -> None:
    async with app:
        async with app.workflow("summary", tags=["document"]) as flow:
            pieces = flow.add(split, TEXT)
            parts = flow.map(summarize, pieces.out, keep=1)
            flow.add(join, parts.out)
        await Worker(app).drain()
        print(await flow.handle.result())


if __name__ == "__main__":
    asyncio.run(main())
