"""Money: what tasks use is added up, and a user who has used up the day's budget is told so."""

import asyncio

from outlast import Budget, BudgetSpent, Context, Outlast
from outlast.usage import usage
from outlast.worker import Worker

app = Outlast("memory://", budgets=[Budget("user:*", cost="0.05/day", then="refuse")])


@app.task()
async def ask(ctx: Context, question: str) -> str:
    # A model's answer says how much it took; what was used stays used, even if the rest fails.
    await ctx.usage(input_tokens=len(question), output_tokens=40, cost="0.02", model="small")
    return question.upper()


async def main() -> None:
    async with app:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        for question in ("who", "what", "when", "why"):
            try:
                handle = await ask.options(user_id="ada").enqueue(question)
                print(await handle.result(timeout="10s"))
            except BudgetSpent as spent:
                print("refused:", spent)
        told = await usage(app.engine, "user")
        print("used:", told["total"])
        worker.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main())
