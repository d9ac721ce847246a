"""Tests: the real engine in memory, and time that passes when it is told to. Also run by pytest."""

import asyncio

from outlast import Context, Outlast, Transient
from outlast.testing import testing

app = Outlast("sqlite:///production.db")


@app.task(max_attempts=3, retry="5s 30s")
async def fetch(ctx: Context, url: str) -> str:
    if ctx.attempt < 3:
        raise Transient("503 from the other side")
    return f"content of {url}"


async def test_fetch_is_tried_three_times() -> None:
    async with testing(app) as t:  # the app is on memory:// while this lasts
        handle = await fetch.enqueue("https://example.org")
        await t.run()  # until nothing is ready
        assert await t.status(handle) == "retrying"

        await t.advance("6s")  # no sleeping: the engine's clock is moved
        await t.run()
        await t.advance("1m")
        await t.run()

        assert await handle.result() == "content of https://example.org"
        assert [event.kind for event in await t.events(handle)][-1] == "done"


if __name__ == "__main__":
    asyncio.run(test_fetch_is_tried_three_times())
    print("passed, and nobody slept")
