"""Lists over many sorts of tasks: they are walked together, and come in one order."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from outlast.core.ids import new_id
from outlast.core.model import EditPayload, Forget, Item, NewTask, Task, TaskQuery
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


async def test_what_changes_beside_a_reader_is_read_whole(
    engine: RedisEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long payloads have a key of their own: one that was edited or forgotten between the two reads
    came cut where another one ends, or empty."""
    long, longer, short = (b'"' + b"x" * n + b'"' for n in (1_000, 2_000, 10))
    tasks = [NewTask(id=new_id(), type="work", payload=long, meta=b'{"a":1}') for _ in range(4)]
    same, grown, shrunk, gone = (task.id for task in tasks)
    await engine.enqueue(tasks)
    read_rows = read.read_rows

    async def beside(link: Link, ids: Sequence[str]) -> dict[str, Row]:
        found = await read_rows(link, ids)
        monkeypatch.undo()
        await engine.alter([grown], EditPayload(longer))
        await engine.alter([shrunk], EditPayload(short))
        await engine.alter([gone], Forget())
        return found

    for query in (TaskQuery(), TaskQuery.of(text="x")):
        monkeypatch.setattr(read, "read_rows", beside)
        page = await engine.tasks(query)
        assert {task.id: task.payload for task in page.items} == {
            same: long, grown: longer, shrunk: short,
        }  # fmt: skip
        assert {task.meta for task in page.items} == {b'{"a":1}'}
        await engine.alter([grown, shrunk], EditPayload(long))
        await engine.enqueue(tasks)
