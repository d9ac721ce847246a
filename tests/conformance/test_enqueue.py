"""Enqueue: atomic for the whole batch, idempotent, and the record shows what was handed over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outlast.core.errors import BadInput
from outlast.core.ids import new_id
from outlast.core.model import EventQuery, NewTask, Task, TaskQuery

from .language import Scene


async def test_a_new_task_is_ready(e: Scene) -> None:
    [receipt] = await e.add("a")
    assert (receipt.id, receipt.existing) == (e.id("a"), False)
    assert await e.statuses() == {"a": "ready"}
    assert await e.log("a") == ["ready"]


async def test_the_record_shows_what_was_handed_over(e: Scene) -> None:
    await e.add("parent")
    before = await e.now()
    await e.add(
        "a",
        type="summarize",
        payload={"url": "x"},
        queue="llm",
        priority=1,
        max_attempts=7,
        max_losses=2,
        timeout="30s",
        overdue_after="5m",
        max_age="1h",
        limits=["user:7", ("tokens", 100)],
        unique_key="u",
        session_id="s",
        user_id="7",
        parent="parent",
        workflow_id="wf",
        tags=("x", "y"),
        followed=False,
        meta={"k": 1},
    )
    after = await e.now()
    a = await e.task("a")
    assert (a.type, a.queue, a.lane, a.priority) == ("summarize", "llm", "primary", 1)
    assert (a.state, a.status, a.parked) == ("pending", "ready", None)
    assert (a.payload, a.meta, a.result, a.error) == (b'{"url":"x"}', b'{"k":1}', None, None)
    assert (a.attempt, a.number, a.max_attempts, a.losses, a.max_losses) == (0, 0, 7, 0, 2)
    assert (a.timeout_ms, a.overdue_after_ms, a.max_age_ms) == (30_000, 300_000, 3_600_000)
    assert a.limits == (("user:7", 1), ("tokens", 100))
    assert (a.unique_key, a.session_id, a.user_id, a.workflow_id) == ("u", "s", "7", "wf")
    assert (a.parent_id, set(a.tags), a.followed) == (e.id("parent"), {"x", "y"}, False)
    assert before <= a.created_at == a.run_at == a.updated_at <= after
    assert (a.started_at, a.completed_at, a.worker, a.lease_until) == (None, None, None, None)
    assert (a.reason, a.fingerprint, a.progress) == (None, None, None)
    assert (a.after, a.needs, a.awaits) == ((), "success", 0)


async def test_receipts_come_in_the_order_of_the_batch(e: Scene) -> None:
    await e.add("b")
    receipts = await e.batch(e.new("c"), e.new("b"), e.new("a"))
    assert e.names(receipts) == ["c", "b", "a"]
    assert [r.existing for r in receipts] == [False, True, False]


async def test_an_empty_batch_is_nothing(e: Scene) -> None:
    assert await e.batch() == []
    assert await e.statuses() == {}


async def test_the_same_id_again_changes_nothing(e: Scene) -> None:
    await e.add("a", payload=1)
    before = await e.everything()
    [receipt] = await e.add("a", payload=2, priority=0, queue="other", delay="1h")
    assert (receipt.id, receipt.existing) == (e.id("a"), True)
    assert await e.everything() == before


async def test_the_same_id_again_does_not_revive_a_finished_task(e: Scene) -> None:
    await e.add("a")
    [a] = await e.claim()
    await e.finish(a)
    [receipt] = await e.add("a")
    assert receipt.existing
    assert await e.statuses() == {"a": "completed"}
    assert await e.claims() == []


async def test_the_same_id_twice_in_a_batch_is_one_task(e: Scene) -> None:
    receipts = await e.batch(e.new("a", payload=1), e.new("a", payload=2))
    assert [r.existing for r in receipts] == [False, True]
    assert (await e.task("a")).payload == b"1"
    assert await e.log("a") == ["ready"]


async def test_a_delayed_task_is_scheduled(e: Scene) -> None:
    await e.add("a", delay="5m")
    a = await e.task("a")
    assert (a.status, a.parked) == ("scheduled", "time")
    assert a.run_at == a.created_at + 300_000


async def test_a_task_can_name_the_moment(e: Scene) -> None:
    at = await e.now() + 60_000
    await e.add("later", run_at=at)
    await e.add("past", run_at=at - 120_000)
    assert await e.statuses() == {"later": "scheduled", "past": "ready"}
    assert (await e.task("later")).run_at == at


async def test_an_unknown_upstream_is_bad_input_and_nothing_is_half_written(e: Scene) -> None:
    with pytest.raises(BadInput):
        await e.batch(
            e.new("a", unique_key="k", fair_key="f", tags=("t",)),
            e.new("b", after=["a"]),
            e.new("c", after=["nobody"]),
        )
    assert await e.everything() == ([], [])
    [receipt] = await e.add("d", unique_key="k")
    assert (e.name(receipt.id), receipt.existing) == ("d", False)
    assert await e.claims(9) == ["d"]


async def test_a_bad_batch_takes_no_concurrent_one_along(e: Scene) -> None:
    """Writes may share a commit; a failure must not."""
    good, bad, fine = await asyncio.gather(
        e.add("a"), e.add("b", after=["nobody"]), e.add("c"), return_exceptions=True
    )
    assert isinstance(bad, BadInput)
    assert not isinstance(good, BaseException)
    assert not isinstance(fine, BaseException)
    assert await e.statuses() == {"a": "ready", "c": "ready"}


async def test_a_large_batch_is_one_batch(e: Scene) -> None:
    tasks = [NewTask(id=new_id(), type="work", followed=False) for _ in range(2_000)]
    receipts = await e.batch(*tasks)
    assert [r.id for r in receipts] == [t.id for t in tasks]
    assert await e.counts("status") == {"ready": 2_000}
    again = await e.batch(*tasks)
    assert all(r.existing for r in again)
    assert await e.counts("status") == {"ready": 2_000}


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "found": {
        "session_id": "s", "user_id": "u", "workflow_id": "w", "tags": ("x",),
        "attrs": (("k", "v"),),
    },
    "quiet": {"followed": False, "priority": 0, "queue": "other", "max_attempts": 1},
    "late": {"delay_ms": 60_000},
    "soon": {"run_at": 5},
    "held": {"hold": "go"},
    "limited": {"limits": (("k", 2),)},
    "short": {"max_age_ms": 1_000, "overdue_after_ms": 500, "timeout_ms": 100},
    "retry": {"lane": "retry"},
}  # fmt: skip
OWN = ("id", "payload", "meta", "created_at", "updated_at", "run_at", "overdue_at")


async def stored_as(e: Scene, task_id: str) -> Task:
    [task] = (await e.engine.tasks(TaskQuery.of(id=task_id))).items
    return task


async def test_who_is_like_others_of_its_batch_is_stored_as_if_it_came_alone(e: Scene) -> None:
    def new(kind: str, n: int) -> NewTask:
        payload, meta = b'{"n":%d}' % n, b'{"m":%d}' % n
        return NewTask(id=new_id(), type="work", payload=payload, meta=meta, **KINDS[kind])

    alone = {}
    for kind in KINDS:
        task = new(kind, 0)
        await e.batch(task)
        alone[kind] = await stored_as(e, task.id)
    batch = [(kind, new(kind, n)) for n in range(1, 4) for kind in KINDS]
    twice = batch[0][1]
    receipts = await e.batch(*(task for _, task in batch), twice)
    assert [r.existing for r in receipts] == [False] * len(batch) + [True]
    for kind, task in batch:
        stored = await stored_as(e, task.id)
        assert (stored.payload, stored.meta) == (task.payload, task.meta)
        for field in stored.__struct_fields__:
            if field not in OWN:
                assert getattr(stored, field) == getattr(alone[kind], field), (kind, field)
        told = (await e.engine.events(EventQuery(task_id=task.id))).items
        first = (await e.engine.events(EventQuery(task_id=alone[kind].id))).items
        assert [(t.kind, t.data, t.session_id, t.workflow_id) for t in told] == [
            (t.kind, t.data, t.session_id, t.workflow_id) for t in first
        ]
    tagged = (await e.engine.tasks(TaskQuery.of(tag="x"))).items
    assert len(tagged) == 4
    leases = await e.claim(100, queue="other")
    assert [lease.payload for lease in leases] == [b'{"n":%d}' % n for n in range(4)]


async def test_a_task_may_enter_the_retry_lane(e: Scene) -> None:
    await e.add("a", lane="retry")
    await e.add("b", lane="retry", delay="1m")
    assert await e.statuses() == {"a": "ready", "b": "retrying"}
    [a] = await e.claim()
    assert a.lane == "retry"


async def test_payload_bytes_come_back_as_they_were(e: Scene) -> None:
    odd = '{ "ü" : [1.0, 1e3, "\\u0000 \\ud83d\\ude00"],\n "big": 12345678901234567890 }'.encode()
    await e.add("a", payload=odd, meta=odd)
    [lease] = await e.claim()
    task = await e.task("a")
    assert (lease.payload, lease.meta, task.payload, task.meta) == (odd, odd, odd, odd)
    await e.finish(lease, odd)
    assert (await e.task("a")).result == odd


async def test_what_is_acknowledged_is_there_for_the_next_reader(e: Scene) -> None:
    """Read your writes, also beside a running reader."""
    for n in range(20):
        await e.add(f"t{n}")
        assert await e.found(f"t{n}") is not None


async def test_the_engine_says_how_durable_it_is(e: Scene) -> None:
    assert e.engine.durability in ("memory", "fsync", "replicated")


async def test_migrate_and_open_are_idempotent(e: Scene) -> None:
    await e.add("a")
    version = await e.engine.migrate()
    assert version >= 1
    assert await e.engine.migrate() == version
    await e.engine.open()
    assert await e.statuses() == {"a": "ready"}
