"""Lists over many sorts of tasks: they are walked together, and come in one order."""

from __future__ import annotations

from outlast.core.ids import new_id
from outlast.core.model import Forget, NewTask, Task, TaskQuery
from outlast.engines.redis.engine import RedisEngine


async def pages(engine: RedisEngine, limit: int) -> list[Task]:
    found: list[Task] = []
    cursor = None
    while True:
        page = await engine.tasks(TaskQuery(limit=limit, cursor=cursor))
        found += page.items
        cursor = page.next
        if cursor is None:
            return found


async def test_tasks_of_many_types_come_newest_first(engine: RedisEngine) -> None:
    """Some types have hundreds and some one; the old ones all of a type, the new ones mixed."""
    types = ["common"] * 700 + [f"rare{n}" for n in range(60)] + ["common", "seldom"] * 150
    tasks = [NewTask(id=new_id(), type=kind, followed=False) for kind in types]
    await engine.enqueue(tasks)
    newest_first = [task.id for task in reversed(tasks)]
    for limit in (7, 100, 2_000):
        assert [task.id for task in await pages(engine, limit)] == newest_first
    await engine.alter([task.id for task in tasks[100:]], Forget())
    assert [task.id for task in await pages(engine, 33)] == newest_first[-100:]
