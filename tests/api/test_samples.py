"""The sample app, and the summariser that needs no model."""

import asyncio

import pytest

from outlast import TaskDead
from outlast.core.model import TaskQuery
from outlast.samples import PARAGRAPH, app, crunch, doomed, flaky, lively, slow, summarize
from outlast.systems import extract
from outlast.testing import testing


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Dr. Smith met Mr. A. Jones at 3.5 km. They ran.",
         ["Dr. Smith met Mr. A. Jones at 3.5 km.", "They ran."]),
        ('He said "Stop." Then he\n  left.', ['He said "Stop."', "Then he left."]),
        ("A heading\n\nA sentence.", ["A heading", "A sentence."]),
        ("今日は晴れ。明日は雨。", ["今日は晴れ。", "明日は雨。"]),
        ("  \n ", []),
        ("", []),
    ],
)  # fmt: skip
def test_sentences_are_found(text: str, sentences: list[str]) -> None:
    assert extract.sentences(text) == sentences


def test_a_summary_keeps_what_the_text_is_about_and_its_order() -> None:
    noise = [
        "Breakfast consisted of bread, two eggs and rather bitter coffee.",
        "A neighbour had painted her fence green during spring.",
        "Postcards from Lisbon arrived late again this week.",
        "Some gulls argued loudly about a stolen sandwich.",
        "Nobody remembered where the old ladder was bought.",
    ]
    say = "The lighthouse keeper repaired the lighthouse lamp before the storm reached the coast."
    more = "Without the lighthouse lamp, ships in the storm would have missed the harbour."
    text = " ".join([*noise[:3], say, *noise[3:], more])
    summary = extract.summarize(text, 3)
    assert [sentence for sentence in summary if sentence in (say, more)] == [say, more]
    assert len(summary) == 3
    every = extract.sentences(text)
    assert sorted(summary, key=every.index) == summary


def test_a_summary_does_not_say_the_same_thing_twice() -> None:
    same = "Queues keep work for later when workers are busy."
    other = "Databases remember facts that programs would otherwise forget entirely."
    assert other in extract.summarize(" ".join([same] * 5 + [other]), 2)


def test_a_short_text_is_its_own_summary() -> None:
    assert extract.summarize("One thing. Another thing.", 5) == ["One thing.", "Another thing."]


def test_a_megabyte_is_no_trouble() -> None:
    """Comparing every sentence with every other would run into the timeout of the test."""
    words = (f"Sentence number {n} talks about topic {n % 97} at length." for n in range(20_000))
    text = " ".join(words)
    assert len(extract.summarize(text, 5)) == 5


async def test_the_samples_do_what_they_are_for() -> None:
    async with testing(app) as t:
        summary = await summarize.enqueue(PARAGRAPH, sentences=2)
        fails = await flaky.enqueue()
        dead = await doomed.enqueue()
        takes = await slow.enqueue(seconds=0.01, steps=3)
        primes = await crunch.enqueue(below=100)
        await t.run()
        text = await summary.result(timeout=0)
        chunks = [event.data["chunk"] for event in await t.events(summary) if event.kind == "chunk"]
        assert "".join(map(str, chunks)) == text
        assert len(chunks) == 2
        assert b'"percent":100' in ((await t.task(summary)).progress or b"")
        assert await takes.result(timeout=0) == "3 steps in 0.01 s"
        assert await primes.result(timeout=0) == 25
        with pytest.raises(TaskDead, match="must be positive"):
            await dead.result(timeout=0)
        for _ in range(2):
            await t.advance("3s")
            await t.run()
        assert await fails.result(timeout=0) == "succeeded at attempt 3"


async def test_a_lively_dashboard_gets_its_trickle() -> None:
    async with testing(app):
        trickle = asyncio.create_task(lively())
        async with app.engine.watch(["queue:default"]) as watch, asyncio.timeout(10):
            types: set[str] = set()
            while types != app.handlers.keys():
                await watch.wait(1)
                types = {task.type for task in (await app.engine.tasks(TaskQuery())).items}
        trickle.cancel()
