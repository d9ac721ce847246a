"""The history of the counts: per hour and per day, what each type in each queue did.

A roll-up is a record that holds the fleet's counts as they were when its hour (or day) began, and
as they are; the difference is what happened. Whoever writes it writes the same, so it does not
matter how many do. What a process publishes after the turn of the hour counts for the next one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, get_args

import msgspec
from msgspec import Struct

from outlast.core.errors import BadInput
from outlast.core.model import Put, Record
from outlast.core.states import Ms
from outlast.core.totals import Spread, Totals, labels_of, mean, quantile
from outlast.engine import Engine
from outlast.meter import FAILED
from outlast.options import moment_of
from outlast.views import View, iso

Span = Literal["hour", "day"]
SPANS: Final[tuple[Span, ...]] = get_args(Span)

KIND: Final = "rollup"
FRESH_MS: Final = 50_000
KEPT_MS: Final[Mapping[Span, int]] = {"hour": 8 * 86_400_000, "day": 400 * 86_400_000}
DEFAULT_MS: Final[Mapping[Span, int]] = {"hour": 86_400_000, "day": 30 * 86_400_000}
"""How far back one looks who does not say."""
_LENGTH: Final[Mapping[Span, timedelta]] = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
_COUNTS: Final[Mapping[str, tuple[str, ...]]] = {
    "enqueued": ("enqueued",),
    "completed": ("ended", "completed"),
    "dead": ("ended", "dead"),
    "cancelled": ("ended", "cancelled"),
    "retried": ("retried",),
    "failed": ("attempts", "failed"),
    "timed_out": ("attempts", "timed_out"),
}
"""The columns of a row, and what they are counted as."""


class Rollup(Struct, frozen=True):
    """One hour or day: the counts when it began, and at `at`."""

    at: Ms
    base: Totals
    totals: Totals
    heartbeat_delay_ms: int = 0
    """The longest that a living worker was not heard of, whenever somebody looked."""


async def roll_up(engine: Engine, count: Callable[[], Awaitable[Totals]], now: Ms) -> None:
    """Bring this hour and this day up to date, unless somebody has just done so."""
    spans = {_key(span, now): span for span in SPANS}
    found = {record.key: record for record in await engine.get(KIND, list(spans))}
    kept = {key: _read(record) for key, record in found.items()}
    old = [key for key in spans if key not in kept or now - kept[key].at >= FRESH_MS]
    if not old:
        return
    # Counted after the records were read: what is written over has no newer counts.
    totals, delay_ms = await count(), await _delay_ms(engine, now)
    for key in old:
        was = kept.get(key) or Rollup(now, await _last(engine, spans[key]), totals)
        new = Rollup(now, was.base, totals, max(delay_ms, was.heartbeat_delay_ms))
        put = Put(
            kind=KIND,
            key=key,
            value=msgspec.json.encode(new),
            expect=found[key].version if key in found else 0,
            ttl_ms=KEPT_MS[spans[key]],
        )
        await engine.put([put])  # one that came between us has written the same


async def history(
    engine: Engine, totals: Totals, by: str, since: str | None = None, until: str | None = None
) -> list[View]:
    """What happened, oldest first; the span that is not over yet goes by the counts of now.

    `since` and `until` are moments with a time zone; without them it is the last day of hours, or
    the last thirty days.
    """
    span = _span(by)
    now = await engine.now()
    end = now + 1 if until is None else moment_of(until, "to")
    begin = end - DEFAULT_MS[span] if since is None else moment_of(since, "from")
    kept = await _kept(engine, span)
    current = _key(span, now)
    base = kept[current].base if current in kept else await _last(engine, span)
    delay_ms = await _delay_ms(engine, now)
    if current in kept:
        delay_ms = max(delay_ms, kept[current].heartbeat_delay_ms)
    kept[current] = Rollup(now, base, totals, delay_ms)
    return [
        row
        for key, rollup in sorted(kept.items())
        if _begin(key) < end and _end(span, key) > begin
        for row in _rows(span, key, rollup)
    ]


async def _kept(engine: Engine, span: Span) -> dict[str, Rollup]:
    return {
        record.key: _read(record)
        for record in await engine.get(KIND)
        if record.key.startswith(f"{span}:")
    }


def _read(record: Record) -> Rollup:
    return msgspec.json.decode(record.value, type=Rollup)


async def _last(engine: Engine, span: Span) -> Totals:
    """The counts when the last hour or day with a roll-up was over: those when the next begins."""
    kept = await _kept(engine, span)
    return kept[max(kept)].totals if kept else Totals()


async def _delay_ms(engine: Engine, now: Ms) -> int:
    return max((now - w.seen_at for w in await engine.workers() if w.alive), default=0)


def _span(text: str) -> Span:
    for span in SPANS:
        if span == text:
            return span
    raise BadInput(f"by={text[:40]!r}: give {' or '.join(SPANS)}.", field="by")


def _key(span: Span, at: Ms) -> str:
    """`hour:2026-11-16T09` or `day:2026-11-16`, in UTC; they sort by time."""
    text = iso(at) or ""
    return f"{span}:{text[:13] if span == 'hour' else text[:10]}"


def _begin(key: str) -> Ms:
    span, _, text = key.partition(":")
    told = f"{text}:00" if span == "hour" else text
    return round(datetime.fromisoformat(told).replace(tzinfo=UTC).timestamp() * 1_000)


def _end(span: Span, key: str) -> Ms:
    return _begin(key) + _LENGTH[span] // timedelta(milliseconds=1)


def _rows(span: Span, key: str, rollup: Rollup) -> list[View]:
    """One row per type and queue that something happened to."""
    happened = rollup.totals.since(rollup.base)
    counts: dict[tuple[str, ...], dict[tuple[str, ...], int]] = {}
    for name, n in happened.counts.items():
        metric, labels = labels_of(name)
        if len(labels) >= 2:
            counts.setdefault(labels[:2], {})[(metric, *labels[2:])] = n
    spreads: dict[tuple[str, ...], dict[str, Spread]] = {}
    for name, spread in happened.spreads.items():
        metric, labels = labels_of(name)
        if len(labels) == 2:
            spreads.setdefault(labels, {})[metric] = spread
    return [
        {
            "begin": iso(_begin(key)),
            "end": iso(_end(span, key)),
            "type": labels[0],
            "queue": labels[1],
            **{name: counts.get(labels, {}).get(column, 0) for name, column in _COUNTS.items()},
            "error_rate": _error_rate(counts.get(labels, {})),
            "wait": _times(spreads.get(labels, {}).get("wait")),
            "run": _times(spreads.get(labels, {}).get("run")),
            "heartbeat_delay": rollup.heartbeat_delay_ms / 1_000,
        }
        for labels in sorted(counts.keys() | spreads.keys())
    ]


def _error_rate(counts: Mapping[tuple[str, ...], int]) -> float | None:
    """Of the attempts that succeeded or failed, how many failed."""
    failed = sum(counts.get(("attempts", verdict), 0) for verdict in FAILED)
    judged = failed + counts.get(("attempts", "succeeded"), 0)
    return failed / judged if judged else None


def _times(spread: Spread | None) -> View:
    average = None if spread is None else mean(spread)
    late = None if spread is None else quantile(spread, 0.95)
    return {
        "average": None if average is None else round(average / 1_000, 3),
        "p95": None if late is None else round(late / 1_000, 3),
    }
