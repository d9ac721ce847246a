"""An orchestrator of agents: definitions, who may do what, what is remembered of their results."""

import asyncio

from outlast import Context, Outlast, TaskDead
from outlast.systems.orchestrator import Orchestrator
from outlast.worker import Worker

app = Outlast("memory://")
system = Orchestrator(app)
fitment, pricing = system.agent("FitmentAgent"), system.agent("PricingAgent")


@fitment.task(priority="critical")
async def generate_fitment(ctx: Context, part: str) -> str:
    return f"{part} fits the Mustang 1967 to 1973"


@pricing.task()
async def refresh_price(ctx: Context, fitment: str) -> str:
    return f"{fitment}, and costs 80 dollars"


@fitment.task()
async def meddle(ctx: Context) -> str:
    return await ctx.call(refresh_price, "brake disc")  # another agent's: refused


async def main() -> None:
    async with app:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        async with system.workflow("onboarding") as flow:
            fit = flow.create_task(
                agent_name="FitmentAgent",
                task_type="generate_fitment",
                payload={"part": "brake disc"},
                priority=0,
                max_attempts=3,
            )
            flow.create_task(
                agent_name="PricingAgent",
                task_type="refresh_price",
                payload={"fitment": fit.out},
            )
        print(await flow.handle.result(timeout="30s"))
        try:
            await (await meddle.enqueue()).result(timeout="30s")
        except TaskDead as dead:
            print(dead)
        print([dead.task_type for dead in await system.dead()])
        while not (found := await system.memory.nearest("what does a disc cost?", n=1)):
            await asyncio.sleep(0.05)  # the jobs that embed results run behind them
        print(found[0].text)
        worker.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main())
