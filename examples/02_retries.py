"""Retries: a policy decides what follows a failure; what cannot succeed dies, and is redriven."""

import asyncio

from outlast import Context, Outlast, Permanent, Retry, TaskDead, Transient
from outlast.worker import Worker

app = Outlast("memory://")
stock = {"tea": 3}


@app.task(max_attempts=5, retry=Retry("50ms 200ms").never(ValueError))
async def flaky(ctx: Context, fails: int) -> str:
    if ctx.attempt <= fails:
        raise Transient(f"attempt {ctx.attempt} failed, as planned")
    return f"succeeded at attempt {ctx.attempt}"


@app.task
async def order(item: str) -> int:
    if item not in stock:
        raise Permanent(f"there is no {item}", details={"item": item})
    return stock[item]


async def main() -> None:
    async with app:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())

        print(await (await flaky.enqueue(fails=2)).result(timeout="10s"))

        handle = await order.enqueue("coffee")
        try:
            await handle.result(timeout="10s")
        except TaskDead as dead:
            print(f"{dead.reason}: {dead.error and dead.error['message']}")

        stock["coffee"] = 7
        await handle.retry()  # the history stays; the budgets are fresh
        print("redriven:", await handle.result(timeout="10s"))

        worker.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main())
