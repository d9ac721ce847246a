"""What a model's provider says when it does not answer: as exceptions that Outlast classifies, and
what its headers tell about when to ask again.

The classes are named as people know them. Their status, or the name of a class above them, decides
about retries, circuit and pauses (`core/failures.py`); nothing is decided here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec

from outlast.core.states import Ms

MAX_SAID: Final = 500
# A provider may ask for rest; more than this is a mistake of its clock or ours.
MAX_REST_MS: Final = 3_600_000
# What an error under a good status is, where it has no status for a code.
_KINDS: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_POLICY: Final = re.compile(r";\s*r=0\b[^,]*?;\s*t=(\d+)")


class ModelError(Exception):
    """The provider refused: `status` is what it answered with, `details` what it said besides."""

    def __init__(
        self, message: str, *, status: int | None = None, retry_after: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {} if retry_after is None else {"retry-after": retry_after}


class RateLimitError(ModelError):
    """429: too much was asked. It costs no attempt; a task's limits rest for everyone."""


class ServiceUnavailable(ModelError):
    """500 and above."""


class ProtocolError(ModelError):
    """What came is no answer: a stream that ends in the middle, a chunk that is no JSON."""


class NetworkTimeout(TimeoutError):
    """No answer in time, or none that goes on."""


def refusal(status: int, headers: Mapping[str, str], body: bytes, now: Ms) -> ModelError:
    """The error behind an answer that is none."""
    try:
        told = msgspec.json.decode(body)
    except (ValueError, RecursionError):  # also no UTF-8, or nested without end
        told = body.decode("utf-8", "replace")
    error = told.get("error", told) if isinstance(told, Mapping) else told
    said = error.get("message", error) if isinstance(error, Mapping) else error
    # OpenRouter passes on the headers of whoever it asked.
    passed_on = _within(error, "metadata", "headers")
    if isinstance(passed_on, Mapping):
        headers = {**{str(k).lower(): str(v) for k, v in passed_on.items()}, **headers}
    return error_for(status, f"{said}"[:MAX_SAID], headers, now)


def error_in_stream(error: Any, now: Ms) -> ModelError:
    """The error that came where an answer was to come, by its code or its kind."""
    code, kind = str(_within(error, "code")), str(_within(error, "type"))
    if re.fullmatch(r"[45]\d\d", code):
        status = int(code)
    elif "rate_limit" in code or "rate_limit" in kind:
        status = 429
    else:
        status = _KINDS.get(kind, 502)
    return error_for(status, f"{_within(error, 'message') or error}"[:MAX_SAID], {}, now)


def error_for(status: int, said: str, headers: Mapping[str, str], now: Ms) -> ModelError:
    after = headers.get("retry-after")
    if after is None and (rest_ms := rest_asked(headers, now)):
        after = str(rest_ms / 1_000)
    kind = RateLimitError if status == 429 else ServiceUnavailable if status >= 500 else ModelError
    return kind(f"The provider answered {status}: {said}", status=status, retry_after=after)


def rest_asked(headers: Mapping[str, str], now: Ms) -> Ms:
    """How long nothing should be asked, when the headers say that nothing is left; else 0.

    `x-ratelimit-remaining-requests` and its reset (`6m0s`, seconds, or a moment), the same for
    tokens and without a kind, and the standard's `RateLimit: "default";r=0;t=30`.
    """
    rests = [float(found) * 1_000 for found in _POLICY.findall(headers.get("ratelimit", ""))]
    for family in ("x-ratelimit", "ratelimit"):
        for kind in ("", "-requests", "-tokens"):
            left = headers.get(f"{family}-remaining{kind}", "")
            reset = headers.get(f"{family}-reset{kind}")
            if reset is not None and re.fullmatch(r"-?\d+(\.\d+)?", left) and float(left) <= 0:
                rests.append(_rest_ms(reset.strip(), now))
    return round(min(max(rests, default=0), MAX_REST_MS))


def _rest_ms(reset: str, now: Ms) -> float:
    with suppress(ValueError):
        n = float(reset)
        if n < 1e9:
            return max(0.0, n * 1_000)
        return max(0.0, (n if n > 1e11 else n * 1_000) - now)
    with suppress(ValueError):
        return max(0.0, datetime.fromisoformat(reset).timestamp() * 1_000 - now)
    return sum(float(n) * _UNITS_MS[unit] for n, unit in _SPAN.findall(reset))


def _within(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
