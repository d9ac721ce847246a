"""What a task has kept can be read: its steps in the order they were stored, and its inbox."""

from __future__ import annotations

from outlast.core.ids import new_id
from outlast.core.model import Memory, Step

from .language import Scene


async def test_steps_and_signals_in_order(e: Scene) -> None:
    await e.add("a")
    await e.signal("a", "go", 1)
    [lease] = await e.claim()
    await e.report(lease, steps=(Step("z", b"1"), Step("a", b"[2]")))
    await e.report(lease, steps=(Step("m", b"3"), Step("z", b"9")))
    await e.signal("a", "go", 2)
    await e.finish(lease)
    kept = await e.engine.memory(e.id("a"))
    assert kept.steps == (Step("z", b"1"), Step("a", b"[2]"), Step("m", b"3"))
    assert [(signal.name, signal.data) for signal in kept.inbox] == [("go", b"1"), ("go", b"2")]


async def test_a_task_without_memory_and_none_at_all(e: Scene) -> None:
    await e.add("a")
    assert await e.engine.memory(e.id("a")) == Memory()
    assert await e.engine.memory(new_id()) == Memory()
