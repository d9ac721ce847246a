"""When a schedule fires: cron expressions on the clock of a place, and plain intervals.

The rule over changes of the clock, which is Debian cron's: an expression that names hour and minute
fires when the wall clock first reaches or passes the time it names, so it is neither skipped in
spring nor doubled in autumn. One with `*` in hour or minute (`*/15 * * * *`) fires whenever the
clock shows a fitting time: not in an hour that is skipped, and in both of an hour that comes twice.

`cronsim` reads the expressions and finds matching times on a clock that never changes; what a zone
makes of them is decided here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from outlast.core.durations import Duration, show_ms, to_ms
from outlast.core.errors import BadInput
from outlast.core.states import Ms

SHORT: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MIN_EVERY_MS: Final = 1_000

_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
# No place has changed its clock twice within so long.
_STRIDE: Final = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class Every:
    """Every so often, on the multiples of the span since 1970: `1h` is at the full hours of UTC."""

    span_ms: int

    def after(self, ms: Ms) -> Ms:
        return (ms // self.span_ms + 1) * self.span_ms

    def __str__(self) -> str:
        return f"every {show_ms(self.span_ms)}"


@dataclass(frozen=True, slots=True)
class Once:
    """At one moment."""

    at: Ms

    def after(self, ms: Ms) -> Ms | None:
        return self.at if ms < self.at else None

    def __str__(self) -> str:
        return f"once, at {_utc(self.at):%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression of five fields, or six with seconds first, in a time zone."""

    expression: str
    zone: ZoneInfo

    def after(self, ms: Ms) -> Ms | None:
        """The first firing behind that moment; None when there is none for fifty years."""
        at = _utc(ms)
        try:
            found = next(self._named(at)) if self._is_named else self._shown(at)
        except StopIteration:
            return None
        return round(found.timestamp() * 1_000)

    def __str__(self) -> str:
        words = CronSim(self.expression, datetime(2000, 1, 1)).explain()
        return f"{words[0].lower()}{words[1:]}, {self.zone.key}"

    @property
    def _is_named(self) -> bool:
        *_, minute, hour = self.expression.split()[:-3]
        return not minute.startswith("*") and not hour.startswith("*")

    def _named(self, at: datetime) -> Iterator[datetime]:
        """The moments at which the wall clock first shows or passes a fitting time."""
        # A day earlier: where a clock was put back over midnight, yesterday's times still come.
        wall = at.astimezone(self.zone).replace(tzinfo=None, microsecond=0) - timedelta(days=1)
        for time in CronSim(self.expression, wall):
            # `fold=0` is the first time that a time comes which comes twice.
            moment = time.replace(tzinfo=self.zone)
            while _is_skipped(moment):
                time = time.replace(second=0) + _MINUTE
                moment = time.replace(tzinfo=self.zone)
            if (instant := moment.astimezone(UTC)) > at:
                yield instant

    def _shown(self, at: datetime) -> datetime:
        """The next moment at which the wall clock shows a fitting time."""
        at = at.replace(microsecond=0)
        while True:
            offset = self._offset(at)
            found = next(CronSim(self.expression, (at + offset).replace(tzinfo=None)))
            instant = found.replace(tzinfo=UTC) - offset
            change = self._change(at, instant)
            if change is None:
                return instant
            if self._fits_at(change):
                return change
            at = change

    def _fits_at(self, instant: datetime) -> bool:
        wall = instant.astimezone(self.zone).replace(tzinfo=None)
        return next(CronSim(self.expression, wall - _SECOND)) == wall

    def _offset(self, instant: datetime) -> timedelta:
        offset = instant.astimezone(self.zone).utcoffset()
        return offset or timedelta()

    def _change(self, since: datetime, until: datetime) -> datetime | None:
        """The first moment in (since, until] at which the clock is put forward or back."""
        offset = self._offset(since)
        while since < until:
            step = min(since + _STRIDE, until)
            if self._offset(step) != offset:
                while step - since > _SECOND:
                    middle = since + (step - since) // 2
                    middle = middle.replace(microsecond=0)
                    if self._offset(middle) == offset:
                        since = middle
                    else:
                        step = middle
                return step
            since = step
        return None


Timetable = Every | Once | Cron


def timetable(every: Duration | datetime, tz: str = "UTC") -> Timetable:
    """What people write: `0 9 * * mon-fri`, `@daily`, `15m`, a timedelta, or a moment."""
    if isinstance(every, datetime):
        if every.tzinfo is None:
            raise BadInput("A schedule at one moment needs a time zone: datetime(…, tzinfo=UTC).")
        return Once(round(every.timestamp() * 1_000))
    zone = _zone_of(tz)
    if isinstance(every, str) and ("*" in every or "@" in every or len(every.split()) > 4):
        return _cron(every, zone)
    span_ms = to_ms(every)
    if span_ms < MIN_EVERY_MS:
        raise BadInput(f"every={every!r}: a schedule fires at most once per second.", field="every")
    return Every(span_ms)


def _zone_of(tz: str) -> ZoneInfo:
    try:
        return _zone(tz)
    except (ValueError, OSError, KeyError) as error:
        raise BadInput(
            f"tz={tz!r} is no time zone; give a name as in 'Europe/Berlin'.", field="tz"
        ) from error


def _cron(expression: str, zone: ZoneInfo) -> Cron:
    told = SHORT.get(expression.strip().lower(), expression)
    try:
        made = Cron(" ".join(told.split()), zone)
        CronSim(made.expression, datetime(2000, 1, 1))  # only parsed
    except CronSimError as error:
        raise BadInput(
            f"every={expression!r} is no cron expression ({error}): give minute, hour, day, month"
            " and weekday, as in '0 9 * * mon-fri', or a span, as in '15m'.",
            field="every",
        ) from error
    if made.after(0) is None:
        raise BadInput(f"every={expression!r} never comes.", field="every")
    return made


@cache
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _is_skipped(moment: datetime) -> bool:
    """Does the wall clock never show it?"""
    return moment.astimezone(UTC).astimezone(moment.tzinfo).replace(fold=0) != moment.replace(
        fold=0
    )


def _utc(ms: Ms) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, UTC)
