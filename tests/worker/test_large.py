"""Large workflows and many sleepers, on every engine: every edge holds, and nothing costs by size.

A hundred nodes and sleepers in `make test`; with `OUTLAST_TEST_DEEP` a graph of 10,000 nodes and
100,000 sleepers, and what they cost is judged by the clock (`make proof`).
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Final

import pytest

from outlast import Context, Outlast
from outlast.core.model import Event, EventQuery, Task, TaskQuery
from outlast.handle import Handle
from outlast.worker import Worker
from outlast.workflow import Node
from tests.conformance.servers import url_for

from .conftest import until, working

DEEP: Final = "OUTLAST_TEST_DEEP" in os.environ
NODES: Final = 10_000 if DEEP else 120
SLEEPERS: Final = 100_000 if DEEP else 100
WITHIN_S: Final = 1_800.0 if DEEP else 30.0
MOST_TIMES: Final = 2.5
"""So much more than a plain task may a node cost."""
WAKE_S: Final = 0.05
ENGINES: Final = os.environ.get(
    "OUTLAST_TEST_ENGINES", "memory,sqlite,postgresql,redis,mongodb"
).split(",")

pytestmark = [
    pytest.mark.timeout(3_600 if DEEP else 120),
    pytest.mark.parametrize("engine", ENGINES),
]


async def app_on(engine: str, folder: Path) -> Outlast:
    app = Outlast(await asyncio.to_thread(url_for, engine, folder))

    @app.task
    async def one(n: int, ups: list[int] | None = None) -> int:
        return n

    @app.task
    async def plain(n: int) -> int:
        return n

    @app.task
    async def sleeper(ctx: Context, n: int) -> float:
        await ctx.sleep("30d") if n % 2 else await ctx.wait_for("up")
        return monotonic()

    return app


async def graph(app: Outlast, size: int) -> tuple[Handle[object], list[Node[int]]]:
    """A random graph: each node takes the results of up to three that came before it."""
    draw = random.Random(size)  # the same graph each time, not a secret
    flow = app.workflow(f"of {size}")
    nodes: list[Node[int]] = []
    for n in range(size):
        ups = draw.sample(nodes[-200:], min(len(nodes), draw.randrange(4)))
        nodes.append(flow.add(app.handlers["one"], n, [up.out for up in ups]))
    return await flow.enqueue(), nodes


async def log_of(app: Outlast, workflow: str) -> list[Event]:
    found: list[Event] = []
    query = EventQuery(workflow_id=workflow, kinds=("state", "done"), limit=1_000)
    while (page := await app.engine.events(query)).items:
        found += page.items
        query = EventQuery(
            workflow_id=workflow, kinds=("state", "done"), limit=1_000, after=page.next
        )
    return found


async def tasks_of(app: Outlast, workflow: str) -> list[Task]:
    found: list[Task] = []
    query = TaskQuery.of(workflow_id=workflow, limit=500)
    while True:
        page = await app.engine.tasks(query)
        found += page.items
        if page.next is None:
            return found
        query = TaskQuery.of(workflow_id=workflow, limit=500, cursor=page.next)


async def spent(app: Outlast, size: int) -> float:
    """Seconds per node, from the call that enqueues to the end; every edge is looked at."""
    since = monotonic()
    handle, nodes = await graph(app, size)
    await handle.result(timeout=WITHIN_S)
    seconds = monotonic() - since
    began: dict[str, int] = {}
    ended: dict[str, int] = {}
    for place, event in enumerate(await log_of(app, handle.id)):
        assert event.task_id is not None
        if event.kind == "done":
            assert event.task_id not in ended, "ended twice"
            ended[event.task_id] = place
        elif b'"running"' in event.data:
            began[event.task_id] = place
    tasks = await tasks_of(app, handle.id)
    assert {node.id for node in nodes} < {task.id for task in tasks}
    for task in tasks:
        assert task.state == "completed"
        assert all(ended[up] < began[task.id] for up in task.after), f"{task.id} was too early"
    return seconds / size


async def test_every_edge_of_a_large_graph_holds(engine: str, tmp_path: Path) -> None:
    app = await app_on(engine, tmp_path)
    async with app, working(Worker(app, concurrency=200)):
        seconds = await spent(app, NODES)
        if not DEEP:
            return
        smaller = await spent(app, NODES // 10)
        since = monotonic()
        calls = [app.handlers["plain"].call(n) for n in range(NODES)]
        handles = await app.enqueue(calls)
        query = TaskQuery.of(type="plain", status="completed")

        async def over() -> bool:
            return sum(count.n for count in await app.engine.count(query)) == len(handles)

        await until(over, WITHIN_S)
        plain = (monotonic() - since) / NODES
        told = f"{engine}: {seconds * 1e3:.2f} ms a node, {plain * 1e3:.2f} ms a plain task"
        print(f"\n{told}, {smaller * 1e3:.2f} ms in a graph of a tenth")  # noqa: T201  # the measure
        assert seconds <= MOST_TIMES * plain, told
        assert seconds <= 1.5 * smaller, told


async def test_sleepers_cost_nothing_and_wake_when_told(engine: str, tmp_path: Path) -> None:
    app = await app_on(engine, tmp_path)
    sleeper = app.handlers["sleeper"]
    async with app, working(Worker(app, concurrency=200)):
        handles: list[Handle[float]] = []
        for start in range(0, SLEEPERS, 1_000):
            some = range(start, min(start + 1_000, SLEEPERS))
            handles += await app.enqueue([sleeper.call(n) for n in some])

        async def asleep() -> bool:
            counts = await app.engine.count(TaskQuery.of(type="sleeper"), by=("status",))
            found = {str(count.by[0]): count.n for count in counts}
            return found.get("scheduled", 0) + found.get("blocked", 0) == SLEEPERS

        await until(asleep, WITHIN_S)
        tasks = {handle.id: await handle.refresh() for handle in handles[:10]}
        assert all(task.attempt == 0 and task.worker is None for task in tasks.values())
        assert sum(worker.running for worker in await app.engine.workers()) == 0
        waking = handles[0:20:2]
        delays = []
        for handle in waking:
            since = monotonic()
            await handle.signal("up")
            delays.append(await handle.result(timeout="30s") - since)
        if DEEP:
            told = f"{engine}: woken in {median(delays) * 1e3:.1f} ms"
            print(f"\n{told}")  # noqa: T201  # the measure
            assert median(delays) < WAKE_S, told
        again = {handle.id: await handle.refresh() for handle in handles[21:30:2]}
        assert all(task.number == 1 for task in again.values()), "nobody looked in between"


async def test_who_waits_for_one_begins_without_waiting_for_a_sweep(
    engine: str, tmp_path: Path
) -> None:
    """More than one turn tells: the rest is not left to the next sweep, an hour from now."""
    app = await app_on(engine, tmp_path)
    async with app, working(Worker(app, concurrency=200, sweep_ms=3_600_000)):
        flow = app.workflow("fan")
        first = flow.add(app.handlers["one"], 0)
        for n in range(1_100):
            flow.add(app.handlers["one"], n, [first.out])
        assert len(await (await flow.enqueue()).result(timeout=WITHIN_S)) == 1_100
