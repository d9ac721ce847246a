"""The app of the orchestrator's tests, for worker processes too: a garage that sells parts."""

import asyncio
import os
from pathlib import Path

from outlast import Context, Outlast, Transient
from outlast.core.model import TaskId
from outlast.systems.analytics import analyst
from outlast.systems.orchestrator import Orchestrator

app = Outlast()
system = Orchestrator(app)
fitment, pricing = system.agent("FitmentAgent"), system.agent("PricingAgent")
analyst(system)


@fitment.task(priority="critical")
async def generate_fitment(ctx: Context, part: str) -> dict[str, str]:
    """Which cars a part fits."""
    return {"part": part, "fits": "Mustang 1967 to 1973"}


@pricing.task(priority="normal")
async def refresh_price(ctx: Context, fitment: dict[str, str], times: int = 1) -> str:
    return f"{fitment['part']} for {fitment['fits']}: {40 * times} dollars"


PREPARED = refresh_price.call({"part": "brake disc", "fits": "all"})


def from_a_thread() -> TaskId:
    with app.sync() as q:
        return q.enqueue(refresh_price, {"part": "brake disc", "fits": "all"}).id


@fitment.task(max_attempts=2)
async def meddle(ctx: Context, way: str) -> TaskId:
    """An agent that makes tasks for another one, in every way there is."""
    told = {"part": "brake disc", "fits": "all"}
    if way == "enqueue":
        return (await refresh_price.enqueue(told)).id
    if way == "create":
        made = {"fitment": told}
        handle = await system.create_task(
            agent_name="PricingAgent", task_type="refresh_price", payload=made
        )
        return handle.id
    if way == "call":
        return await ctx.call(refresh_price, told)
    if way == "prepared":
        return (await app.enqueue([PREPARED]))[0].id
    if way == "thread":
        return await asyncio.to_thread(from_a_thread)
    async with system.workflow("coup") as flow:
        flow.create_task(
            agent_name="PricingAgent", task_type="refresh_price", payload={"fitment": told}
        )
    return flow.id


@fitment.task(max_attempts=2)
async def reach(ctx: Context, way: str, task_id: TaskId) -> None:
    """An agent that reaches for a task that is there already."""
    other = app.handle(task_id)
    if way == "cancel":
        await other.cancel()
    elif way == "signal":
        await other.signal("go", "from FitmentAgent")
    elif way == "retry":
        await other.retry()
    elif way == "rerun":
        await other.rerun()
    else:
        await system.revive(task_id)


@pricing.task()
async def recount(ctx: Context) -> TaskId:
    return (await count.enqueue(1)).id


@fitment.task(max_attempts=2)
async def borrow(ctx: Context) -> TaskId:
    """Another agent's code, called as a function."""
    return await recount(ctx)


@fitment.task()
async def measure(ctx: Context, folder: str) -> str:
    """Says who is at it, and goes on until it may stop."""
    place = Path(folder)
    (place / "pids").open("a").write(f"{os.getpid()}\n")
    while not (place / "go").exists():  # noqa: ASYNC110  # the test is another process
        await asyncio.sleep(0.02)
    return f"measured in attempt {ctx.attempt}"


@fitment.task()
async def split(ctx: Context, parts: list[str]) -> list[dict[str, str]]:
    """Its own tasks it may make."""
    return await ctx.gather(*(ctx.call(generate_fitment, part) for part in parts))


@fitment.task()
async def waits(ctx: Context) -> str:
    return str(await ctx.wait_for("go"))


@pricing.task()
async def waits_too(ctx: Context) -> str:
    return str(await ctx.wait_for("go"))


@pricing.task()
async def fails(ctx: Context) -> str:
    raise Transient("supplier list is empty")


@pricing.task()
async def count(ctx: Context, n: int) -> int:
    """Says which process ran it."""
    await ctx.emit(f"{os.getpid()}")
    return n
