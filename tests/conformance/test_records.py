"""Records: small versioned documents, written by compare and set."""

from __future__ import annotations

import asyncio

from outlast.core.model import Put, Record

from .language import Scene


async def test_put_and_get(e: Scene) -> None:
    record = await e.put("note", "a", {"x": 1})
    assert record == Record(kind="note", key="a", value=b'{"x":1}', version=1)
    assert await e.engine.get("note", ["a"]) == [record]
    assert await e.engine.get("note", ["b"]) == []
    assert await e.engine.get("other") == []


async def test_versions_count_up(e: Scene) -> None:
    for version in (1, 2, 3):
        record = await e.put("note", "a", version)
        assert record is not None
        assert record.version == version


async def test_only_the_expected_version_is_replaced(e: Scene) -> None:
    await e.put("note", "a", 1)
    assert await e.put("note", "a", 2, expect=7) is None
    record = await e.put("note", "a", 2, expect=1)
    assert record is not None
    assert record.version == 2
    assert await e.put("note", "a", 3, expect=1) is None
    [stored] = await e.engine.get("note", ["a"])
    assert (stored.value, stored.version) == (b"2", 2)


async def test_expecting_nothing(e: Scene) -> None:
    assert await e.put("note", "a", 1, expect=0) is not None
    assert await e.put("note", "a", 2, expect=0) is None
    assert await e.put("note", "b", 1, expect=3) is None


async def test_one_of_many_wins(e: Scene) -> None:
    won = await asyncio.gather(*[e.put("lock", "a", n, expect=0) for n in range(10)])
    assert sum(r is not None for r in won) == 1


async def test_deleting(e: Scene) -> None:
    await e.put("note", "a", 1)
    [gone] = await e.engine.put([Put(kind="note", key="a", value=None, expect=9)])
    assert len(await e.engine.get("note")) == 1
    [gone] = await e.engine.put([Put(kind="note", key="a", value=None)])
    assert gone is None
    assert await e.engine.get("note") == []
    assert await e.put("note", "a", 1, expect=0) is not None


async def test_each_put_is_a_step_of_its_own(e: Scene) -> None:
    await e.put("note", "b", 0)
    answers = await e.engine.put(
        [
            Put(kind="note", key="a", value=b"1", expect=0),
            Put(kind="note", key="b", value=b"1", expect=0),
            Put(kind="note", key="c", value=b"1", expect=0),
        ]
    )
    assert [a is not None for a in answers] == [True, False, True]
    assert {r.key: r.value for r in await e.engine.get("note")} == {
        "a": b"1", "b": b"0", "c": b"1",
    }  # fmt: skip


async def test_get_by_kind_in_order_of_keys(e: Scene) -> None:
    for key in ("b", "a", "c"):
        await e.put("note", key, 1)
    await e.put("other", "x", 1)
    assert [r.key for r in await e.engine.get("note")] == ["a", "b", "c"]
    assert [r.key for r in await e.engine.get("note", ["c", "a", "zz"])] == ["a", "c"]


async def test_a_record_may_live_for_a_while(e: Scene) -> None:
    before = await e.now()
    record = await e.put("note", "a", 1, ttl_ms=60_000)
    assert record is not None
    assert record.expires_at is not None
    assert before + 60_000 <= record.expires_at <= await e.now() + 60_000
    await e.advance("61s")
    assert await e.engine.get("note") == []
    assert await e.put("note", "a", 2, expect=0) is not None
    [record] = await e.engine.get("note")
    assert (record.value, record.expires_at) == (b"2", None)


async def test_odd_keys_and_values(e: Scene) -> None:
    for key in ("", "ü/%_*", "a:b", "x" * 300):
        await e.put("note", key, key)
    assert {r.key for r in await e.engine.get("note")} == {"", "ü/%_*", "a:b", "x" * 300}
