"""Lists over many sorts of tasks: they are walked together, and come in one order."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from outlast.core.ids import new_id
from outlast.core.model import Forget, Item, NewTask, Task, TaskQuery
from outlast.engines.redis import read
from outlast.engines.redis.engine import RedisEngine
from outlast.engines.redis.link import Link
from outlast.engines.redis.rows import Row


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


async def test_what_is_forgotten_beside_a_dump_does_not_end_it(
    engine: RedisEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [NewTask(id=new_id(), type="work") for _ in range(20)]
    tasks += [NewTask(id=new_id(), type="work", after=(tasks[-1].id,)) for _ in range(20)]
    await engine.enqueue(tasks)
    read_rows = read.read_rows

    async def beside(link: Link, ids: Sequence[str]) -> dict[str, Row]:
        """A sweep that forgets one of them before they are read."""
        await engine.alter(ids[1:2], Forget())
        return await read_rows(link, ids)

    monkeypatch.setattr(read, "read_rows", beside)
    found: list[Item] = []
    cursor = None
    while True:
        page = await engine.dump(cursor, 10)
        found += page.items
        cursor = page.next
        if cursor is None:
            break
    monkeypatch.undo()
    left = {task.id for task in await pages(engine, 100)}
    told = {msgspec.json.decode(i.data)["task"]["id"] for i in found if i.kind == "task"}
    assert len(left) < 40
    assert left <= told
