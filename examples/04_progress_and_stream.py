"""Progress and output: a handler streams its answer; a reader that lost it comes back by cursor."""

import asyncio

from outlast import Context, Outlast
from outlast.worker import Worker

app = Outlast("memory://")
ANSWER = "A queue keeps work for later ."


@app.task
async def write(ctx: Context, topic: str) -> str:
    words = ANSWER.split()
    for n, word in enumerate(words, 1):
        await ctx.emit(word + " ")
        await ctx.progress(100 * n / len(words), f"word {n} of {len(words)}", topic=topic)
        await asyncio.sleep(0.01)
    return ANSWER


async def main() -> None:
    async with app:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        handle = await write.options(session_id="chat-1").enqueue("queues")

        cursor = None
        async for event in handle.events():
            cursor = event.cursor
            if event.kind == "chunk":
                print(event.data["chunk"], end="", flush=True)
                break  # the connection is lost; the work goes on

        async for event in handle.events(after=cursor):  # nothing is missing, nothing comes twice
            if event.kind == "chunk":
                print(event.data["chunk"], end="", flush=True)
            elif event.kind == "done":
                print(f"[{event.data['status']}]")

        worker.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main())
