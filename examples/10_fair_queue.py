"""A fair queue: who has few tasks waits for few, however many somebody else has brought."""

import asyncio

from outlast import Outlast, Queue
from outlast.worker import Worker

app = Outlast("memory://", queues=[Queue("llm", fair_by="user_id")])
served: list[str] = []


@app.task(queue="llm", followed=False)
async def ask(user: str) -> None:
    served.append(user)


async def main() -> None:
    async with app:
        crowd = ask.options(user_id="crowd")
        await app.enqueue([crowd.call("crowd") for _ in range(200)])
        ada = ask.options(user_id="ada")
        await app.enqueue([ada.call("ada") for _ in range(3)])  # 200 tasks later

        await Worker(app).drain()

        print(served[:8])
        assert served.index("ada") < 3
        assert [who for who in served[:6] if who == "ada"] == ["ada"] * 3


if __name__ == "__main__":
    asyncio.run(main())
