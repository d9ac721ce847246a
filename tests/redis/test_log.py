"""What is told of many tasks at once is one entry of the log, and nobody can tell from outside."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from outlast.core.ids import new_fence, new_id
from outlast.core.model import (
    EditPayload,
    Event,
    EventQuery,
    Forget,
    Lease,
    NewTask,
    Outcome,
    Put,
    TaskQuery,
    Turn,
    Want,
    WorkerInfo,
)
from outlast.engines.redis.engine import RedisEngine
from outlast.engines.redis.wire import INLINE_BODY

WANTS = (Want("default", "primary", 1_000),)


def some(n: int, **options: object) -> list[NewTask]:
    return [NewTask(id=new_id(), type="work", **options) for _ in range(n)]  # type: ignore[arg-type]


async def claim(engine: RedisEngine, room: int) -> tuple[Lease, ...]:
    info = WorkerInfo(host="here", pid=1)
    turn = Turn(token=new_fence(), worker="w", lease_ms=60_000, wants=WANTS, room=room, info=info)
    return (await engine.exchange(turn)).leases


async def end(engine: RedisEngine, leases: Sequence[Lease]) -> None:
    ends = [Outcome(id=x.id, fence=x.fence, state="completed", result=b"1") for x in leases]
    turn = Turn(token=new_fence(), worker="w", lease_ms=60_000, outcomes=tuple(ends))
    assert (await engine.exchange(turn)).lost == ()


async def told(engine: RedisEngine, limit: int = 100, **query: object) -> list[Event]:
    events: list[Event] = []
    after = None
    while True:
        page = await engine.events(EventQuery(after=after, limit=limit, **query))  # type: ignore[arg-type]
        events += page.items
        after = page.next
        if not page.items:
            return events


async def keys(engine: RedisEngine, pattern: str) -> list[bytes]:
    found: list[bytes] = await engine._open().do("KEYS", f"{engine._prefix}{pattern}")
    return found


async def entries(engine: RedisEngine) -> int:
    return int(await engine._open().do("XLEN", f"{engine._prefix}log"))


@pytest.mark.parametrize("limit", [7, 500, 2_000])
async def test_pages_of_any_size_have_every_event_once(engine: RedisEngine, limit: int) -> None:
    many = some(600)
    await engine.enqueue(many)
    await engine.enqueue(some(1))
    assert await entries(engine) == 3  # 500, 100, 1
    found = await told(engine, limit)
    assert [event.task_id for event in found][:600] == [task.id for task in many]
    places = [tuple(map(int, event.cursor.split("-"))) for event in found]
    assert places == sorted(set(places))
    assert len(places) == 601


async def test_a_forgotten_task_leaves_the_entry_that_told_of_it(engine: RedisEngine) -> None:
    many = some(20, session_id="s")
    await engine.enqueue(many)
    await end(engine, await claim(engine, 20))
    gone = [task.id for task in many[3:]]
    assert await entries(engine) < 60
    await engine.alter(gone, Forget())
    for session_id in (None, "s"):
        found = await told(engine, session_id=session_id)
        assert {event.task_id for event in found} == {task.id for task in many[:3]}
        assert [event.kind for event in found].count("done") == 3
    assert len(await keys(engine, "holes:*")) > 0
    await engine.alter([task.id for task in many[:3]], Forget())
    assert await told(engine) == []
    assert await entries(engine) == 0
    assert await keys(engine, "holes:*") == []


async def test_an_id_that_comes_again_has_no_past(engine: RedisEngine) -> None:
    first, second = some(2)
    await engine.enqueue([first, second])
    await engine.alter([first.id], Forget())
    await engine.enqueue([first])
    assert len(await told(engine, task_id=first.id)) == 1
    assert [event.task_id for event in await told(engine)] == [second.id, first.id]


async def test_a_pruned_log_leaves_nothing_behind(engine: RedisEngine) -> None:
    many = some(1_200, session_id="s", workflow_id="w")
    await engine.enqueue(many)
    await end(engine, await claim(engine, 500))
    await engine.alter([many[0].id], Forget())
    await engine.put([Put(kind="retention", key="log", value=b'{"age_ms":1000}')])
    engine.skew_ms += 60_000
    [last] = await engine.enqueue(some(1))
    while await entries(engine) > 1:
        await engine.sweep()
    assert [event.task_id for event in await told(engine)] == [last.id]
    assert await keys(engine, "holes:*") + await keys(engine, "logs:*") == []
    assert (await engine.events(EventQuery(after="1-1"))).reset


async def test_a_payload_moves_as_it_grows_and_shrinks(engine: RedisEngine) -> None:
    """Small ones stand in the record, large ones have a key of their own."""
    small, large = b'{"x":1}', b'"' + b"x" * INLINE_BODY + b'"'
    [task] = some(1, payload=small, meta=b'{"m":1}')
    [plain] = some(1, payload=large)
    await engine.enqueue([task, plain])
    assert len(await keys(engine, "body:*")) == 1
    for payload, apart in ((large, 2), (small, 1), (large, 2)):
        await engine.alter([task.id], EditPayload(payload))
        assert len(await keys(engine, "body:*")) == apart
        [found] = (await engine.tasks(TaskQuery.of(id=task.id))).items
        assert (found.payload, found.meta) == (payload, b'{"m":1}')
    leases = await claim(engine, 2)
    assert [lease.payload for lease in leases] == [large, large]
    assert [lease.meta for lease in leases] == [b'{"m":1}', b"{}"]
    await end(engine, leases)
    found_by_text = await engine.tasks(TaskQuery.of(text="xxx"))
    assert {each.id for each in found_by_text.items} == {task.id, plain.id}
    await engine.alter([task.id, plain.id], Forget())
    assert await keys(engine, "body:*") + await keys(engine, "task:*") == []
