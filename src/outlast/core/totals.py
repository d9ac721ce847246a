"""Counts and spreads (histograms) that many processes keep, and that can be added up.

A *name* is the metric and its labels in one text, so that adding and subtracting know nothing of
what is counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from msgspec import Struct, field

BOUNDS_MS: Final = (
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 1_800_000,
    7_200_000,
)  # fmt: skip
"""Upper bounds of a spread's buckets; one more bucket holds what is above."""
_APART: Final = "\t"  # no name of ours contains it: they are printable

Spread = list[int]
"""One count per bucket, and the sum of all values in the end."""


class Totals(Struct):
    """What was counted since the beginning."""

    counts: dict[str, int] = field(default_factory=dict)
    spreads: dict[str, Spread] = field(default_factory=dict)

    def add(self, other: Totals) -> None:
        for name, n in other.counts.items():
            self.counts[name] = self.counts.get(name, 0) + n
        for name, spread in other.spreads.items():
            self.spreads[name] = [a + b for a, b in _pairs(self.spreads.get(name), spread)]

    def since(self, before: Totals) -> Totals:
        """What came on top of `before`; what did not change is left out."""
        counts = {name: n - before.counts.get(name, 0) for name, n in self.counts.items()}
        spreads = {
            name: [max(b - a, 0) for a, b in _pairs(before.spreads.get(name), spread)]
            for name, spread in self.spreads.items()
        }
        return Totals(
            {name: n for name, n in counts.items() if n > 0},
            {name: spread for name, spread in spreads.items() if any(spread)},
        )


def _pairs(first: Spread | None, then: Spread) -> Iterable[tuple[int, int]]:
    return zip(first or [0] * len(then), then, strict=True)


def name_of(metric: str, *labels: str) -> str:
    return _APART.join((metric, *labels))


def labels_of(name: str) -> tuple[str, tuple[str, ...]]:
    """The metric and its labels."""
    metric, *labels = name.split(_APART)
    return metric, tuple(labels)


def new_spread() -> Spread:
    return [0] * (len(BOUNDS_MS) + 2)


def observe(spread: Spread, ms: int) -> None:
    spread[bisect_left(BOUNDS_MS, ms)] += 1
    spread[-1] += ms


def size(spread: Spread) -> int:
    """How many values it holds."""
    return sum(spread[:-1])


def mean(spread: Spread) -> float | None:
    n = size(spread)
    return spread[-1] / n if n else None


def quantile(spread: Spread, q: float) -> float | None:
    """Within its bucket the values are taken to lie evenly, as Prometheus does."""
    wanted = q * size(spread)
    if not wanted:
        return None
    seen = 0
    for bucket, upper in enumerate(BOUNDS_MS):
        n = spread[bucket]
        if seen + n >= wanted:
            lower = BOUNDS_MS[bucket - 1] if bucket else 0
            return lower + (upper - lower) * (wanted - seen) / n
        seen += n
    return float(BOUNDS_MS[-1])
