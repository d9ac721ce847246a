"""Counts and spreads that many processes keep: adding, subtracting, and what they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.totals import (
    BOUNDS_MS,
    Totals,
    labels_of,
    mean,
    name_of,
    new_spread,
    observe,
    quantile,
    size,
)

names = st.sampled_from(["a", "b\tx", "c\tx\ty"])


@st.composite
def totals(draw: st.DrawFn) -> Totals:
    found = Totals(draw(st.dictionaries(names, st.integers(1, 99))))
    for name, values in draw(st.dictionaries(names, st.lists(st.integers(0, 10**8)))).items():
        found.spreads[name] = new_spread()
        for ms in values:
            observe(found.spreads[name], ms)
    return found


@given(totals(), totals())
def test_what_was_added_is_what_came_since(before: Totals, more: Totals) -> None:
    after = Totals()
    after.add(before)
    after.add(more)
    nothing = Totals()
    assert after.since(before) == more.since(nothing)


def test_counts_do_not_fall() -> None:
    assert Totals({"a": 1}).since(Totals({"a": 3, "b": 1})) == Totals()


def test_adding_leaves_the_other_alone() -> None:
    one, other = Totals(), Totals({"a": 1}, {"s": new_spread()})
    one.add(other)
    observe(one.spreads["s"], 5)
    one.counts["a"] += 1
    assert other == Totals({"a": 1}, {"s": new_spread()})


def test_a_bound_belongs_to_its_bucket() -> None:
    spread = new_spread()
    for ms in (0, 5, 6, BOUNDS_MS[-1], BOUNDS_MS[-1] + 1):
        observe(spread, ms)
    assert (spread[0], spread[1], spread[-3], spread[-2]) == (2, 1, 1, 1)
    assert size(spread) == 5
    assert spread[-1] == 11 + 2 * BOUNDS_MS[-1] + 1


def test_mean_and_quantile() -> None:
    spread = new_spread()
    assert mean(spread) is None
    assert quantile(spread, 0.95) is None
    for _ in range(90):
        observe(spread, 80)
    for _ in range(10):
        observe(spread, 400)
    assert mean(spread) == pytest.approx(112)
    assert quantile(spread, 0.5) == pytest.approx(50 + 50 * 50 / 90)
    assert quantile(spread, 0.95) == pytest.approx(250 + 250 * 5 / 10)
    observe(spread, 10**9)
    assert quantile(spread, 1) == BOUNDS_MS[-1]


def test_a_name_holds_its_labels() -> None:
    assert labels_of(name_of("attempts", "t", "my queue", "failed")) == (
        "attempts",
        ("t", "my queue", "failed"),
    )
    assert labels_of(name_of("rescued")) == ("rescued", ())
