"""Errors over HTTP: every one is an RFC 9457 problem, `application/problem+json`."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route

from outlast.core import errors
from outlast.core.errors import BadInput, BudgetSpent, OutlastError
from outlast.views import View, to_json

STATUS: Final[dict[type[OutlastError], int]] = {
    errors.BadInput: 422,
    errors.UnknownType: 422,
    errors.TooLarge: 413,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.LeaseLost: 409,
    errors.Mismatch: 422,
    errors.BudgetSpent: 429,
    errors.EngineDown: 503,
    errors.EngineFull: 507,
    errors.Unsupported: 501,
}
RETRY_AFTER_S: Final = 5

CODES: Final[dict[int, str]] = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    413: "too_large",
    415: "not_json",
    416: "no_such_range",
    421: "wrong_host",
    429: "too_many_requests",
    500: "unexpected",
    503: "busy",
}
"""Codes of problems that no exception of Outlast stands for."""


class Refused(Exception):
    """A request that HTTP itself has to refuse: its form, its size, where it comes from."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code or CODES[status]
        self.headers = headers


def problem(
    status: int,
    detail: str,
    *,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
    field: str | None = None,
) -> Response:
    """`code` is stable and for programs, `detail` is for people."""
    code = code or CODES.get(status, "error")
    body: View = {
        "type": f"urn:outlast:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
    }
    if field is not None:
        body["field"] = field
    told = dict(headers or {})
    if status == 401:
        told["www-authenticate"] = "Bearer"
    if status in (503, 507):
        told["retry-after"] = str(RETRY_AFTER_S)
    return Response(to_json(body), status, told, "application/problem+json")


def problem_of(error: OutlastError | Refused) -> Response:
    if isinstance(error, Refused):
        return problem(error.status, str(error), code=error.code, headers=error.headers)
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
    field = error.field if isinstance(error, BadInput) else None
    after_ms = error.after_ms if isinstance(error, BudgetSpent) else None
    headers = None if after_ms is None else {"retry-after": str(-(-after_ms // 1_000))}
    return problem(status, str(error), code=error.code, field=field, headers=headers)


async def on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, OutlastError | Refused)  # noqa: S101  # what it is registered for
    return problem_of(error)


async def on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  # what it is registered for
    path, method = request.url.path, request.method
    detail, headers = str(error.detail), error.headers
    if error.status_code == 404:
        detail = f"There is nothing at {path}; /openapi.json lists what there is."
    elif error.status_code == 405:
        takes = _methods(request) or {"GET"}
        detail = f"{path} does not take {method}, but {', '.join(sorted(takes))}."
        headers = {"allow": ", ".join(sorted(takes))}
    return problem(error.status_code, detail, headers=headers)


def _methods(request: Request) -> set[str]:
    """What the path takes in all: the router only knows the first route it met."""
    routes: list[Route] = request.app.state.routes
    there = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    # /tasks/batch is no task, though /tasks/{task_id} would take it for one.
    there = [route for route in there if not route.param_convertors] or there
    return {method for route in there for method in route.methods or ()}


async def on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101  # what it is registered for
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    return problem(422, f"{field}: {first['msg']}", code="bad_input", field=field)
