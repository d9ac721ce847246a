"""Durations as people write them ("1h30m", 10, timedelta) to integer milliseconds and back."""

import math
import re
from datetime import timedelta

from outlast.core.errors import BadInput

Duration = str | int | float | timedelta

# 100 years: far above any use, far below 2**53, so that it survives every JSON parser.
MAX_MS = 100 * 365 * 86_400_000

_UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
# Largest unit first and each at most once, so that "30m1h" is a typing error and not a surprise.
_TEXT = re.compile(r"\s*".join(rf"(?:({_NUMBER})\s*{unit}(?![a-z]))?" for unit in _UNITS))
_PLAIN = re.compile(_NUMBER)


def to_ms(value: Duration) -> int:
    """Milliseconds of a duration; plain numbers, also as text, are seconds."""
    if isinstance(value, str):
        ms = _parse(value)
    elif isinstance(value, timedelta):
        ms = value / timedelta(milliseconds=1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        ms = _seconds(value)
    else:
        raise BadInput(
            f"{value!r} is not a duration: write '500ms', '10s', '1h30m', a number of seconds,"
            " or a timedelta."
        )
    if math.isnan(ms):
        raise BadInput("NaN is not a duration: a number of seconds is needed.")
    if ms > MAX_MS:
        raise BadInput(f"{value!r} is too long for a duration: the most is 100 years ('36500d').")
    if ms < 0:
        raise BadInput(f"{value!r} is negative: a duration starts at 0.")
    # Something above zero stays above zero: a timeout of 0.4 ms must not become "none".
    return max(1, round(ms)) if ms else 0


def show_ms(ms: int) -> str:
    """The duration as text, exact, and readable by `to_ms`: "1h 30m", "250ms", "0s"."""
    parts = []
    rest = abs(ms)
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return ("-" if ms < 0 else "") + (" ".join(parts) or "0s")


def say_ms(ms: int) -> str:
    """The duration as people say it, without what does not matter any more: "33m 25s", "2d 3h"."""
    grains = ((864 * 10**5, 36 * 10**5), (36 * 10**5, 6 * 10**4), (10**4, 10**3))
    grain = next((grain for least, grain in grains if ms >= least), 1)
    return show_ms(ms // grain * grain)


def _parse(text: str) -> float:
    stripped = text.strip()
    if _PLAIN.fullmatch(stripped):
        return _seconds(float(stripped))
    match = _TEXT.fullmatch(stripped)
    if match is None or not stripped:
        raise BadInput(
            f"{text!r} is not a duration: write a number and a unit (ms, s, m, h, d, w),"
            " the larger unit first, as in '500ms', '10s' or '1h30m'."
        )
    return sum(
        float(count) * size
        for count, size in zip(match.groups(), _UNITS.values(), strict=True)
        if count is not None
    )


def _seconds(value: float) -> float:
    try:
        return float(value) * 1_000
    except OverflowError:  # an int beyond the floats
        return math.inf
