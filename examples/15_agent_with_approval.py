"""An agent that plans, asks a person before it acts, and holds no worker while it waits."""

import asyncio

from outlast import Context, Outlast
from outlast.worker import Worker

app = Outlast("memory://")
calls: list[str] = []


async def think(goal: str, done: list[str]) -> str:
    """Stands for a model: the next thing to do, or nothing."""
    calls.append(f"think after {len(done)}")
    plan = [f"look for {goal}", f"delete {goal}", ""]
    return plan[len(done)]


async def act(what: str) -> str:
    calls.append(what)
    return f"did {what}"


@app.task
async def agent(ctx: Context, goal: str) -> list[str]:
    done: list[str] = []
    while todo := await ctx.step(f"think {len(done)}", think, goal, done):
        if todo.startswith("delete"):
            answer = await ctx.ask(
                f"May I {todo}?", action={"do": todo}, timeout="1d", default="no"
            )
            if answer != "yes":
                return [*done, f"was not allowed to {todo}"]
        done.append(await ctx.step(f"act {len(done)}", act, todo))
    return done


async def main() -> None:
    async with app:
        handle = await agent.enqueue("old logs")
        await Worker(app).drain()
        print(await handle.status())  # blocked: it waits for a person
        await handle.signal("answer:1", "yes")
        await Worker(app).drain()
        print(await handle.result())
        assert calls.count("look for old logs") == 1  # the second run did not repeat the first


if __name__ == "__main__":
    asyncio.run(main())
