"""A handler as an object: for state of its own, and for limits that depend on the payload."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from outlast import Limit, Outlast
from outlast.worker import Worker

PROVIDERS = {"fast": 8, "careful": 1}


class MediaHandler:
    task_type = "media.generate"

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes

    def limits_for(self, payload: Mapping[str, Any]) -> list[Limit]:
        provider = payload["provider"]
        return [Limit(f"media:{provider}", slots=self._sizes[provider])]

    async def execute(
        self, payload: Mapping[str, Any], progress: Callable[[float, str], Any]
    ) -> dict[str, str]:
        await progress(50, f"asking {payload['provider']}")
        await asyncio.sleep(0.01)
        return {"content_id": f"{payload['provider']}/{payload['prompt']}.png"}


app = Outlast("memory://")
media = app.register(MediaHandler(PROVIDERS), timeout="5m")


async def main() -> None:
    async with app:
        calls = [media.call(provider=name, prompt="a lighthouse") for name in PROVIDERS]
        handles = await app.enqueue(calls)
        await Worker(app).drain()
        for handle in handles:
            task = await handle.refresh()
            print(task.limits, await handle.result())


if __name__ == "__main__":
    asyncio.run(main())
