"""An orchestrator of agents: definitions, who may do what, what is remembered of their results."""

import asyncio

from outlast import Context, Outlast
from outlast.systems.orchestrator import Orchestrator
from outlast.testing import testing

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
    async with testing(app) as t:
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
        await meddle.enqueue()
        await t.run()
        print(await flow.handle.result(timeout=0))
        [dead] = await system.dead()
        print(dead.task_type, "is dead:", (dead.error_info or {})["message"])
        [found] = await system.memory.nearest("what does a disc cost?", n=1)
        print("remembered:", found.text)


if __name__ == "__main__":
    asyncio.run(main())
