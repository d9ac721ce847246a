"""A batch: many calls in one step, all of them or none; unique keys; what was enqueued before."""

import asyncio
import time

from outlast import Outlast
from outlast.worker import Worker

app = Outlast("memory://")


# Nobody follows these one by one: only failures and ends are logged.
@app.task(followed=False)
async def embed(text: str) -> list[float]:
    return [float(len(text)), float(text.count("e"))]


@app.task(priority="high")
async def report(day: str) -> str:
    return f"report of {day}"


async def main() -> None:
    async with app:
        start = time.perf_counter()
        handles = await app.enqueue([embed.call(f"sentence {n}") for n in range(2_000)])
        print(f"{len(handles)} tasks in {time.perf_counter() - start:.2f} s")

        daily = report.options(unique_key="report:2026-11-16")
        first = await daily.enqueue("2026-11-16")
        again = await daily.enqueue("2026-11-16")
        assert again.id == first.id
        assert again.existing

        await Worker(app).drain()

        vectors = await asyncio.gather(*(handle.result() for handle in handles[:3]))
        print(vectors, await first.result())


if __name__ == "__main__":
    asyncio.run(main())
