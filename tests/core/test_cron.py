"""Schedules over changes of the clock, against an oracle that looks at every single minute."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest

from outlast.core.cron import Cron, Every, Once, timetable
from outlast.core.errors import BadInput

MINUTE = timedelta(minutes=1)
SINCE, UNTIL = datetime(2020, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)
NAMED = ["30 2 * * *", "0 0 * * *", "0,30 1-3 * * *", "15 0 * * sun", "59 23 28-31 * *"]
SHOWN = ["*/20 * * * *", "5 * * * *", "*/30 1-3 * * *", "* 2 * * sun"]
ZONES = sorted(available_timezones() - {"localtime", "Factory"})


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1_000)


def fits(expression: str, wall: datetime) -> bool:
    """Does a wall time fit? Read plainly, field by field, without the code under test."""
    minute, hour, day, month, weekday = expression.split()
    return (
        _fits(minute, wall.minute)
        and _fits(hour, wall.hour)
        and _fits(day, wall.day)
        and _fits(month, wall.month)
        and (weekday != "sun" or wall.isoweekday() == 7)
    )


def _fits(field: str, value: int) -> bool:
    if field.startswith("*"):
        return value % int(field.partition("/")[2] or 1) == 0
    for part in field.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and int(first) <= value <= int(last or first):
            return True
    return False


def oracle(expression: str, zone: ZoneInfo, since: datetime, until: datetime) -> list[int]:
    """Minute by minute: what the wall clock shows; named times also when it jumps over them, and
    not again when it is put back."""
    minute, hour, *_ = expression.split()
    named = not minute.startswith("*") and not hour.startswith("*")
    found = []
    at = since - timedelta(days=2)
    reached = at.astimezone(zone).replace(tzinfo=None)
    while at < until:
        at += MINUTE
        wall = at.astimezone(zone).replace(tzinfo=None)
        if named:
            hit = False
            while reached < wall:
                reached += MINUTE
                hit = hit or fits(expression, reached)
        else:
            hit = fits(expression, wall)
        if hit and since < at <= until:
            found.append(ms(at))
    return found


def firings(expression: str, zone: str, since: datetime, until: datetime) -> list[int]:
    table = timetable(expression, zone)
    found = []
    at = table.after(ms(since))
    while at is not None and at <= ms(until):
        found.append(at)
        at = table.after(at)
    return found


def changes(place: ZoneInfo) -> list[datetime]:
    """When the clocks of a place are changed in these twenty years, to a day."""
    days = [SINCE + timedelta(days=n) for n in range((UNTIL - SINCE).days)]
    offsets = [day.astimezone(place).utcoffset() for day in days]
    return [day for day, now, then in zip(days, offsets, offsets[1:], strict=False) if now != then]


def places() -> list[ZoneInfo]:
    """One zone for each set of rules: most names are aliases."""
    samples = [SINCE + timedelta(days=15 * n) for n in range(20 * 24)]
    found = {
        tuple(day.astimezone(ZoneInfo(zone)).utcoffset() for day in samples): ZoneInfo(zone)
        for zone in ZONES
    }
    return list(found.values())


def test_every_zone_over_twenty_years() -> None:
    """Three days around changes of the clock, and ordinary ones, of every set of rules there is.

    Each place has every seventh of its changes looked at, beginning with another one; over all
    places that is every year and both seasons. OUTLAST_TEST_DEEP looks at all of them.
    """
    step = 1 if os.environ.get("OUTLAST_TEST_DEEP") else 7
    checked = 0
    for number, place in enumerate(places()):
        for day in (*changes(place)[number % step :: step], SINCE + timedelta(days=300)):
            since, until = day - timedelta(days=1), day + timedelta(days=2)
            expression = (NAMED + SHOWN)[(checked + number) % 9]
            expected = oracle(expression, place, since, until)
            assert firings(expression, place.key, since, until) == expected, (place, day)
            checked += 1
    assert checked > 200


@pytest.mark.parametrize("expression", NAMED + SHOWN)
@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("Europe/Berlin", datetime(2026, 3, 29, tzinfo=UTC)),
        ("Europe/Berlin", datetime(2026, 10, 25, tzinfo=UTC)),
        ("America/New_York", datetime(2026, 3, 8, tzinfo=UTC)),
        ("America/New_York", datetime(2026, 11, 1, tzinfo=UTC)),
        ("Australia/Lord_Howe", datetime(2026, 4, 5, tzinfo=UTC)),  # by half an hour
        ("Australia/Lord_Howe", datetime(2026, 10, 4, tzinfo=UTC)),
        ("America/Santiago", datetime(2026, 9, 6, tzinfo=UTC)),  # at midnight
        ("America/Santiago", datetime(2026, 4, 5, tzinfo=UTC)),
        ("Africa/Casablanca", datetime(2026, 2, 15, tzinfo=UTC)),
        ("Pacific/Apia", datetime(2011, 12, 30, tzinfo=UTC)),  # a whole day was skipped
        ("Antarctica/Troll", datetime(2026, 3, 29, tzinfo=UTC)),  # by two hours
    ],
)
def test_the_days_on_which_clocks_change(expression: str, zone: str, day: datetime) -> None:
    since, until = day - timedelta(days=2), day + timedelta(days=2)
    expected = oracle(expression, ZoneInfo(zone), since, until)
    assert firings(expression, zone, since, until) == expected


def test_nightly_jobs_run_once_every_night() -> None:
    nights = firings("30 2 * * *", "Europe/Berlin", SINCE, SINCE + timedelta(days=365))
    assert len(nights) == 365
    [skipped] = [at for at in nights if ms(datetime(2020, 3, 29, tzinfo=UTC)) < at][:1]
    assert skipped == ms(datetime(2020, 3, 29, 1, tzinfo=UTC))  # 3:00 in summer time


def test_seconds_and_intervals() -> None:
    assert firings("*/20 * * * * *", "UTC", SINCE, SINCE + MINUTE) == [
        ms(SINCE) + 20_000, ms(SINCE) + 40_000, ms(SINCE) + 60_000,
    ]  # fmt: skip
    assert timetable("15m") == Every(900_000)
    assert Every(3_600_000).after(ms(SINCE) + 1) == ms(SINCE) + 3_600_000
    assert Every(3_600_000).after(ms(SINCE)) == ms(SINCE) + 3_600_000
    once = timetable(SINCE)
    assert isinstance(once, Once)
    assert (once.after(0), once.after(ms(SINCE))) == (ms(SINCE), None)


def test_in_words() -> None:
    assert str(timetable("0 9 * * mon-fri", "Europe/Berlin")) == (
        "at 09:00 on Monday through Friday, Europe/Berlin"
    )
    assert str(timetable("90s")) == "every 1m 30s"
    assert isinstance(timetable("@daily"), Cron)


@pytest.mark.parametrize(
    ("every", "tz", "words"),
    [
        ("0 9 * *", "UTC", "no cron expression"),
        ("61 * * * *", "UTC", "Bad minute"),
        ("0 0 30 2 *", "UTC", "cron expression"),
        ("@nightly", "UTC", "no cron expression"),
        ("0 9 * * *", "Europe/Berlim", "no time zone"),
        ("0 9 * * *", "../etc/passwd", "no time zone"),
        ("15m", "Europe/Berlim", "no time zone"),
        ("10ms", "UTC", "at most once per second"),
    ],
)
def test_what_is_no_schedule(every: str, tz: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        timetable(every, tz)
