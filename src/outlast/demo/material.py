"""What the demo works on: sentences, put together anew for each seed."""

from __future__ import annotations

from random import Random
from typing import Final

SENTENCES: Final = (
    "A lighthouse keeper writes down every ship, because the sea keeps no records.",
    "The first telephone exchange put callers on hold, and so it invented the queue.",
    "Erlang counted the calls of Copenhagen in 1909 and found how waiting grows.",
    "A line that is nine tenths full is calm, while one that is full is a crowd.",
    "Seeds were stored in dry clay jars, each with the name of the field it came from.",
    "A baker who loses the order book bakes the same loaf twice or not at all.",
    "The night train waits for the mail and the mail waits for nobody.",
    "Bridges are built with more strength than they need on an ordinary day.",
    "A library lends its books to strangers and expects to see them again.",
    "When the river froze the millers ground by hand and kept the flour dry.",
    "The cartographer drew what was known in ink and what was told in pencil.",
    "Every harbour has a bell that is rung for those who are late.",
    "A clockmaker trusts a clock only beside two others.",
    "Sailors tie a knot they can undo in the dark.",
    "The archive burned twice, and twice it was written again from copies.",
    "A good courier knows three roads to the same door.",
)
SUBJECTS: Final = ("tides", "bridges", "clocks", "harvests", "maps", "letters", "ferries", "bells")
GOALS: Final = ("the old logs", "last year's drafts", "the stale copies")


def text(chance: Random, sentences: int = 10) -> str:
    return " ".join(chance.sample(SENTENCES, sentences))


def batches(chance: Random, n: int, size: int) -> list[list[str]]:
    """Texts to embed, `size` at a time."""
    return [chance.sample(SENTENCES, size) for _ in range(n)]
