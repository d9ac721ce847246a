"""`task_queue_metrics`: what the agents' tasks came to per day, and the agent that reads it daily.

The counts are those of the fleet (`rollup.py`), which are kept per hour and day; here they are
added up by agent, in the names of the design.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from outlast.context import Context
from outlast.rollup import history
from outlast.systems.orchestrator import Agent, Orchestrator

ANALYST: Final = "AnalyticsAgent"
DAILY: Final = "0 6 * * *"


class AgentMetrics(Struct, frozen=True, kw_only=True):
    """One day of one agent."""

    day: str
    agent_name: str
    tasks_created: int
    tasks_completed: int
    tasks_failed: int
    average_latency: float | None
    """Seconds from due to done."""
    worker_heartbeat_delay: float
    error_rate: float | None
    """Of its attempts, how many failed."""


async def task_queue_metrics(system: Orchestrator) -> list[AgentMetrics]:
    """The last thirty days, oldest first; days on which an agent did nothing are left out."""
    app = system.app
    totals = await app.publisher.fleet(app.engine)
    rows: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in await history(app.engine, totals, "day"):
        agent = str(row["type"]).partition(".")[0]
        if agent in system.agents:
            rows.setdefault((str(row["begin"])[:10], agent), []).append(row)
    return [_metrics(day, agent, found) for (day, agent), found in sorted(rows.items())]


def analyst(system: Orchestrator, every: str = DAILY, tz: str = "UTC") -> Agent:
    """The agent that reads the metrics every day; what it read is its task's result."""
    agent = system.agent(ANALYST)

    @agent.task(priority="low", every=every, tz=tz)
    async def read_metrics(ctx: Context) -> list[AgentMetrics]:
        """What the agents did in the last thirty days."""
        return await task_queue_metrics(system)

    return agent


def _metrics(day: str, agent: str, rows: Sequence[Mapping[str, Any]]) -> AgentMetrics:
    failed = sum(row["failed"] + row["timed_out"] for row in rows)
    completed = sum(row["completed"] for row in rows)
    waited = [
        (row["wait"]["average"] + row["run"]["average"], row["completed"])
        for row in rows
        if row["completed"] and None not in (row["wait"]["average"], row["run"]["average"])
    ]
    timed = sum(n for _, n in waited)
    return AgentMetrics(
        day=day,
        agent_name=agent,
        tasks_created=sum(row["enqueued"] for row in rows),
        tasks_completed=completed,
        tasks_failed=sum(row["dead"] for row in rows),
        average_latency=round(sum(s * n for s, n in waited) / timed, 3) if timed else None,
        worker_heartbeat_delay=max(row["heartbeat_delay"] for row in rows),
        error_rate=round(failed / (failed + completed), 4) if failed + completed else None,
    )
