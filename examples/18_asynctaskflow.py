"""AsyncTaskFlow: summaries by a model that stalls and says 429, streamed to a reader all the same.

Offline: the model is the stand-in. With OPENROUTER_API_KEY set, summaries(app, Model.from_env())
asks a real one. On Redis: OUTLAST_URL=redis://localhost python examples/18_asynctaskflow.py
"""

import asyncio
import json
import os

from outlast import Outlast
from outlast.systems.asynctaskflow import metadata, summaries
from outlast.systems.llm import Model
from outlast.systems.standin import StandIn
from outlast.views import task_view, to_json
from outlast.worker import Worker

TEXT = """
A queue keeps work for later. Erlang found in 1909 that waiting grows without bound as a line nears
full use. A queue that is nine tenths busy is calm; one that is full is a crowd. Most systems that
fail under load do not fail because they are slow, but because nobody said no in time. Retries make
it worse: every caller who gives up and calls again is one more caller. So a good queue limits what
it admits, spreads what it repeats, and remembers what it promised.
"""


async def main() -> None:
    async with StandIn(pace_s=0.01) as standin:
        model = Model("parrot", url=standin.url, stall="1s")
        app = Outlast(os.environ.get("OUTLAST_URL", "memory://"))
        summarize = summaries(app, model)
        async with app:
            worker = Worker(app)
            running = asyncio.create_task(worker.run())

            standin.cue("rate_limit", retry_after=1)  # the first call: everybody waits a second
            standin.cue("stall", after=6)  # the second one falls silent in mid-stream
            handle = await summarize.options(session_id="reader").enqueue(TEXT, sentences=2)
            text = ""
            async for event in handle.events():
                if event.kind == "chunk":
                    text += event.data["chunk"]
                elif event.kind == "rollback":
                    print(f"taken back: {text!r}")
                    text = ""
                elif event.kind == "state":
                    print("state:", event.data["status"])
            assert text == await handle.result()
            print("summary:", text)

            told = metadata(json.loads(to_json(task_view(await handle.refresh()))))
            print({name: told[name] for name in ("state", "retry_count", "error_type")})
            print("asked:", [asked.got for asked in standin.asked])
            worker.stop()
            await running


if __name__ == "__main__":
    asyncio.run(main())
