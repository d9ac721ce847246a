"""What went wrong in an attempt, classified in this one place: `classify` for exceptions,
`from_wire` for workers in other languages.

Nothing is imported to recognise an error: HTTP clients and validators are known by the attributes
and the class names they share, so the same rules hold for libraries that are not installed.
"""

from __future__ import annotations

import errno
import hashlib
import math
import re
import traceback
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final, Literal

import msgspec

from outlast.core.errors import (
    BadInput,
    Mismatch,
    NotFound,
    OutlastError,
    Permanent,
    TooLarge,
    Transient,
    UnknownEngine,
    UnknownType,
    Unsupported,
)
from outlast.core.text import scrub

Kind = Literal["transient", "permanent", "memory"]

MAX_MESSAGE_BYTES = 4 * 1024
MAX_TRACEBACK_BYTES = 16 * 1024
MAX_DETAILS_BYTES = 16 * 1024
# A server may ask for a pause; it may not park a task for a year.
MAX_RETRY_AFTER_MS = 24 * 3_600_000

KINDS: Final[Mapping[str, Kind]] = {
    "rate_limit": "transient",
    "unavailable": "transient",
    "timeout": "transient",  # a call inside the attempt took too long
    "timed_out": "transient",  # the attempt itself did
    "network": "transient",
    "conflict": "transient",
    "too_early": "transient",
    "transient": "transient",
    "retry": "transient",
    "unknown": "transient",
    "bad_request": "permanent",
    "unauthorized": "permanent",
    "forbidden": "permanent",
    "not_found": "permanent",
    "invalid": "permanent",
    "permanent": "permanent",
    "out_of_memory": "memory",
}
"""The codes Outlast gives, and whether another attempt may help; other codes are transient."""

_OF_SERVICE = frozenset({"rate_limit", "unavailable", "timeout", "timed_out", "network"})

_BY_STATUS: Final[Mapping[int, str]] = {
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    408: "timeout",
    409: "conflict",
    422: "invalid",
    425: "too_early",
    429: "rate_limit",
}

# Class names, found anywhere in the exception's ancestry; the first row that fits decides.
_BY_NAME: Final[tuple[tuple[str, frozenset[str]], ...]] = (
    ("out_of_memory", frozenset({"MemoryError", "OutOfMemoryError"})),
    ("invalid", frozenset({"ValidationError"})),  # pydantic, msgspec, jsonschema, marshmallow
    (
        "timeout",
        frozenset(
            {
                "TimeoutError",  # builtin, asyncio, aiohttp
                "TimeoutException",  # httpx, httpx2
                "ConnectTimeout",
                "ReadTimeout",
                "WriteTimeout",
                "PoolTimeout",
                "Timeout",  # requests
                "ConnectTimeoutError",  # urllib3, botocore
                "ReadTimeoutError",
                "APITimeoutError",  # openai, anthropic
            }
        ),
    ),
    (
        "network",
        frozenset(
            {
                "ConnectionError",  # builtin, requests
                "gaierror",
                "herror",
                "SSLError",
                "URLError",
                "IncompleteRead",
                "TransportError",  # httpx, httpx2
                "NetworkError",
                "ConnectError",
                "ReadError",
                "WriteError",
                "RemoteProtocolError",
                "ClientConnectionError",  # aiohttp
                "ClientPayloadError",
                "ChunkedEncodingError",  # requests
                "ProtocolError",  # urllib3
                "MaxRetryError",
                "ConnectionClosed",  # websockets
                "APIConnectionError",  # openai, anthropic
            }
        ),
    ),
)
_NETWORK_ERRNOS = frozenset(
    {errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH}
)
# What these say stays true however often it is said. TaskDead is not here: another attempt of the
# parent may enqueue another child.
_PERMANENT_ERRORS = (
    BadInput,
    Mismatch,
    NotFound,
    Permanent,
    TooLarge,
    UnknownEngine,
    UnknownType,
    Unsupported,
)
# Too wide to choose a policy by: they would match every error.
_WIDE_NAMES = frozenset({"object", "BaseException", "Exception"})
# So that a rule for the builtin also meets the errors of libraries that do not inherit from it.
_ALIASES: Final[Mapping[str, str]] = {
    "timeout": "TimeoutError",
    "timed_out": "TimeoutError",
    "network": "ConnectionError",
    "out_of_memory": "MemoryError",
}


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why one attempt failed: what people read, and what policy and breaker decide by."""

    code: str
    type: str
    message: str
    kind: Kind
    details: dict[str, object] | None = None
    traceback: str | None = None
    status: int | None = None
    retry_after_ms: int | None = None
    names: tuple[str, ...] = ()
    speaks_of_service: bool = False


def classify(exc: BaseException, *, now_ms: int | None = None) -> Failure:
    """The failure behind an exception; `now_ms` is needed to read a `Retry-After` date."""
    trace = "".join(traceback.format_exception(exc))
    exc = _worst(exc)
    names = tuple(c.__name__ for c in type(exc).__mro__ if c.__name__ not in _WIDE_NAMES)
    status = _status_of(exc)
    code, kind = _code_and_kind(exc, names, status)
    details = _attribute(exc, "details")
    return _build(
        code=code,
        kind=kind,
        names=names or (type(exc).__name__,),
        message=_text_of(exc),
        details=details if isinstance(details, Mapping) else None,
        trace=trace,
        status=status,
        retry_after_ms=_retry_after_of(exc, now_ms),
    )


class _Wire(msgspec.Struct):
    """A failure as a worker in another language reports it; what it does not know is ignored."""

    type: str = "Error"
    message: str = ""
    status: int | None = None
    code: str | None = None
    retry_after: float | None = None
    permanent: bool | None = None
    details: dict[str, object] | None = None
    traceback: str | None = None


def from_wire(data: Mapping[str, object]) -> Failure:
    """The failure another language reports; `permanent` is its own verdict and wins."""
    try:
        wire = msgspec.convert(data, _Wire)
    except msgspec.ValidationError as problem:
        raise BadInput(
            f"The error is not readable: {problem}. It has the fields type, message, status, code,"
            " retry_after (seconds), permanent, details and traceback, all optional.",
            field="error",
        ) from problem
    status = wire.status if wire.status is not None and 400 <= wire.status <= 599 else None
    names = (_cut(wire.type, 200) or "Error",)
    code = _cut(wire.code, 64) if wire.code else _code_of(names, status)
    kind = KINDS.get(code, KINDS[_code_of(names, status)])
    if wire.permanent is not None and kind != "memory":
        kind = "permanent" if wire.permanent else "transient"
    return _build(
        code=code,
        kind=kind,
        names=names,
        message=wire.message or names[0],
        details=wire.details,
        trace=wire.traceback,
        status=status,
        retry_after_ms=_seconds_to_ms(wire.retry_after),
    )


def to_error(failure: Failure) -> dict[str, object]:
    """The `error` of a task's record."""
    return {
        "code": failure.code,
        "type": failure.type,
        "message": failure.message,
        "details": failure.details,
        "traceback": failure.traceback,
    }


# Quoted text only between non-letters, so that the apostrophe of "can't" opens nothing.
_VARIABLE = re.compile(
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
    r"""|(?<!\w)'[^']*'(?!\w)|"[^"]*"|`[^`]*`"""
    r"|0[xX][0-9a-fA-F]+|\b(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}\b"
    r"|(?<![\w-])-?[0-9]+(?:\.[0-9]+)*|[0-9]+(?:\.[0-9]+)*"
)


def fingerprint(failure: Failure) -> str:
    """12 hex digits that are equal for the same error with other numbers, ids or quoted names."""
    stable = f"{failure.type}\n{_VARIABLE.sub('#', failure.message)}"
    return hashlib.sha256(stable.encode()).hexdigest()[:12]


def _build(
    *,
    code: str,
    kind: Kind,
    names: tuple[str, ...],
    message: str,
    details: Mapping[str, object] | None,
    trace: str | None,
    status: int | None,
    retry_after_ms: int | None,
) -> Failure:
    alias = _ALIASES.get(code)
    return Failure(
        code=code,
        type=names[0],
        message=_cut(scrub(message), MAX_MESSAGE_BYTES),
        kind=kind,
        details=None if details is None else _plain(details),
        traceback=None if trace is None else _cut(scrub(trace), MAX_TRACEBACK_BYTES, keep_end=True),
        status=status,
        retry_after_ms=retry_after_ms,
        names=names if alias is None or alias in names else (*names, alias),
        speaks_of_service=code in _OF_SERVICE,
    )


def _worst(exc: BaseException) -> BaseException:
    """The error that speaks for an exception group: one that makes retrying futile, if any."""
    if not isinstance(exc, BaseExceptionGroup):
        return exc
    leaves = [_worst(inner) for inner in exc.exceptions]
    order = ("memory", "permanent", "transient")
    return min(leaves, key=lambda leaf: order.index(_kind_of(leaf)))


def _kind_of(exc: BaseException) -> Kind:
    names = tuple(c.__name__ for c in type(exc).__mro__)
    return _code_and_kind(exc, names, _status_of(exc))[1]


def _code_and_kind(
    exc: BaseException, names: tuple[str, ...], status: int | None
) -> tuple[str, Kind]:
    if isinstance(exc, Transient):
        return ("transient" if status is None else _code_of(names, status)), "transient"
    if isinstance(exc, OutlastError):
        return exc.code, "permanent" if isinstance(exc, _PERMANENT_ERRORS) else "transient"
    if hasattr(exc, "after_ms"):  # a raised Retry, which this file cannot import
        return "retry", "transient"
    if isinstance(exc, OSError) and exc.errno in _NETWORK_ERRNOS:
        return "network", "transient"
    code = _code_of(names, status)
    return code, KINDS[code]


def _code_of(names: tuple[str, ...], status: int | None) -> str:
    if status is not None:
        return _BY_STATUS.get(status, "unavailable" if status >= 500 else "bad_request")
    return next((code for code, known in _BY_NAME if not known.isdisjoint(names)), "unknown")


def _status_of(exc: BaseException) -> int | None:
    response = _attribute(exc, "response")
    for holder, name in (
        (exc, "status_code"),
        (exc, "status"),
        (exc, "code"),
        (response, "status_code"),
        (response, "status"),
    ):
        value = _attribute(holder, name)
        if isinstance(value, int) and 400 <= value <= 599:
            return int(value)
    return None


def _retry_after_of(exc: BaseException, now_ms: int | None) -> int | None:
    asked = _attribute(exc, "after_ms")
    if isinstance(asked, int):
        return asked
    for holder in (exc, _attribute(exc, "response")):
        headers = _attribute(holder, "headers")
        if isinstance(headers, Mapping) or hasattr(headers, "get"):
            for name in ("Retry-After", "retry-after"):
                value = headers.get(name)
                if value is not None:
                    return _read_retry_after(value, now_ms)
    return None


def _read_retry_after(value: object, now_ms: int | None) -> int | None:
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    try:
        return _seconds_to_ms(float(text))
    except ValueError:
        pass
    try:
        until_ms = parsedate_to_datetime(text).timestamp() * 1_000
    except (ValueError, OverflowError):
        return None
    return None if now_ms is None else _seconds_to_ms((until_ms - now_ms) / 1_000)


def _seconds_to_ms(seconds: float | None) -> int | None:
    if seconds is None or math.isnan(seconds):
        return None
    return round(min(max(seconds * 1_000, 0), MAX_RETRY_AFTER_MS))


def _attribute(holder: object, name: str) -> object:
    try:
        return getattr(holder, name, None)
    except Exception:  # a property of a library's exception may itself raise
        return None


def _text_of(exc: BaseException) -> str:
    try:
        return str(exc) or type(exc).__name__
    except Exception:
        return f"{type(exc).__name__} (its message cannot be shown)"


def _cut(text: str, most: int, *, keep_end: bool = False) -> str:
    """At most that many bytes of UTF-8, without what a database refuses (NUL, lone surrogates)."""
    data = text.replace("\0", "\ufffd").encode("utf-8", "replace")
    if len(data) > most:
        room = most - len("…".encode())
        data = "…".encode() + data[-room:] if keep_end else data[:room] + "…".encode()
    return data.decode("utf-8", "ignore")


def _plain(details: Mapping[str, object]) -> dict[str, object]:
    """The details as JSON values: what a handler attached must not spoil the turn it travels in."""
    try:
        data = msgspec.json.encode(dict(details), enc_hook=repr)
        if len(data) <= MAX_DETAILS_BYTES:
            data = data.replace(rb"\u0000", rb"\ufffd")
            return msgspec.json.decode(data, type=dict[str, object])
    except Exception:  # keys that are no text, numbers beyond JSON, a repr that raises
        data = b""
    return {"cut": _cut(data.decode() or _safe_repr(details), MAX_MESSAGE_BYTES)}


def _safe_repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"
