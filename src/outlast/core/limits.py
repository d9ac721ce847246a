"""Limits: named gates with slots, a rate, a circuit (`Trip`) or a `Cap`, and how gauges count.

The functions at the end are the specification for every engine. Engines in Python call them; Lua
and SQL repeat them line by line. So every step is integer arithmetic on non-negative numbers below
2**53 (Lua counts in doubles), where `//` means the same everywhere.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, TypeGuard, TypeVar

from outlast.core.durations import Duration, show_ms, to_ms
from outlast.core.errors import BadInput
from outlast.core.states import Ms

D = TypeVar("D")
Circuit: TypeAlias = Literal["closed", "open", "half_open"]
Turned: TypeAlias = Literal["opened", "closed"]

MAX_KEY: Final = 200  # characters; the key is part of an index entry in every engine
MAX_PERIOD_MS: Final = 31 * 86_400_000
MAX_DEBT: Final = 1000  # periods a gauge may be in debt; keeps tat_us below 2**53 (31 d * 1000)
BUCKETS: Final = 6  # so a verdict counts for 5/6 to 6/6 of the window

DAY_MS: Final = 86_400_000
Span: TypeAlias = Literal["hour", "day", "month", "total"]
SPANS: Final[Mapping[Span, Ms]] = {
    "hour": 3_600_000, "day": DAY_MS, "month": MAX_PERIOD_MS, "total": 0,
}  # fmt: skip
"""What engines are told of a span: its length. 31 days stand for a month of the calendar."""

_EXACT: Final = 2**53
_PERIODS: Final = {
    "sec": "1s", "second": "1s", "min": "1m", "minute": "1m", "hour": "1h", "day": "1d",
    "ms": "1ms", "s": "1s", "m": "1m", "h": "1h", "d": "1d",
}  # fmt: skip
_RATE: Final = re.compile(r"\s*([0-9]{1,15})\s*/\s*(\S.*?)\s*")
_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_PATH: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


# Definitions -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, init=False)
class Trip:
    """When a limit's circuit opens: `rate` of at least `volume` verdicts failed within `window`.

    It stays open for `open`, then lets one probe of the whole fleet through.
    """

    permille: int  # the failure rate as an integer: shares are compared without floats
    volume: int
    window_ms: Ms
    open_ms: Ms

    def __init__(
        self,
        rate: float = 0.5,
        volume: int = 10,
        window: Duration = "60s",
        open: Duration = "60s",
    ) -> None:
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0.001 <= rate <= 1:
            raise BadInput(f"Trip(rate={rate!r}): give a share of failures from 0.001 to 1")
        if not _whole(volume, 1, 1_000_000):
            raise BadInput(f"Trip(volume={volume!r}): give a number of verdicts, 1 to 1000000")
        window_ms, open_ms = to_ms(window), to_ms(open)
        if not 1000 <= window_ms <= MAX_PERIOD_MS:
            raise BadInput(f"Trip(window={window!r}): give a duration from 1s to 31d")
        if not 1 <= open_ms <= MAX_PERIOD_MS:
            raise BadInput(f"Trip(open={open!r}): give a duration from 1ms to 31d")
        _init(
            self, permille=round(rate * 1000), volume=volume, window_ms=window_ms, open_ms=open_ms
        )

    def to_json(self) -> dict[str, int]:
        return {
            "permille": self.permille,
            "volume": self.volume,
            "window_ms": self.window_ms,
            "open_ms": self.open_ms,
        }


@dataclass(frozen=True, slots=True)
class Cap:
    """What may be used in an hour, a day or a month of the calendar (UTC), or ever.

    It is charged by attempts with what they really used, so it lets pass while anything is left,
    and what runs may go over it. A span that begins, begins at nothing.
    """

    units: int
    span: Span

    def __post_init__(self) -> None:
        if not _whole(self.units, 1, _EXACT - 1) or self.span not in SPANS:
            raise BadInput(
                f"Cap({self.units!r}, {self.span!r}): give 1 unit or more, per {', '.join(SPANS)}"
            )

    def to_json(self) -> dict[str, int]:
        return {"units": self.units, "span_ms": SPANS[self.span]}


@dataclass(frozen=True, slots=True, init=False)
class Limit:
    """A named gate. `key` is exact (`provider:openrouter`) or a family (`user:*`).

    In a family each key has a gauge of its own: `Limit("user:*", slots=2)` is two for every user.
    """

    key: str
    slots: int | None  # attempts at once; None = any number
    rate_units: int  # units per period, and the burst; 0 = no rate
    rate_period_ms: Ms
    trip: Trip | None
    cap: Cap | None

    def __init__(
        self,
        key: str,
        *,
        slots: int | None = None,
        rate: str | None = None,
        trip: Trip | None = None,
        cap: Cap | None = None,
    ) -> None:
        _check_key(key)
        if slots is not None and not _whole(slots, 1, 1_000_000):
            raise BadInput(
                f"Limit({key!r}, slots={slots!r}): give 1 to 1000000, or None for any number "
                "(to stop everything, pause the queue)"
            )
        if trip is not None and not isinstance(trip, Trip):
            raise BadInput(f"Limit({key!r}, trip={trip!r}): give Trip(...) or None")
        if slots is None and rate is None and trip is None and cap is None:
            raise BadInput(f"Limit({key!r}) limits nothing: give slots=, rate= or trip=")
        if cap is not None and (slots, rate, trip) != (None, None, None):
            raise BadInput(f"Limit({key!r}): a cap stands alone; use another key for the rest")
        units, period_ms = (0, 0) if rate is None else _parse_rate(key, rate)
        _init(
            self, key=key, slots=slots, rate_units=units, rate_period_ms=period_ms, trip=trip,
            cap=cap,
        )  # fmt: skip

    @property
    def rate(self) -> str | None:
        """The rate as text: "60/1m"."""
        return f"{self.rate_units}/{show_ms(self.rate_period_ms)}" if self.rate_units else None

    def to_json(self) -> dict[str, object]:
        """The body of the definition's record; engines read these integers."""
        told: dict[str, object] = {
            "key": self.key,
            "slots": self.slots,
            "rate_units": self.rate_units,
            "rate_period_ms": self.rate_period_ms,
            "trip": self.trip and self.trip.to_json(),
        }
        return told if self.cap is None else {**told, "cap": self.cap.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> "Limit":
        """Read a record back; unknown fields are ignored (a newer release may have written it)."""
        key, slots, trip = data.get("key"), data.get("slots"), data.get("trip")
        units, period_ms = data.get("rate_units", 0), data.get("rate_period_ms", 0)
        if not isinstance(key, str) or not isinstance(slots, int | None):
            raise BadInput(f"A limit's record has a key and slots, not {key!r} and {slots!r}")
        if not _whole(units, 0, _EXACT) or not _whole(period_ms, 0, MAX_PERIOD_MS):
            raise BadInput(f"Limit {key!r}: rate_units and rate_period_ms must be integers")
        return cls(
            key,
            slots=slots,
            rate=f"{units}/{period_ms}ms" if units else None,
            trip=None if trip is None else _trip_from_json(key, trip),
            cap=_cap_from_json(key, data.get("cap")),
        )


@dataclass(frozen=True, slots=True)
class LimitTemplate:
    """A key with fields of the payload in it: `media:{provider}`, `user:{user.id}`."""

    text: str
    parts: tuple[str | tuple[str, ...], ...]  # literals, and paths into the payload

    @classmethod
    def parse(cls, text: str) -> "LimitTemplate":
        # split() with one group alternates literal, path, literal, path, …, literal.
        pieces = _FIELD.split(text)
        literals, paths = pieces[::2], pieces[1::2]
        if any("{" in literal or "}" in literal for literal in literals):
            raise BadInput(f"Limit template {text!r}: braces must come in pairs, as in {{user}}")
        for path in paths:
            if not _PATH.fullmatch(path):
                raise BadInput(
                    f"Limit template {text!r}: {{{path}}} must be a field of the payload or a "
                    "dotted path, as in {user} or {user.id}"
                )
        if not paths:
            _check_key(text)
        elif ":" not in literals[0].lstrip(":") or "*" in text:
            raise BadInput(
                f"Limit template {text!r}: begin with a name and a colon, as in user:{{user}}, "
                "and use no star"
            )
        parts = [tuple(p.split(".")) if i % 2 else p for i, p in enumerate(pieces)]
        return cls(text, tuple(part for part in parts if part))

    @property
    def family(self) -> str:
        """The family that its keys belong to, `media:*`; without fields, the key itself."""
        if len(self.parts) == 1:
            return self.text
        return self.text[: self.text.index("{")].rpartition(":")[0] + ":*"

    def render(self, payload: Mapping[str, object]) -> str:
        paths_left = sum(isinstance(part, tuple) for part in self.parts)
        out = []
        for part in self.parts:
            if isinstance(part, str):
                out.append(part)
                continue
            paths_left -= 1
            value = self._look_up(payload, part)
            if paths_left and ":" in value:
                # Else ("a:b", "c") and ("a", "b:c") would share one gauge.
                raise BadInput(
                    f"$.{'.'.join(part)}: {value!r} has a colon, which only the last field of the "
                    f"limit {self.text!r} may have"
                )
            out.append(value)
        key = "".join(out)
        if len(key) > MAX_KEY:
            raise BadInput(
                f"The limit {self.text!r} gives a key of {len(key)} characters; at most {MAX_KEY}"
            )
        if not key.isprintable() or key.endswith(":*"):
            raise BadInput(f"The limit {self.text!r} gives the key {key!r}: use printable text")
        return key

    def _look_up(self, payload: Mapping[str, object], path: tuple[str, ...]) -> str:
        value: object = payload
        for depth, name in enumerate(path):
            if not isinstance(value, Mapping) or name not in value:
                where = ".".join(path[: depth + 1])
                raise BadInput(f"$.{where}: missing, and the limit {self.text!r} needs it")
            value = value[name]
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return str(value)
        if isinstance(value, str) and value:
            return value
        what = "an empty text" if value == "" else type(value).__name__
        raise BadInput(
            f"$.{'.'.join(path)}: {what} cannot be part of a limit's key ({self.text!r}); "
            "give a text, an integer or a boolean"
        )


def resolve(key: str, definitions: Mapping[str, D]) -> D | None:
    """The definition for a key: its own, else that of the longest family (`a:b:*` before `a:*`)."""
    found = definitions.get(key)
    while found is None and ":" in key:
        key = key.rpartition(":")[0]
        found = definitions.get(key + ":*")
    return found


# The gate: what every engine does with a gauge ---------------------------------------------------


@dataclass(slots=True)
class Gauge:
    """The state of one key. An absent gauge is a new one.

    The rate is GCRA, a token bucket kept in one number: `tat_us`, the moment at which all that was
    taken so far will have been paid for. An engine sets it to 0 when the definition's rate changes:
    a debt counted in days must not survive a change to a rate per second.
    """

    key: str
    used: int = 0  # leases that hold a slot
    tat_us: int = 0  # theoretical arrival time, µs of engine time
    paused_until: Ms = 0
    open_until: Ms = 0  # 0 = circuit closed; passed = half open
    probe: str = ""  # the task that probes a half-open circuit
    buckets: list[list[int]] = field(default_factory=list)  # [start_ms, ok, failed], oldest first
    # Of a cap there is one bucket: [start_ms of the span, units used in it, 0].


def circuit(limit: Limit | None, gauge: Gauge, now: Ms) -> Circuit:
    if limit is None or limit.trip is None or gauge.open_until == 0:
        return "closed"
    return "open" if now < gauge.open_until else "half_open"


def admit(limit: Limit | None, gauge: Gauge, units: int, now: Ms) -> Ms | None:
    """0: may pass now. A time: look again then. None: only a freed slot or the probe can open it.

    Times come first, so that a caller that is told None has nothing left to wait for but others.
    """
    at = gauge.paused_until
    if limit is None:
        return at if at > now else 0
    state = circuit(limit, gauge, now)
    if state == "open":
        at = max(at, gauge.open_until)
    spent = limit.cap is not None and used_of(limit.cap, gauge, now) >= limit.cap.units
    if limit.cap is not None and spent:
        at = max(at, span_at(limit.cap, now)[1])
    if limit.rate_units:
        # Room for n units: tat, at least now, plus their cost is at most one period ahead. More
        # than a whole period's units could never pass, so they ask for one period's (and pay all).
        cost_us = _cost_us(limit, min(units, limit.rate_units))
        passes_us = max(gauge.tat_us, now * 1000) + cost_us - limit.rate_period_ms * 1000
        at = max(at, (passes_us + 999) // 1000)
    if at > now:
        return at
    if spent or (state == "half_open" and gauge.probe):
        return None
    if limit.slots is not None and gauge.used >= limit.slots:
        return None
    return 0


def take(limit: Limit | None, gauge: Gauge, task_id: str, units: int, now: Ms) -> None:
    """Apply an admission that `admit` has just granted."""
    gauge.used += 1
    if circuit(limit, gauge, now) == "half_open":
        gauge.probe = task_id
    spend(limit, gauge, units, now)


def spend(limit: Limit | None, gauge: Gauge, units: int, now: Ms) -> None:
    """Charge units to the rate, also after the fact (tokens really used); 0 or less is nothing."""
    if limit is None or units <= 0:
        return
    if limit.cap is not None:
        total = min(used_of(limit.cap, gauge, now) + units, _EXACT - 1)
        gauge.buckets = [[span_at(limit.cap, now)[0], total, 0]]
    if not limit.rate_units:
        return
    now_us = now * 1000
    ceiling_us = now_us + MAX_DEBT * limit.rate_period_ms * 1000
    gauge.tat_us = min(max(gauge.tat_us, now_us) + _cost_us(limit, units), ceiling_us)


def used_of(cap: Cap, gauge: Gauge, now: Ms) -> int:
    """Units used in the span that runs; what was used before it is forgotten."""
    for start, units, _ in gauge.buckets:
        if start >= span_at(cap, now)[0]:
            return units
    return 0


def span_at(cap: Cap, now: Ms) -> tuple[Ms, Ms]:
    """Where the span that runs began, and where the next one does; 0 is never."""
    if cap.span == "total":
        return 0, 0
    if cap.span == "month":
        start = _month_start(now)
        return start, _month_start(start + MAX_PERIOD_MS)
    start = now - now % SPANS[cap.span]
    return start, start + SPANS[cap.span]


def _month_start(now: Ms) -> Ms:
    """Of the calendar, in integers: years begin with March, so that the leap day comes last."""
    day = now // DAY_MS
    of_era = (day + 719_468) % 146_097  # days of a cycle of 400 years
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    return (day - of_year + (153 * month + 2) // 5) * DAY_MS


def spent_of(limit: Limit | None, gauge: Gauge, now: Ms) -> int:
    """What a gauge says to people: units used of the cap, if there is one."""
    return 0 if limit is None or limit.cap is None else used_of(limit.cap, gauge, now)


def are_stale(buckets: Sequence[Sequence[int]], now: Ms) -> bool:
    """Older than any window or span; what is counted for ever starts at 0."""
    return all(0 < bucket[0] <= now - MAX_PERIOD_MS for bucket in buckets)


def free(gauge: Gauge, task_id: str) -> None:
    """A lease ended. A probe that ends without a verdict makes room for the next one."""
    gauge.used = max(gauge.used - 1, 0)
    if gauge.probe == task_id:
        gauge.probe = ""


def charge(limit: Limit | None, gauge: Gauge, task_id: str, ok: bool, now: Ms) -> Turned | None:
    """Count an attempt's verdict on the service, before `free`; tells when the circuit turned.

    Until the circuit closes only the probe's verdict counts: others speak of attempts that began
    before it opened, and must neither extend nor end it.
    """
    if limit is None or limit.trip is None:
        return None
    trip = limit.trip
    if gauge.open_until:
        if gauge.probe != task_id:
            return None
        gauge.probe = ""
        gauge.open_until = 0 if ok else now + trip.open_ms
        return "closed" if ok else "opened"
    width = trip.window_ms // BUCKETS
    start = now - now % width
    if gauge.buckets:
        start = max(start, gauge.buckets[-1][0])  # engine time may step back; buckets do not
    gauge.buckets = [b for b in gauge.buckets if b[0] > start - BUCKETS * width]
    if not gauge.buckets or gauge.buckets[-1][0] != start:
        gauge.buckets.append([start, 0, 0])
    gauge.buckets[-1][1 if ok else 2] += 1
    failed = sum(b[2] for b in gauge.buckets)
    total = failed + sum(b[1] for b in gauge.buckets)
    if total < trip.volume or failed * 1000 < trip.permille * total:
        return None
    gauge.open_until = now + trip.open_ms
    gauge.buckets = []  # what comes after the probe is judged afresh
    return "opened"


def pause(gauge: Gauge, until: Ms) -> None:
    """Close the key for everyone (a 429); the latest pause wins."""
    gauge.paused_until = max(gauge.paused_until, until)


def _cost_us(limit: Limit, units: int) -> int:
    """µs that units take to refill, rounded up so that the rate is never exceeded.

    That is ceil(units * period_us / rate_units), without that product, which passes 2**53:
    whole periods, whole µs per unit, and the rest; the last product is what `_parse_rate` bounds.
    """
    period_us = limit.rate_period_ms * 1000
    units = min(units, MAX_DEBT * limit.rate_units)
    whole, part = units // limit.rate_units, units % limit.rate_units
    each_us, rest = period_us // limit.rate_units, period_us % limit.rate_units
    rest_us = (part * rest + limit.rate_units - 1) // limit.rate_units
    return whole * period_us + part * each_us + rest_us


# Reading definitions -----------------------------------------------------------------------------


def _init(value: object, **fields: object) -> None:
    for name, field_value in fields.items():
        object.__setattr__(value, name, field_value)


def _whole(value: object, low: int, high: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _check_key(key: str) -> None:
    if not isinstance(key, str) or not key or len(key) > MAX_KEY or not key.isprintable():
        raise BadInput(f"Limit key {key!r}: give printable text of 1 to {MAX_KEY} characters")
    if "{" in key or "}" in key:
        raise BadInput(
            f"Limit key {key!r}: templates belong to a task's limits=[…]; define its family, "
            "as in Limit('user:*', slots=2)"
        )
    name = key.removesuffix(":*")
    if not name or "*" in name:
        raise BadInput(f"Limit key {key!r}: a star stands only at the end, as in 'user:*'")
    if any(not segment or segment != segment.strip() for segment in name.split(":")):
        raise BadInput(f"Limit key {key!r}: a part between colons is empty or has outer spaces")


def _parse_rate(key: str, rate: str) -> tuple[int, Ms]:
    match = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if match is None:
        raise BadInput(
            f"Limit({key!r}, rate={rate!r}): write units per period, as in '60/min', '5/s', "
            "'100000/1m' or '10/2h'"
        )
    units, period = int(match[1]), match[2]
    try:
        period_ms = to_ms(_PERIODS.get(period, period))
    except BadInput as error:
        raise BadInput(
            f"Limit({key!r}, rate={rate!r}): {period!r} is no period; write '60/min' or '10/2h'"
        ) from error
    if units < 1 or not 1 <= period_ms <= MAX_PERIOD_MS:
        raise BadInput(
            f"Limit({key!r}, rate={rate!r}): give at least 1 unit and a period of 1ms to 31d"
        )
    if units * min(units, period_ms * 1000) > _EXACT:
        raise BadInput(
            f"Limit({key!r}, rate={rate!r}): too many units to count exactly; write the same rate "
            "with a shorter period, as in '5000000/s'"
        )
    return units, period_ms


def _trip_from_json(key: str, trip: object) -> Trip:
    names = ("permille", "volume", "window_ms", "open_ms")
    if not isinstance(trip, Mapping) or not all(_whole(trip.get(n), 1, _EXACT) for n in names):
        raise BadInput(f"Limit {key!r}: trip must have the integers {', '.join(names)}")
    return Trip(
        trip["permille"] / 1000,
        trip["volume"],
        f"{trip['window_ms']}ms",
        f"{trip['open_ms']}ms",
    )


def _cap_from_json(key: str, cap: object) -> Cap | None:
    if cap is None:
        return None
    units = cap.get("units") if isinstance(cap, Mapping) else None
    length_ms = cap.get("span_ms") if isinstance(cap, Mapping) else None
    for span, span_ms in SPANS.items():
        if span_ms == length_ms and isinstance(units, int):
            return Cap(units, span)
    raise BadInput(f"Limit {key!r}: cap must have the integers units and span_ms")
