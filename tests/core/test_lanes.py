"""Lanes: the retry lane's share falls under pressure, and is exact over any 100 picks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.errors import BadInput
from outlast.core.lanes import Lanes, LaneTurner


@pytest.mark.parametrize(
    ("waiting", "pressure", "share"),
    [
        (0, "normal", 0.30),
        (999, "normal", 0.30),
        (1_000, "warning", 0.20),
        (4_999, "warning", 0.20),
        (5_000, "critical", 0.10),
        (10**9, "critical", 0.10),
    ],
)
def test_the_share_falls_as_retries_wait(waiting, pressure, share):
    assert Lanes().pressure(waiting) == pressure
    assert Lanes().share_at(waiting) == share


def test_shares_and_thresholds_can_be_set():
    lanes = Lanes(share=0.5, warning=10, warning_share=0.4, critical=20, critical_share=0.0)
    assert [lanes.share_at(n) for n in (9, 10, 20)] == [0.5, 0.4, 0.0]


@pytest.mark.parametrize(
    ("options", "lesson"),
    [
        ({"share": 1.5}, "share is a share"),
        ({"share": -0.1}, "share is a share"),
        ({"share": 30}, "0.3 is 30 %"),
        ({"share": float("nan")}, "whole percent"),
        ({"critical_share": 0.125}, "whole percent"),
        ({"warning": 0}, "above 0"),
        ({"warning": 5_000}, "below critical"),
    ],
)
def test_nonsense_is_refused(options, lesson):
    with pytest.raises(BadInput, match=lesson):
        Lanes(**options)


@given(st.integers(0, 100), st.integers(0, 250))
def test_any_100_picks_in_a_row_hold_exactly_the_share(percent, skipped):
    turner = LaneTurner(percent / 100)
    turner.advance(skipped)
    assert turner.peek(100).count("retry") == percent


def test_turns_are_spread_evenly():
    assert LaneTurner(0.30).peek(10) == [
        "primary",
        "primary",
        "primary",
        "retry",
        "primary",
        "primary",
        "retry",
        "primary",
        "primary",
        "retry",
    ]
    assert LaneTurner(0.5).peek(4) == ["primary", "retry", "primary", "retry"]


@given(st.lists(st.integers(0, 40), max_size=20))
def test_picks_are_the_same_however_they_are_taken(sizes):
    whole = LaneTurner().peek(sum(sizes))
    turner, taken = LaneTurner(), []
    for size in sizes:
        taken += turner.peek(size)
        assert turner.peek(size) == taken[len(taken) - size :]  # peeking takes nothing
        turner.advance(size)
    assert taken == whole


def test_a_new_share_holds_from_the_next_pick_on():
    turner = LaneTurner(0.30)
    turner.advance(3)
    turner.set_share(0.10)
    assert turner.peek(100).count("retry") == 10
    assert turner.peek(1) == ["retry"]  # the turn it had saved up is not lost
    turner.set_share(0)
    assert turner.peek(50).count("retry") == 0
