"""Sub-agents: programs that are given a prompt, at once or kept by the queue."""

import asyncio
import sys

from outlast import Outlast
from outlast.systems.subagents import Agent, SubAgents, TaskTool
from outlast.systems.taskqueue import Task, TaskQueue
from outlast.worker import Worker

# Yours would be ["letta", "run-agent", "--model", "{model}"]; this one counts the words it is told.
COUNT = "import json, sys; print(len(json.load(sys.stdin)['prompt'].split()))"

app = Outlast("memory://")
agents = SubAgents(
    app,
    {
        "counter": Agent([sys.executable, "-c", COUNT], memory="512MB", timeout="30s"),
        "reviewer": Agent(),  # no command: fetched by hand, below
    },
)


async def main() -> None:
    tool = TaskTool(agents)
    print(await tool.run("runs here, now", "counter"))

    async with TaskQueue(agents) as queue:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        kept = await tool.run("runs wherever there is a worker", "counter", persist=True)
        print(kept)
        print(await tool.result(kept.task_id or "", timeout="30s"))
        worker.stop()
        await running

        await queue.enqueue(Task(subagent_type="reviewer", prompt="Is this fine?", user_id="ada"))
        task = await queue.dequeue("agent-1", timeout_ms=5_000)
        if task is not None:
            await queue.complete(task.id, {"answer": "It is."})
        print(await queue.list_by_user("ada"))


if __name__ == "__main__":
    asyncio.run(main())
