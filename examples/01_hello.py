"""Hello: a task is handed over, a worker runs it, the result comes back.

The task is in `hello.db` before `enqueue` returns. Kill this program right there and start it
again: the task is still there, and the worker runs it.
"""

import asyncio

from outlast import Outlast
from outlast.worker import Worker

app = Outlast("sqlite:///hello.db")


@app.task
async def greet(name: str) -> str:
    return f"Hello, {name}!"


async def main() -> None:
    async with app:
        handle = await greet.enqueue("Ada")
        print(handle.id, await handle.status(), f"({handle.durability})")

        # Usually `outlast worker`, elsewhere; this one ends when nothing is ready.
        await Worker(app).drain()

        print(await handle.status(), await handle.result())


if __name__ == "__main__":
    asyncio.run(main())
