"""An agent with tools: it hands work over, goes on talking, and fetches the result later."""

import asyncio
import json

from outlast import Context, Outlast
from outlast.agents import AgentTools
from outlast.worker import Worker

app = Outlast("memory://")


@app.task(name="report.generate")
async def generate_report(ctx: Context, quarter: str, year: int) -> dict[str, str]:
    """Generate a report for a quarter of a year."""
    await ctx.progress(50, "adding up")
    return {"summary": f"Report for {quarter} {year}: all is well."}


class Model:
    """Stands for a model: which tool it calls for what the user says."""

    def __init__(self, tools: list[dict[str, object]]) -> None:
        self.tools = [tool["function"]["name"] for tool in tools]
        self.task_id = ""

    def ask(self, said: str) -> tuple[str, str] | None:
        if "report" in said:
            return "generate_report_tool", json.dumps({"quarter": "Q4", "year": 2024})
        if "ready" in said:
            return "get_task_result_tool", json.dumps({"task_id": self.task_id})
        return None


async def main() -> None:
    async with app:
        names = {"report.generate": "generate_report_tool"}
        tools = AgentTools(app, session_id="user-123", names=names)
        model = Model(tools.openai())
        print("tools:", ", ".join(model.tools))
        for said in ("I need the Q4 report", "Nice weather", "Is it ready?", "Now it is ready?"):
            print("user: ", said)
            called = model.ask(said)
            told = await tools.call(*called) if called else {"message": "Indeed."}
            model.task_id = told.get("task_id", model.task_id)
            print("agent:", told.get("result", {}).get("summary") or told["message"])
            if said.startswith("Is"):
                await Worker(app).drain()  # meanwhile, somewhere else, a worker
        stranger = AgentTools(app, session_id="somebody-else")
        told = await stranger.get_task_result_tool(model.task_id)
        assert told["error"]["code"] == "not_found"  # only its own session sees a task


if __name__ == "__main__":
    asyncio.run(main())
