"""Limits: two calls per user at once, ten to the provider, for the whole fleet.

A task takes all of its limits or none. Those that wait cost the others nothing.
"""

import asyncio
from collections import Counter

from outlast import Limit, Outlast, Trip
from outlast.worker import Worker

app = Outlast(
    "memory://",
    limits=[
        Limit("user:*", slots=2),
        Limit("provider:acme", slots=10, rate="600/min", trip=Trip(rate=0.5, volume=10)),
    ],
)
now: Counter[str] = Counter()
most: Counter[str] = Counter()


@app.task(limits=["user:{user}", "provider:acme"])
async def ask(user: str, question: str) -> str:
    for who in (user, "everybody"):
        now[who] += 1
        most[who] = max(most[who], now[who])
    await asyncio.sleep(0.05)
    for who in (user, "everybody"):
        now[who] -= 1
    return f"{question} 42."


async def main() -> None:
    async with app:
        users = [f"user{n}" for n in range(8)]
        calls = [ask.call(user, question="Why?") for user in users for _ in range(5)]
        handles = await app.enqueue(calls)

        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        await asyncio.gather(*(handle.result(timeout="20s") for handle in handles))
        worker.stop()
        await running

        print(f"{len(handles)} answers; at once: {dict(most)}")
        assert most["everybody"] <= 10
        assert all(most[user] <= 2 for user in users)


if __name__ == "__main__":
    asyncio.run(main())
