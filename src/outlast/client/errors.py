"""What a server refuses, as exceptions: by the `code` of its problem (RFC 9457), else its status.

Where Outlast itself has an exception for it, this is one, too: `except outlast.NotFound` means the
same with an engine and with a server.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from outlast.core import errors
from outlast.core.errors import OutlastError
from outlast.http.schemas import Problem


class ApiError(OutlastError):
    """A server refused, or failed. `code` is stable, `detail` is for people."""

    def __init__(self, problem: Problem, retry_after_s: float | None = None) -> None:
        Exception.__init__(self, problem.detail)
        self.status = problem.status
        self.title = problem.title
        self.detail = problem.detail
        self.code = problem.code  # type: ignore[misc]  # of the answer, more precise than the class
        self.field = problem.field or None
        """The part of the request that is wrong, where there is one."""
        self.retry_after_s = retry_after_s
        """When to come back, where the server says so."""


class Invalid(ApiError, errors.BadInput):
    """What was sent is wrong."""


class UnknownType(Invalid, errors.UnknownType):
    """No handler, no declaration and no live worker knows this task type."""


class Mismatch(Invalid, errors.Mismatch):
    """An Idempotency-Key came back with another body."""


class TooLarge(Invalid, errors.TooLarge):
    """The body, the payload or the result is above its bound."""


class Unauthorized(ApiError):
    """No key or token, or one that is unknown, revoked or over."""


class Forbidden(ApiError):
    """This key or token may not do that."""


class NotFound(ApiError, errors.NotFound):
    """There is no such thing, or the caller may not see it: the two look the same."""


class Conflict(ApiError, errors.Conflict):
    """The change does not apply to the state the task is in."""


class LeaseLost(Conflict, errors.LeaseLost):
    """The lease is another's now, or over: stop working on the task."""


class TooManyRequests(ApiError):
    """Asked too often; `retry_after_s` says when to come back."""


class Unavailable(ApiError, errors.EngineDown):
    """The server's engine does not answer, or the server is busy or shutting down."""


class Full(ApiError, errors.EngineFull):
    """The server's engine has no room left; nothing was stored."""


class Unreachable(errors.EngineDown):
    """There is no server there, or the connection to it broke."""

    code = "unreachable"


class NotOutlast(OutlastError):
    """Something answered that is no Outlast server, or one of another version."""

    code = "not_outlast"


BY_CODE: Final[Mapping[str, type[ApiError]]] = {
    "unknown_type": UnknownType,
    "mismatch": Mismatch,
    "lease_lost": LeaseLost,
}
BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    415: Invalid,
    421: Invalid,
    422: Invalid,
    429: TooManyRequests,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
    507: Full,
}


def error_of(status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """The exception for an answer; a proxy in between may have written another body."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.DecodeError:
        known = {each.value: each.phrase for each in HTTPStatus}
        title = known.get(status, "Error")
        problem = Problem(
            type="about:blank", title=title, status=status, code="error",
            detail=f"The answer was {status} {title}, and is none of Outlast's.",
        )  # fmt: skip
    kind = BY_CODE.get(problem.code) or BY_STATUS.get(status, ApiError)
    # It may be a date, too; then the usual pause does.
    is_number = retry_after is not None and retry_after.isascii() and retry_after.isdigit()
    return kind(problem, float(retry_after) if retry_after and is_number else None)
