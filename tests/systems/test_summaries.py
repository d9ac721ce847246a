"""Summaries: with a model or without, of texts of any length, in the words of their design."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from outlast import BadInput, Outlast
from outlast.samples import PARAGRAPH
from outlast.systems.asynctaskflow import PART, metadata, split, summaries
from outlast.systems.llm import Model
from outlast.systems.standin import StandIn
from outlast.testing import testing
from outlast.usage import used_by
from outlast.views import task_view, to_json


@pytest.fixture
async def standin() -> AsyncIterator[StandIn]:
    async with StandIn() as standin:
        yield standin


def long_text(parts: int) -> str:
    sentences = [
        f"Harbour {n} keeps its own tide table and counts the ships that pass." for n in range(800)
    ]
    whole = " ".join(sentences) + "\n\n"
    return (whole * (parts * PART // len(whole) + 1))[: (parts - 1) * PART + 100]


async def shown(t: testing, id: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(to_json(task_view(await t.task(id))))
    return told


async def test_a_model_streams_the_summary_of_a_short_text(standin: StandIn) -> None:
    app = Outlast("memory://")
    summarize = summaries(app, Model("parrot", url=standin.url))
    async with testing(app) as t:
        handle = await summarize.enqueue(PARAGRAPH, sentences=2)
        await t.run()
        text = await handle.result(timeout=0)
        assert text.count(".") == 2
        chunks = [event.data["chunk"] for event in await t.events(handle) if event.kind == "chunk"]
        assert "".join(chunks) == text
        assert (await t.task(handle)).max_age_ms == 3_600_000
        [asked] = standin.asked
        assert asked.body["messages"][1]["content"] == PARAGRAPH


async def test_a_text_that_is_its_own_summary_costs_nothing(standin: StandIn) -> None:
    app = Outlast("memory://")
    summarize = summaries(app, Model("parrot", url=standin.url))
    async with testing(app) as t:
        handle = await summarize.enqueue("One thing. Another thing.")
        await t.run()
        assert await handle.result(timeout=0) == "One thing. Another thing."
    assert standin.asked == []


@pytest.mark.parametrize("sentences", [0, -1])
async def test_a_summary_of_no_sentences_is_refused(sentences: int) -> None:
    app = Outlast("memory://")
    summarize = summaries(app)
    async with testing(app):
        with pytest.raises(BadInput, match="sentences"):
            await summarize.enqueue("One thing. Another thing.", sentences=sentences)


async def test_a_long_text_is_read_part_by_part_and_no_part_twice(standin: StandIn) -> None:
    app = Outlast("memory://")
    summarize = summaries(app, Model("parrot", url=standin.url))
    async with testing(app) as t:
        handle = await summarize.enqueue(long_text(3), sentences=2)
        standin.cue("fine", times=1)
        standin.cue("error", status=503)  # the second part, and then the summary's stream
        standin.cue("fine", times=2)
        standin.cue("cut", after=4)
        for _ in range(3):
            await t.run()
            await t.advance("15s")
        assert await t.status(handle) == "completed"
        asked = [asked.body["messages"][1]["content"] for asked in standin.asked]
        assert [asked.got for asked in standin.asked] == [
            "fine", "error", "fine", "fine", "cut", "fine",
        ]  # fmt: skip
        assert asked[1] == asked[2]
        assert asked[0] + asked[2] + asked[3] == long_text(3)
        assert asked[4] == asked[5]
        events = await t.events(handle)
        kinds = [event.kind for event in events]
        assert kinds.count("rollback") == 1
        last = len(kinds) - kinds[::-1].index("rollback")
        kept = [event.data["chunk"] for event in events[last:] if event.kind == "chunk"]
        assert "".join(kept) == await handle.result(timeout=0)
        assert (await used_by(app.engine, handle.id)).total.reports == 4


def test_a_text_is_cut_where_something_ends() -> None:
    text = "First sentence. Second one.\nA line of it\n\nAnother paragraph without an end"
    parts = list(split(text, 30))
    assert "".join(parts) == text
    assert all(len(part) <= 30 for part in parts)
    assert parts[0] == "First sentence. Second one.\n"
    assert list(split("x" * 70, 30)) == ["x" * 30, "x" * 30, "x" * 10]
    assert list(split("short", 30)) == ["short"]


async def test_a_task_is_told_in_the_words_of_the_design(standin: StandIn) -> None:
    app = Outlast("memory://")
    summarize = summaries(app, Model("parrot", url=standin.url))
    async with testing(app) as t:
        handle = await summarize.enqueue(PARAGRAPH)
        told = metadata(await shown(t, handle))
        assert {**told, "created_at": None, "updated_at": None} == {
            "task_id": handle.id, "state": "PENDING", "content": PARAGRAPH, "retry_count": 0,
            "max_retries": 3, "last_error": None, "error_type": None, "retry_after": None,
            "created_at": None, "updated_at": None, "completed_at": None, "result": None,
            "error_history": [],
        }  # fmt: skip
        standin.cue("error", status=500, times=4)
        seen = []
        for _ in range(5):
            await t.run()
            told = metadata(await shown(t, handle))
            seen.append((told["state"], told["retry_count"], len(told["error_history"])))
            await t.advance("70s")
        assert seen == [("FAILED", n, n) for n in (1, 2, 3)] + [("DLQ", 3, 4)] * 2
        assert told["error_type"] == "ServiceUnavailable"
        assert told["last_error"] == "The provider answered 500: The model is ill."
        assert told["error_history"][0]["type"] == "ServiceUnavailable"
        await handle.retry()
        assert metadata(await shown(t, handle))["state"] == "PENDING"
        await t.run()
        told = metadata(await shown(t, handle))
        assert (told["state"], told["result"]) == ("COMPLETED", await handle.result(timeout=0))


async def test_a_text_that_waited_too_long_goes_to_the_dead(standin: StandIn) -> None:
    app = Outlast("memory://")
    summarize = summaries(app)
    async with testing(app) as t:
        handle = await summarize.enqueue(PARAGRAPH)
        await t.advance("61m")
        told = await shown(t, handle)
        assert (metadata(told)["state"], told["reason"]) == ("DLQ", "expired")
