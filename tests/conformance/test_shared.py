"""Several processes on one store: what one has written, the next call of every other one sees."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator

import pytest

from outlast.core.model import EventQuery
from outlast.engine import connect

from .language import Scene
from .servers import SHARED, chosen

pytestmark = pytest.mark.parametrize("engine_name", [n for n in chosen() if n in SHARED])


@pytest.fixture
async def there(e: Scene, url: str) -> AsyncIterator[Scene]:
    """The same scene by way of an engine of its own, as in another process."""
    scene = copy.copy(e)
    scene.engine = connect(url)
    await scene.engine.open()
    yield scene
    await scene.engine.close()


async def test_a_changed_limit_counts_for_everybody(e: Scene, there: Scene) -> None:
    await e.limit("k", slots=2)
    await e.add("a", "b", "c", limits="k")
    assert await there.claims(1, "w1") == ["a"]
    await e.limit("k", slots=1)
    assert await there.claims(9, "w2") == []
    await e.limit("k", slots=3)
    assert await there.claims(9, "w3") == ["b", "c"]


async def test_a_paused_queue_is_paused_for_everybody(e: Scene, there: Scene) -> None:
    await e.add("a", "b")
    assert await there.claims(1) == ["a"]
    await e.pause()
    assert await there.claims(1) == []
    await e.resume()
    assert await there.claims(1) == ["b"]


async def test_a_task_is_leased_once(e: Scene, there: Scene) -> None:
    await e.add(*[f"t{n}" for n in range(40)])
    claims = [scene.claims(3, f"w{n}") for n in range(5) for scene in (e, there)]
    got = [name for names in await asyncio.gather(*claims) for name in names]
    assert len(got) == len(set(got))
    assert len(got) + len(await there.claims(40)) == 40


async def test_slots_are_shared(e: Scene, there: Scene) -> None:
    await e.limit("k", slots=3)
    await e.add(*[f"t{n}" for n in range(20)], limits="k")
    claims = [scene.claims(1, f"w{n}") for n in range(5) for scene in (e, there)]
    got = [name for names in await asyncio.gather(*claims) for name in names]
    assert len(got) <= 3
    assert len(got) + len(await there.claims(20)) == 3


async def test_what_another_process_changed_is_seen(e: Scene, there: Scene) -> None:
    await e.add("a", "b")
    a, b = await e.claim(2)
    await there.cancel("a")
    await e.fail(a)
    assert await e.status("a") == "cancelled"
    await there.vanish("w1")
    await e.refused(b)


async def test_one_of_many_gets_a_unique_key(e: Scene, there: Scene) -> None:
    adding = [scene.add(f"t{n}", unique_key="k") for n, scene in enumerate((e, there) * 5)]
    receipts = [receipt for [receipt] in await asyncio.gather(*adding)]
    assert [receipt.existing for receipt in receipts].count(False) == 1
    assert len({receipt.id for receipt in receipts}) == 1


async def test_a_reader_beside_writers_sees_everything_once(e: Scene, there: Scene) -> None:
    async def write(scene: Scene, who: int) -> None:
        for n in range(10):
            await scene.add(f"{who}-{n}")

    writing = asyncio.gather(*[write(scene, n) for n, scene in enumerate((e, there) * 3)])
    seen: list[str] = []
    after, over = None, False
    while True:
        page = await e.engine.events(EventQuery(after=after, limit=7))
        seen += [event.cursor for event in page.items]
        after = page.next
        if over and not page.items:
            break
        over = writing.done()
    await writing
    assert len(seen) == len(set(seen)) == 60
