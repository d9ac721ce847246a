"""What a route tells of itself: to OpenAPI what it reads and answers, to the door its right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from msgspec import Struct
from starlette.responses import Response

from outlast.access import Right
from outlast.http.openapi import ERRORS
from outlast.http.schemas import (
    PREFIX,
    CancelWorkflow,
    Edit,
    NewFailure,
    NewResult,
    NewToken,
    Preferences,
    Problem,
    Reason,
    Rerun,
    RetryWorkflow,
)

Needs = Right | Literal["nothing"]
RIGHT: Final = "x-outlast-right"
SCOPED: Final = "x-outlast-scoped"
"""The route itself looks whether a task or queue is in the scope of a key that has one."""


def doc(
    summary: str,
    answer: type[Struct] | tuple[type[Struct], ...] | None = None,
    *,
    right: Needs,
    scoped: bool | None = None,
    status: int = 200,
    also: Mapping[int, type[Struct]] | None = None,
    body: type[Struct] | None = None,
    any_body: bool = False,
    query: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    stream: bool = False,
    binary: Sequence[str] = (),
    errors: tuple[int, ...] = (),
) -> dict[str, Any]:
    """The arguments of a route decorator that tell OpenAPI what the function reads and answers.

    The docstring of the function is the description. `errors` are statuses that do not follow from
    what the route takes: most do, and are put in by `outlast.http.openapi`, with the examples.
    """
    told: dict[str, Any] = {"description": "Done"}
    if stream:
        told = {"description": "Events", "content": {"text/event-stream": {"schema": _TEXT}}}
    elif binary:
        told = {"description": "Content", "content": dict.fromkeys(binary, _BYTES)}
    elif answer is not None:
        shapes = answer if isinstance(answer, tuple) else (answer,)
        told["description"] = " Or: ".join(" ".join((s.__doc__ or "").split()) for s in shapes)
        told["content"] = _json(answer)
    extra: dict[str, Any] = {
        RIGHT: right,
        SCOPED: right in ("look", "enqueue", "act") if scoped is None else scoped,
        ERRORS: errors,
        "security": [] if right == "nothing" else [{"bearer": []}],
        "parameters": [
            *({"name": n, "in": "query", "description": d, "schema": _TEXT}
              for n, d in (query or {}).items()),
            *({"name": n, "in": "header", "description": d, "schema": _TEXT}
              for n, d in (headers or {}).items()),
        ]
    }  # fmt: skip
    if body is not None:
        extra["requestBody"] = {"content": _json(body), "required": body not in OPTIONAL}
    elif any_body:
        extra["requestBody"] = {"content": {"application/json": {"schema": {}}}}
    problem = {"schema": {"$ref": PREFIX + Problem.__name__}}
    return {
        "summary": summary,
        "status_code": status,
        "response_class": Response,
        "response_model": None,
        "responses": {
            status: told,
            **({206: {**told, "description": "A part"}, 304: _KNOWN} if binary else {}),
            **{
                code: {"description": "Done", "content": _json(shape)}
                for code, shape in (also or {}).items()
            },
            "default": {
                "description": "Refused or failed",
                "content": {"application/problem+json": problem},
            },
        },
        "openapi_extra": extra,
    }


OPTIONAL: Final = (
    Reason, Edit, NewToken, Preferences, NewResult, NewFailure, CancelWorkflow, RetryWorkflow,
    Rerun,
)  # fmt: skip
_TEXT: Final = {"type": "string"}
_KNOWN: Final = {"description": "What you have is what there is"}
_BYTES: Final = {"schema": {"type": "string", "format": "binary"}, "example": "…"}


def _json(shapes: type[Struct] | tuple[type[Struct], ...]) -> dict[str, Any]:
    many = shapes if isinstance(shapes, tuple) else (shapes,)
    refs = [{"$ref": PREFIX + shape.__name__} for shape in many]
    return {"application/json": {"schema": refs[0] if len(refs) == 1 else {"anyOf": refs}}}
