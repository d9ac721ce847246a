"""Processes: code that may hang, leak or crash runs in a child that can be killed."""

import asyncio
import os
import sys
import time

from outlast import Outlast, TaskDead
from outlast.worker import Worker

app = Outlast("memory://")


@app.task(isolate=True, memory="512MB", timeout="30s")
def crunch(below: int) -> int:
    return sum(n for n in range(2, below) if all(n % d for d in range(2, int(n**0.5) + 1)))


@app.task(isolate=True, timeout="500ms", max_attempts=1)
def hang() -> None:
    while True:  # no CancelledError reaches this; SIGKILL does
        time.sleep(0.01)


@app.task(isolate=True, max_attempts=1)
def crash() -> None:
    os.abort()


count = app.command("count", [sys.executable, "-c", "print(len('{text}'))"])


async def main() -> None:
    async with app:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        good = await crunch.enqueue(2_000)
        command = await count.enqueue(text="four")
        for bad in (await hang.enqueue(), await crash.enqueue()):
            try:
                await bad.result(timeout="30s")
            except TaskDead as dead:
                print(dead.reason, dead.error and dead.error["message"])
        print(await good.result(timeout="30s"), await command.result(timeout="30s"))
        worker.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main())
