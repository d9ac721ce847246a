"""Order between tasks: one runs when others have ended; if one of them dies, it is cancelled."""

import asyncio

from outlast import Outlast, Permanent, TaskCancelled
from outlast.worker import Worker

app = Outlast("memory://")
pages: dict[str, str] = {}


@app.task
async def fetch(url: str) -> None:
    if "broken" in url:
        raise Permanent(f"{url} is gone")
    pages[url] = f"content of {url}"


@app.task
async def combine(urls: list[str]) -> str:
    return " + ".join(pages[url] for url in urls)


@app.task
async def clean_up() -> str:
    return "cleaned up"


async def main() -> None:
    async with app:
        urls = ["a.example", "b.example"]
        fetched = await app.enqueue([fetch.call(url) for url in urls])
        both = await combine.options(after=fetched).enqueue(urls)

        broken = await fetch.enqueue("broken.example")
        never = await combine.options(after=[broken]).enqueue(["broken.example"])
        always = await clean_up.options(after=[broken], needs="any").enqueue()

        await Worker(app).drain()

        print(await both.result())
        try:
            await never.result()
        except TaskCancelled as cancelled:
            print("cancelled:", cancelled.reason)
        print(await always.result())


if __name__ == "__main__":
    asyncio.run(main())
