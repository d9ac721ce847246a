"""Durations: what people write, in milliseconds, and back."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.durations import MAX_MS, say_ms, show_ms, to_ms
from outlast.core.errors import BadInput


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("2m", 120_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("3d", 259_200_000),
        ("1w", 604_800_000),
        ("1.5h", 5_400_000),
        (" 10 s ", 10_000),
        ("1w2d3h4m5s6ms", 788_645_006),
        ("30", 30_000),
        ("0", 0),
        ("0s", 0),
        (10, 10_000),
        (0.25, 250),
        (0, 0),
        (0.1 + 0.2, 300),
        (timedelta(minutes=2), 120_000),
        (timedelta(milliseconds=1.5), 2),
        ("36500d", MAX_MS),
    ],
)
def test_durations_become_milliseconds(value, ms):
    assert to_ms(value) == ms


def test_what_is_above_zero_stays_above_zero():
    assert to_ms(0.000_1) == 1


@pytest.mark.parametrize(
    ("value", "lesson"),
    [
        (True, "is not a duration"),
        (None, "is not a duration"),
        (b"10s", "is not a duration"),
        ("", "the larger unit first"),
        ("soon", "a number and a unit"),
        ("10x", "a number and a unit"),
        ("-5s", "a number and a unit"),
        ("30m1h", "the larger unit first"),
        ("1h1h", "the larger unit first"),
        ("10 minutes", "a number and a unit"),
        ("1e5", "a number and a unit"),
        ("nan", "a number and a unit"),
        ("٣s", "a number and a unit"),
        (-1, "negative"),
        (timedelta(seconds=-1), "negative"),
        (float("-inf"), "negative"),
        (float("nan"), "NaN"),
        (float("inf"), "too long"),
        (10**400, "too long"),
        ("36501d", "too long"),
        (timedelta.max, "too long"),
    ],
)
def test_nonsense_is_refused_with_a_lesson(value, lesson):
    with pytest.raises(BadInput, match=lesson):
        to_ms(value)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0s"),
        (250, "250ms"),
        (1_500, "1s 500ms"),
        (5_400_000, "1h 30m"),
        (604_800_000, "7d"),
        (-2_000, "-2s"),
    ],
)
def test_durations_are_shown_for_people(ms, text):
    assert show_ms(ms) == text


@given(st.integers(0, MAX_MS))
def test_what_is_shown_can_be_read_back(ms):
    assert to_ms(show_ms(ms)) == ms


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (40, "40ms"),
        (9_999, "9s 999ms"),
        (10_999, "10s"),
        (2_005_649, "33m 25s"),
        (60_683_412, "16h 51m"),
        (180_000_123, "2d 2h"),
    ],
)
def test_what_does_not_matter_any_more_is_not_said(ms, text):
    assert say_ms(ms) == text
